"""The public functions that run cases on this machine: measure, compare, judge, validate, conversion coverage."""

import dataclasses
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearpeak.core.answers.analysis import Analysis
from nearpeak.core.answers.suite import Suite
from nearpeak.core.runs.measurement import TIMED, Environment, Measurement, Outcome, Timing
from nearpeak.core.runs.paired_rounds import INCONCLUSIVE, PairedComparison
from nearpeak.core.work.case import Case
from nearpeak.errors import NearpeakError, SpecError, UnfitError

if TYPE_CHECKING:
    from nearpeak.core.runs.paired_rounds import Judgement, Round
    from nearpeak.core.runs.validation import Validation
    from nearpeak.core.systems.fabric import Fabric
    from nearpeak.core.work.target import Target
    from nearpeak.judgement.round_plan import RoundPlan
    from nearpeak.measurement.timing.interleaved_rounds import Arm
    from nearpeak.validation.running.implementation_run import Implementation


def measure(
    cases: Case | Iterable[Case] | Suite, runner: str = "torch_cpu", timing: Timing = Timing(), *,
    out: Path | None = None, fresh: bool = False, launch_count: int = 1, telemetry_hz: float | None = None,
) -> Iterator[Measurement]:  # fmt: skip
    """Yield the measurement of each case: its samples, or the outcome that says why there are none.

    A case that crashes, hangs or takes too much memory becomes an outcome like any other, and the run goes on. With
    `out` each measurement is on disk before it is yielded, and what the file holds already does not run again.

    Args:
        cases: of a suite, those that it chooses; their reasons and counts stay with the results.
        runner: `name` or `name:argument` ('nearpeak show runners' lists all).
        fresh: start a process per case instead of forking a warmed one.
        launch_count: fresh processes that measure each case; each is a measurement of its own.
        telemetry_hz: read power, clocks, temperatures and load so often per second beside the cases; none does not.

    >>> from nearpeak.ops import case
    >>> [one.outcome.value for one in measure(case("gemm", m=8, n=8, k=8, dtype="fp32"), "null")]
    ['converged']
    """
    from nearpeak.measurement.session import run_cases

    why = {choice.case: choice.why for choice in cases.chosen} if isinstance(cases, Suite) else {}
    wanted = list(why) if isinstance(cases, Suite) else [cases] if isinstance(cases, Case) else list(cases)
    if not wanted:
        raise SpecError("measure: no cases are given; give at least one")
    device = _target_of(runner)

    def judged(measurement: Measurement) -> Measurement:
        beside = _checked_against_bound(measurement, device or known_target(measurement.target))
        return dataclasses.replace(beside, why=why.get(measurement.case, ()))

    yield from run_cases(
        wanted, runner, timing, out, fresh=fresh, judge=judged, launch_count=launch_count, telemetry_hz=telemetry_hz
    )


def measured(
    analysis: Analysis,
    runner: str = "torch_cpu",
    budget_s: float = 0.3,
    progress: Callable[[str], None] | None = None,
) -> Analysis:
    """Return `analysis` with each case's measured time beside its bound on the target that `runner` times.

    Args:
        budget_s: time to sample each case.
        progress: told each case when it is done.
    """
    from nearpeak.judgement.plausibility import with_measurements
    from nearpeak.measurement.session import run_cases

    target = require_timed(runner, [entry.target for entry in analysis.targets])
    here = next(entry for entry in analysis.targets if entry.target == target)
    labels = {row.case: row.label for row in analysis.rows}
    taken: dict[Case, Measurement] = {}
    for measurement in run_cases(labels, runner, Timing(budget_s=budget_s)):
        taken[measurement.case] = measurement
        if progress:
            progress(labels[measurement.case])
    new = with_measurements(analysis.rows, here, taken)
    return dataclasses.replace(analysis, targets=tuple(new if entry is here else entry for entry in analysis.targets))


def require_timed(runner: str, targets: Collection[str]) -> str:
    """Return the name of the device that the runner times, which must be among the targets.

    Raises:
        SpecError: it is not.

    >>> require_timed("torch_cpu", ["h200_sxm", "cpu"])
    'cpu'
    """
    device = timed_target(runner)
    if device not in targets:
        raise SpecError(f"--measure: {runner} times the target {device!r}; add --target {device}")
    return device


def timed_target(runner: str) -> str:
    """Return the name of the device that the runner times; that of a GPU is its driver's to say.

    Raises:
        MeasureError: there is no GPU.

    >>> timed_target("torch_cpu")
    'cpu'
    """
    from nearpeak.measurement.runners import factory_of, runner_of
    from nearpeak.targets.device_names import UNKNOWN

    named: str = getattr(factory_of(runner), "target", "")
    return named if named not in ("", UNKNOWN) else runner_of(runner).target


def _target_of(runner: str) -> "Target | None":
    """Return the device that the runner times, none where no figures of it are known."""
    from nearpeak.measurement.runners import factory_of

    return known_target(getattr(factory_of(runner), "target", ""))


def known_target(name: str) -> "Target | None":
    """Return the device called `name`, none where no figures of it are known: a GPU's name is known once it ran.

    >>> known_target("h200_sxm").name, known_target("gpu")
    ('h200_sxm', None)
    """
    from nearpeak.targets import target_of

    try:
        return target_of(name)
    except NearpeakError:
        return None


def bound_s(case: Case, device: "Target | None", *, cached: bool = False) -> float | None:
    """Return the bound of `case` on `device`; none where there is no figure or rule for it.

    Args:
        cached: whether inputs may lie in the last cache already, as those of a hot call do.
    """
    from nearpeak.bounds.case_bound import case_bound
    from nearpeak.core.answers.bound import Policy

    if device is None:
        return None
    try:
        return case_bound(case, device, Policy(cold_inputs=not cached)).time_s
    except NearpeakError:
        return None


def least_s(measurement: Measurement, device: "Target | None") -> float | None:
    """Return the time that no sample of `found` can be below: the bound, with inputs where its calls found them."""
    cached = measurement.method is not None and measurement.method.cache == "hot"
    return bound_s(measurement.case, device, cached=cached)


def _checked_against_bound(measurement: Measurement, device: "Target | None") -> Measurement:
    """Return `found` as below its bound where it is: a rule, a figure of the device or a timer is wrong."""
    floor_s = least_s(measurement, device) if measurement.outcome in TIMED and measurement.method else None
    if floor_s is None or measurement.best_s + measurement.timer_s >= floor_s:
        return measurement
    note = (
        f"its best sample of {measurement.best_s:.4g} s is below the bound of {floor_s:.4g} s on {measurement.target}"
    )
    notes = "; ".join(filter(None, (note, measurement.note)))
    return dataclasses.replace(measurement, outcome=Outcome.BELOW_BOUND, note=notes)


def compare(
    case: Case, baseline: "Arm", candidate: "Arm", timing: Timing = Timing(cache="hot"), *,
    tolerance_ratio: float = 0.02, budget_s: float = 60.0, notify: "Callable[[RoundPlan], None] | None" = None,
) -> PairedComparison:  # fmt: skip
    """Return how the candidate's time stands to the baseline's on `case`.

    Each round forks a process for each of both, which take turns of some milliseconds on the device. After two rounds
    it is known what a round costs, and so how many the budget is enough for: a verdict is given at one to three looks,
    such as after 5, 10 and 20 rounds, the last after as many as the budget is enough for, and never in between. Where
    fewer than 5 fit, or rounds come to take far longer, it is inconclusive.

    Args:
        tolerance_ratio: change up to which the two count as the same.
        notify: is called once with that plan.
    """
    from nearpeak.judgement.paired_verdict import judged
    from nearpeak.judgement.round_plan import MOST_OVERRUN, PLANNED_AFTER, planned
    from nearpeak.measurement.timing.interleaved_rounds import Unready, rounds_of

    begun_s, rounds, names = time.monotonic(), [], (baseline.runner, candidate.runner)
    clock, judgement, plan, first_s = "", None, None, 0.0
    differences: tuple[tuple[str, str, str], ...] = ()
    try:
        for round_, left, right in rounds_of(case, (baseline, candidate), timing):
            rounds.append(round_)
            clock, differences = left.clock, environment_differences(left.environment, right.environment)
            spent_s = time.monotonic() - begun_s
            if len(rounds) < PLANNED_AFTER:
                first_s = spent_s
                continue
            if plan is None:
                plan = planned(rounds, spent_s, spent_s - first_s, budget_s, tolerance_ratio)
                if notify is not None:
                    notify(plan)
            if not plan.looks or (len(rounds) not in plan.looks and spent_s > MOST_OVERRUN * budget_s):
                judgement = dataclasses.replace(judged(rounds, tolerance_ratio), verdict=INCONCLUSIVE)
                break
            if len(rounds) in plan.looks:
                judgement = judged(rounds, tolerance_ratio)
                if judgement.verdict != INCONCLUSIVE or len(rounds) == plan.looks[-1]:
                    break
    except Unready as error:
        return PairedComparison(
            case=case, baseline=names[0], candidate=names[1], clock=clock, rounds=tuple(rounds), judgement=None,
            outcome=error.outcome, note=error.note,
        )  # fmt: skip
    return PairedComparison(
        case=case, baseline=names[0], candidate=names[1], clock=clock, rounds=tuple(rounds), judgement=judgement,
        outcome="compared", differences=differences,
    )  # fmt: skip


def judge(rounds: "Sequence[Round]", tolerance_ratio: float = 0.02) -> "Judgement":
    """Return the verdict on interleaved A/B rounds; with the roles swapped it is mirrored.

    Args:
        tolerance_ratio: change up to which the two count as the same.

    Raises:
        SpecError: fewer than two rounds, or a tolerance that is not between 0 and 1.

    >>> from nearpeak.core.runs.paired_rounds import Round
    >>> judge([Round(four_log_ratio=(log,)) for log in (0.051, 0.049, 0.05, 0.052, 0.048)]).verdict
    'regression'
    """
    from nearpeak.judgement.paired_verdict import judged

    return judged(rounds, tolerance_ratio)


def validate(
    case: Case, implementation: "Implementation | Callable[..., Mapping[str, Any]]", *, seed: int = 0
) -> "Validation":
    """Return what the numerics checks V0 to V12 find on an implementation of `case`, run in this process.

    Args:
        implementation: (tensors by input name, **arguments of the case) → outputs by name.
        seed: of all inputs; the same seed repeats every figure of the record.

    >>> from nearpeak.ops import case
    >>> product = case("gemm", m=8, n=8, k=16, dtype="fp32")
    >>> validate(product, lambda tensors, **_: {"y": tensors["a"] @ tensors["b"]}).status
    'PASS'
    """
    from nearpeak.validation import validate

    return validate(case, implementation, seed=seed)


def environment_differences(left: Environment, right: Environment) -> tuple[tuple[str, str, str], ...]:
    """Return where two environments differ: what, on the left, on the right.

    >>> environment_differences(Environment(device="a", driver="1"), Environment(device="a", driver="2"))
    (('driver', '1', '2'),)
    """
    flat = []
    for environment in (left, right):
        record = environment.record()
        inner = {f"{kind}.{name}": text for kind in ("packages", "settings") for name, text in record.pop(kind).items()}
        flat.append(record | inner)
    names = sorted({*flat[0], *flat[1]})
    return tuple(
        (n, str(flat[0].get(n, "")), str(flat[1].get(n, ""))) for n in names if flat[0].get(n) != flat[1].get(n)
    )


def measure_roofs(*, busy: bool = False) -> tuple[Path, dict[str, float]]:
    """Measure the roofs of this machine's CPU, keep the best ever reached in the user's folder; return file and roofs.

    They make the target `cpu`.

    Args:
        busy: keep roofs that were measured while others took cores, marked as not verified.

    Raises:
        UnfitError: other processes took cores meanwhile, so that the machine reaches more.
    """
    from nearpeak.measurement.machine.other_load import cpu_times, load_between
    from nearpeak.measurement.machine.roofs import best_roofs, cpu_roofs, cpu_target_text, is_this_cpu
    from nearpeak.targets import CPU

    start = cpu_times()
    roofs = dict(cpu_roofs())
    load, known = load_between(start, cpu_times()), known_target(CPU)
    is_known = known is not None and is_this_cpu(known) and not known.unverified  # what was reached once holds
    if load.disturbs and not is_known and not busy:
        raise UnfitError(
            f"roofs: {load} while they were measured, so this machine reaches more: nothing is saved; run it on an "
            "idle machine, or keep what was reached, marked, with 'nearpeak calibrate roofs --busy'"
        )
    rates = best_roofs(roofs, known)
    beside = str(load) if load.disturbs and not is_known else ""
    return _kept(roofs_file(), cpu_target_text(rates, beside=beside)), rates


def measure_fabric(rank_counts: Sequence[int], budget_s: float, path: Path | None = None) -> "tuple[Path, Fabric]":
    """Measure collectives over gloo on this machine; return the fabric's file, in the user's folder, and the fabric.

    Args:
        budget_s: time for each kind and size.
        path: file to write instead.
    """
    from nearpeak.measurement.machine.gloo_fabric import fitted_fabric, measure_collectives
    from nearpeak.targets import user_folder
    from nearpeak.targets.fabric_file import fabric_text

    place = path or user_folder() / "fabrics" / "gloo.toml"
    fabric = fitted_fabric(measure_collectives(rank_counts, budget_s=budget_s), place.stem)
    return _kept(place, fabric_text(fabric)), fabric


def roofs_file() -> Path:
    """Return the device file of this machine's CPU, which is there once its roofs are measured.

    >>> roofs_file().name
    'cpu.toml'
    """
    from nearpeak.targets import CPU, user_folder

    return user_folder() / "targets" / f"{CPU}.toml"


def _kept(path: Path, text: str) -> Path:
    """Write a file of the user's folder, which appears whole or not at all."""
    from nearpeak.base.folders import whole_file

    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as part:
        part.write_text(text, encoding="utf-8")
    return path


def probe_cpu() -> Path:
    """Time a few sizes of many operators on one thread, keep them in the user's folder, and return the file.

    Predictions for the target `cpu` follow from them.

    Raises:
        MissingExtraError: PyTorch is not installed.
        SpecError: the roofs of this machine are not measured yet.
    """
    from datetime import date

    from nearpeak.measurement.machine.cpu_probes import probe_cases, thread_times
    from nearpeak.prediction.calibration.probe_file import path_of, save_text
    from nearpeak.targets import CPU, target_of

    title, pairs = target_of(CPU).title, list(thread_times(probe_cases()))
    source = f"measured on this machine on {date.today().isoformat()}: {len(pairs)} probes through PyTorch"
    return _kept(path_of(), save_text(pairs, title, source))
