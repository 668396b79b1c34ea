"""Plans over the power modes of a board: predicted or transferred times and powers, their bounds, and the choice."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import exp, hypot, log
from typing import Any

from nearpeak.core.answers.execution_time import ExecutionTime
from nearpeak.core.edge.board_mode import BoardMode, ModeSample
from nearpeak.core.edge.mode_plan import Estimate, ModeRow, PlannedEdge
from nearpeak.core.edge.scoped_power import PowerScope
from nearpeak.core.work.workload import Workload
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.systems.edge import mode_choice as choice
from nearpeak.systems.edge.mode_features import inverse_rates
from nearpeak.systems.edge.mode_selection import informative_modes
from nearpeak.systems.edge.mode_times import shrunk_times
from nearpeak.systems.edge.mode_transfer import Transferred, reference_prior, transferred

OBJECTIVES = ("energy", "time", "power")
"""Figures that a plan minimises."""
UNSHARED_RATIO = 0.5
"""Part of the half-width of an interval that two modes of a board do not share: an assumption."""
STEP_RATIO = 2.0
"""Factor of the 90 % interval of a step without a model of its engine: an assumption."""
REFERENCE_RATIO = 1.4
"""Factor of the 90 % interval of modes that only a reference model was measured in: an assumption."""
OTHER_JETPACK = "@"
"""Sign in the names of modes of another JetPack, `15W@5`: a plan takes those only if they are measured."""
MOST_OWN = 50
"""Measured modes beyond which nothing is transferred: the plan is for few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeJob:
    """What a plan is asked: limits, figure to minimise, and how often the model runs."""

    minimise: str = "energy"
    """One of OBJECTIVES."""
    deadline_s: float | None = None
    """Longest time of one run."""
    power_w: float | None = None
    """Highest mean power."""
    idle_w: float = 0.0
    """Power of the board at rest."""
    period_s: float = 0.0
    """Time from one run to the next; 0 where runs follow one another."""
    item_count: int = 1
    """Items of one run."""
    item: str = "inference"
    """Word for an item."""
    execution: str = ""
    """`graph` where kernels are submitted as one, `eager` one by one; empty for the usual way of the step's source."""
    measure_count: int = 0
    """Modes to name for measurement."""


def plan_edge(
    workload: Workload, board: str, scope: PowerScope, samples: Sequence[ModeSample] = (), job: EdgeJob = EdgeJob()
) -> PlannedEdge:
    """Return time, power, energy and bound of a step in every power mode of a board, and the mode to choose.

    Args:
        samples: measurements of this model, or of others as references, in some of the modes.

    Raises:
        SpecError: the board has no modes, the objective is unknown, or powers are of another scope.
        NotModelledError: nothing predicts the step on the board, and no measurement stands for it.
    """
    from nearpeak.core.answers.execution_time import EAGER
    from nearpeak.prediction.execution_modes import usual_mode
    from nearpeak.targets.power_modes import board_modes

    if job.minimise not in OBJECTIVES:
        raise SpecError(f"--minimise {job.minimise!r}: is not one of {', '.join(OBJECTIVES)}")
    sampled = {sample.mode for sample in samples}
    modes = [mode for mode in board_modes(board) if OTHER_JETPACK not in mode.name or mode.name in sampled]
    rates = inverse_rates(modes)
    job = replace(job, execution=job.execution or usual_mode(workload))
    prior = _Prior.of(workload, modes, scope, is_graph=job.execution != EAGER)
    predicted_s = _moved(modes, rates, prior.times_s, samples)
    times = _transfer(modes, rates, predicted_s, prior.time_ratio, samples, lambda sample: sample.time_s)
    powers = _transfer(modes, rates, prior.powers_w, prior.power_ratio, samples, lambda sample: _power(sample, scope))
    if times is not None and not any(sample.time_s for sample in samples):
        times = replace(times, low=[low_s for low_s, _ in prior.ends_s], high=[high_s for _, high_s in prior.ends_s])
    if times is None:
        raise NotModelledError(f"{workload.name}: no prediction on {board}; {prior.cause}; measure modes (--profile)")
    measured_modes = {sample.mode for sample in samples if not sample.model}
    rows = _rows(modes, times, powers, prior.bounds_s, measured_modes, job)
    return _chosen(workload, board, scope, job, rows, rates, (*prior.notes, *_sample_notes(samples, scope)))


def with_accelerators(planned: PlannedEdge, step: Workload) -> PlannedEdge:
    """Return a plan with the time of the step on one deep-learning accelerator in each mode that has a documented rate.

    A step that has what accelerators have not keeps its plan, which says why that time is missing.

    Args:
        step: as captured, before it is lowered to an engine.

    Raises:
        NotModelledError: no document states a rate of the board.
    """
    from nearpeak.systems.edge.dla_engine import MEMORY_RATIO, dla_modes, dla_time, dla_unit
    from nearpeak.targets import target_of

    known, rows = dla_modes(planned.board), []
    for row in planned.rows:
        if row.mode.name.partition(OTHER_JETPACK)[0] in known:
            try:
                accelerated = dla_time(step, target_of(row.mode.target))
            except NotModelledError as error:
                return replace(planned, dla_refusal=str(error))
            rows.append(
                replace(row, dla_s=Estimate(value=accelerated.time_s, low=accelerated.low_s, high=accelerated.high_s))
            )
        else:
            rows.append(row)
    unit = dla_unit(f"{planned.board}:{known[0]}")
    note = (
        f"One of {unit.unit_count} DLAs: int8 products at the documented dense rate ({unit.source}), then all bytes at "
        f"{MEMORY_RATIO:.0%} of the memory rate; starts of a task and other work on the board are not counted. A "
        "global mean is an AveragePool of the whole map; a file that has GlobalAveragePool or ReduceMean there leaves "
        "it to the GPU (NVIDIA/Deep-Learning-Accelerator-SW, operators/README.md)."
    )
    return replace(planned, rows=tuple(rows), dla_count=unit.unit_count, notes=(*planned.notes, note))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Prior:
    """Predictions of all modes before any measurement."""

    times_s: tuple[float, ...] | None
    """Times by mode; none where nothing predicts the step."""
    ends_s: tuple[tuple[float, float], ...]
    """Ends of the 90 % intervals of times, as 'nearpeak analyze' gives them; none where nothing predicts the step."""
    powers_w: tuple[float, ...] | None
    """Powers by mode; none where nothing tells them."""
    bounds_s: tuple[float | None, ...]
    """Times that nothing can beat, by mode."""
    time_ratio: float
    """Factor of the 90 % interval of times beside measured modes, the widest of all modes."""
    power_ratio: float
    """Factor of the 90 % interval of powers."""
    notes: tuple[str, ...]
    """What they rest on."""
    cause: str = ""
    """Why nothing predicts the step."""

    @classmethod
    def of(cls, workload: Workload, modes: Sequence[BoardMode], scope: PowerScope, *, is_graph: bool) -> "_Prior":
        """Return the predictions of a step in modes."""
        from nearpeak.bounds.step.step_bound import step_bound
        from nearpeak.core.answers.bound import Policy
        from nearpeak.prediction.engine import engine_coefficients as fitted
        from nearpeak.prediction.engine.engine_kernels import engine_kernels
        from nearpeak.prediction.engine.engine_power import engine_power, power_law
        from nearpeak.prediction.engine.engine_time import engine_time_s
        from nearpeak.targets import target_of

        targets = [target_of(mode.target) for mode in modes]
        is_engine = workload.origin.get("engine", "").startswith("tensorrt")
        policy = Policy(dtype="tf32" if is_engine else "strict")
        bounds = tuple(step_bound(workload, target, policy).time_s or None for target in targets)
        kernels, calibration = engine_kernels(workload.case_counts()), fitted.engine_calibration()
        try:
            if is_engine and fitted.has_engine_model(targets[0]):
                raw = [engine_time_s(kernels, target, is_graph=is_graph) for target in targets]
                ratio, words = calibration.ratio_of(targets[0]), calibration.source
                ends = [(time_s / ratio, time_s * ratio) for time_s in raw]
            else:
                steps = [_execution(workload, *pair, is_graph=is_graph) for pair in zip(targets, bounds, strict=True)]
                raw, ends = [step.time_s for step in steps], [(step.low_s, step.high_s) for step in steps]
                ratio = max((high_s / low_s) ** 0.5 for low_s, high_s in ends)
                words = "kernel models of other devices, no figure of this board"
            raw = [max(time_s, bound or 0.0) for time_s, bound in zip(raw, bounds, strict=True)]
            ends = [(low_s, max(high_s, time_s)) for (low_s, high_s), time_s in zip(ends, raw, strict=True)]
            times: tuple[float, ...] | None = tuple(raw)
            cause = ""
        except NotModelledError as error:
            times, ends, ratio, words, cause = None, [], 1.0, "nothing", str(error)
        law = power_law(scope)
        try:
            powers = tuple(engine_power(kernels, target, scope).power_w for target in targets)
        except NotModelledError:
            powers = None
        notes = (
            f"Time before measurements rests on: {words} (90 % within a factor of {ratio:.3g}).",
            f"Power before measurements is a prior, {scope.title}: {law.source} (within {law.interval_ratio:g}).",
            "A bound holds for the step as lowered to the engine's kernels and formats." if is_engine else
            "A bound holds for the step as captured.",
        )  # fmt: skip
        return cls(
            times_s=times, ends_s=tuple(ends), powers_w=powers, bounds_s=bounds, time_ratio=ratio,
            power_ratio=law.interval_ratio, notes=notes, cause=cause,
        )  # fmt: skip


def _execution(workload: Workload, target: Any, bound_s: float | None, *, is_graph: bool) -> ExecutionTime:
    """Return the expected time of a step without a model of its engine: kernels, or the host that submits them."""
    from nearpeak.core.answers.execution_time import EAGER, GRAPH
    from nearpeak.prediction.execution_modes import executions_of
    from nearpeak.prediction.step_time import calls_of

    calls, step = calls_of(workload, target)
    executions = executions_of(workload, calls, step, bound_s or 0.0, target)
    mode = GRAPH if is_graph else EAGER
    for execution in executions:
        if execution.mode == mode:
            return execution
    raise NotModelledError(f"{workload.name}: no kernel model answers for any of its calls on {target.name}")


def _moved(modes: Sequence[BoardMode], rates: Any, prior: Sequence[float] | None, samples: Sequence[ModeSample]) -> Any:
    """Return the predicted times with their terms moved towards measured modes; as they are with a reference model."""
    places = {mode.name: place for place, mode in enumerate(modes)}
    if prior is None or not samples or any(sample.model for sample in samples):
        return prior
    return shrunk_times(prior, rates, {places[sample.mode]: sample.time_s for sample in samples})


def _power(sample: ModeSample, scope: PowerScope) -> float | None:
    """Return the power of a sample; one of another scope is refused."""
    if sample.power is None:
        return None
    if sample.power.scope is not scope:
        raise SpecError(
            f"--profile: power of mode {sample.mode} is {sample.power.scope.value} and the plan's is {scope.value}; "
            "state all powers for one scope; if that is not the plan's, add --scope NAME"
        )
    return sample.power.power_w


def _transfer(
    modes: Sequence[BoardMode], rates: Any, prior: Any, ratio: float,
    samples: Sequence[ModeSample], figure: Callable[[ModeSample], float | None],
) -> Transferred | None:  # fmt: skip
    """Return figures of all modes from a prediction or reference models, and from measured modes."""
    import numpy as np

    places = {mode.name: place for place, mode in enumerate(modes)}
    grouped: dict[str, dict[int, list[float]]] = {}
    for sample in samples:
        value = figure(sample)
        if value is not None:
            grouped.setdefault(sample.model, {}).setdefault(places[sample.mode], []).append(value)
    middles = {
        model: {place: exp(sum(map(log, values)) / len(values)) for place, values in by_place.items()}
        for model, by_place in grouped.items()
    }
    own_middles: Mapping[int, float] = middles.pop("", {})
    if len(own_middles) > MOST_OWN:
        raise SpecError(f"--profile: {len(own_middles)} measured modes of the model; at most {MOST_OWN}")
    if middles:
        shape = reference_prior(list(middles.values()), len(modes))
        base = np.ones(len(modes)) if prior is None else np.asarray(prior)
        known = np.flatnonzero(~np.isnan(shape))
        scale = np.exp(np.mean(np.log(base[known] / shape[known])))
        prior, ratio = np.where(np.isnan(shape), base, shape * scale), max(REFERENCE_RATIO, 1 / len(known) + 1)
    if prior is None:
        if not own_middles:
            return None
        prior, ratio = np.exp(np.log(rates[:, :2]).mean(1)), STEP_RATIO
    return transferred(prior, rates, own_middles, ratio)


def _rows(
    modes: Sequence[BoardMode], times: Transferred, powers: Transferred | None, bounds_s: Sequence[float | None],
    measured: set[str], job: EdgeJob,
) -> list[ModeRow]:  # fmt: skip
    """Return the rows of all modes, in their order."""
    front = choice.pareto_places(times.values, times.values if powers is None else powers.values)
    rows = []
    for place, mode in enumerate(modes):
        time_s, bound = _estimate(times, place), bounds_s[place]
        time_s = Estimate(value=time_s.value, low=min(time_s.value, max(time_s.low, bound or 0.0)), high=time_s.high)
        power_w = None if powers is None else _estimate(powers, place)
        energy_j = None if power_w is None else _energy(time_s, power_w, job)
        late = job.deadline_s is not None and time_s.value > job.deadline_s
        strong = job.power_w is not None and (power_w is None or power_w.value > job.power_w)
        slow = bool(job.period_s) and time_s.value > job.period_s
        rows.append(ModeRow(
            mode=mode, time_s=time_s, power_w=power_w, energy_j=energy_j, bound_s=bound,
            is_measured=mode.name in measured, is_pareto=place in front, meets=not (late or strong or slow),
        ))  # fmt: skip
    return rows


def _estimate(figures: Transferred, place: int) -> Estimate:
    return Estimate(
        value=float(figures.values[place]), low=float(figures.low[place]), high=float(figures.high[place])
    )  # fmt: skip


def _energy(time_s: Estimate, power_w: Estimate, job: EdgeJob) -> Estimate:
    """Return the energy of one run or period; errors of time and power are independent."""
    value = choice.energy_of_period(time_s.value, power_w.value, job.idle_w, job.period_s)
    rest = value - time_s.value * power_w.value
    low, high = (
        hypot(log(time_s.value / time_end), log(power_w.value / power_end))
        for time_end, power_end in ((time_s.low, power_w.low), (time_s.high, power_w.high))
    )
    busy = value - rest
    return Estimate(value=value, low=rest + busy * exp(-low), high=rest + busy * exp(high))


def _chosen(
    workload: Workload, board: str, scope: PowerScope, job: EdgeJob, rows: list[ModeRow], rates: Any,
    notes: tuple[str, ...],
) -> PlannedEdge:  # fmt: skip
    """Return the plan with the best mode within the limits, the second, and whether they differ."""
    by_name: dict[str, list[Estimate | None]] = {
        "energy": [row.energy_j for row in rows], "time": [row.time_s for row in rows],
        "power": [row.power_w for row in rows],
    }  # fmt: skip
    figures = by_name[job.minimise]
    values = [None if figure is None else figure.value for figure in figures]
    order = choice.ranked(values, [row.meets for row in rows])
    resolved, switch_w = False, None
    if len(order) > 1:
        first, second = figures[order[0]], figures[order[1]]
        assert first is not None
        assert second is not None
        width = hypot(log(first.high / first.value), log(second.value / second.low))
        resolved = log(second.value / first.value) > UNSHARED_RATIO * width
    powers = [row.power_w.value for row in rows if row.power_w is not None]
    if order and job.period_s and job.minimise == "energy" and len(powers) == len(rows):
        times = [row.time_s.value for row in rows]
        switch_w = choice.switching_idle_w(times, powers, job.period_s, order[0], job.idle_w)
    known = [place for place, row in enumerate(rows) if row.is_measured]
    picks = informative_modes(rates, known, job.measure_count) if job.measure_count else []
    return PlannedEdge(
        model=workload.name, board=board, engine=workload.origin.get("engine", ""), scope=scope,
        item_count=job.item_count, item=job.item, rows=tuple(sorted(rows, key=lambda row: row.time_s.value)),
        objective=job.minimise, limits=tuple(_limits(job)), chosen=rows[order[0]].mode.name if order else "",
        runner_up=rows[order[1]].mode.name if len(order) > 1 else "", is_resolved=resolved,
        next_modes=tuple(rows[place].mode.name for place in picks), notes=notes, idle_w=job.idle_w,
        period_s=job.period_s, switch_idle_w=switch_w, execution=job.execution,
    )  # fmt: skip


def _limits(job: EdgeJob) -> list[str]:
    stated = []
    if job.deadline_s is not None:
        stated.append(f"a run within {job.deadline_s * 1e3:.4g} ms")
    if job.power_w is not None:
        stated.append(f"at most {job.power_w:.4g} W")
    if job.period_s:
        stated.append(f"a run every {job.period_s * 1e3:.4g} ms, {job.idle_w:.3g} W at rest")
    return stated


def _sample_notes(samples: Sequence[ModeSample], scope: PowerScope) -> tuple[str, ...]:
    measured_modes = {sample.mode for sample in samples if not sample.model}
    others = {sample.model for sample in samples if sample.model}
    if not samples:
        return ("No measurement of this board: times and powers are priors (--profile adds yours).",)
    powered = sum(sample.power is not None for sample in samples)
    modes = f"{len(measured_modes)} measured modes of this model, {len(others)} reference models"
    return (f"Rests on {modes}, {powered} powers ({scope.value}); intervals are the jackknife over measured modes.",)
