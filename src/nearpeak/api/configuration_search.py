"""The public functions tune and replay_search: the fastest correct configuration, and how good a search is."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearpeak.core.runs.measurement import Timing
from nearpeak.core.tuning.space import Configuration, Setting, TuningSpace, settings_text
from nearpeak.core.tuning.study import Contest, Study, Trial
from nearpeak.core.work.case import Case
from nearpeak.errors import MeasureError, NearpeakError, SpecError
from nearpeak.units import show

if TYPE_CHECKING:
    from nearpeak.core.tuning.replay import ReplayRun, ReplayStudy
    from nearpeak.core.work.target import Target
    from nearpeak.tuning.candidate_measurement import TunedKernel
    from nearpeak.tuning.legal_set import LegalSet
    from nearpeak.tuning.space_file import SpaceFile
    from nearpeak.tuning.study_journal import StudyJournal


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningPlan:
    """How a space is searched."""

    search: str = "auto"
    """`model`, `tpe`, `nsga2`, `random`, or `auto`."""
    seed: int = 0
    """Seed of the search."""
    trial_count: int = 100
    """Most configurations that run."""
    spent_s: float = inf
    """Wall time of all trials together."""
    within_ratio: float = 0.05
    """Distance to the achievable time at which the search stops."""
    least_gain_ratio: float = 0.0
    """Expected gain of all that is left below which the search stops; 0 never."""
    finalist_count: int = 3
    """Configurations that are compared in pairs at the end; with 0 nobody wins."""
    tolerance_ratio: float = 0.02
    """Difference up to which two configurations count as the same."""
    pair_budget_s: float = 60.0
    """Time of each final comparison."""
    timing: Timing = Timing(cache="hot")
    """How single calls are timed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningProgress:
    """Receivers of the progress of a study."""

    trial: Callable[[Trial, float], None] = lambda *_: None
    """Each new trial, and the best time."""
    contest: Callable[[Contest], None] = lambda _: None
    """Each final comparison."""
    stage: Callable[[str], None] = lambda _: None
    """What begins or has ended: the search, the finals."""


Keeper = Callable[[Study, Case, Timing], None]
"""From a finished study of a kernel, its case and how it is timed: keeps it in a store."""


def tune(
    path: Path, plan: TuningPlan = TuningPlan(), *, case: Case | None = None, runner: str = "",
    default: str = "", journal: Path | None = None, progress: TuningProgress = TuningProgress(),
    keep: Keeper | None = None,
) -> Study:  # fmt: skip
    """Return the study of a space: every configuration that was tried, why the search ended, and the winner.

    Args:
        path: file of the space: TOML, T1 JSON, or a Python file with Triton's Config calls.
        case: case that is timed instead of the file's.
        runner: runner with its function instead of the file's: `callable:kernels.py:softmax`.
        default: configuration in use, in words, instead of the file's.
        journal: file that keeps the study; what it holds does not run again.
        keep: keeps a finished study of a kernel elsewhere.

    Raises:
        SpecError: the space is malformed or empty, nothing says what to run, or every configuration failed.
    """
    from nearpeak.api.case_words import case_of
    from nearpeak.tuning.space_file import read_space_file
    from nearpeak.tuning.study_journal import study_journal

    file = _with_default(read_space_file(path, lambda words: case_of(words, f"{path}")), default)
    if file.evaluate and plan.least_gain_ratio:
        raise SpecError(f"--least-gain: is about one time, and {path} has objectives; give --budget")
    if file.evaluate and keep is not None:
        raise SpecError(f"--store: keeps times of kernels, and {path} has objectives; keep its --study or --json")
    kernel = None if file.evaluate else _kernel(file, plan, case, runner, path)
    legal = _legal(file.space, {} if kernel is None else _axes(kernel.case), path)
    with study_journal(journal, _request(file, plan, case, runner)) as held:
        if kernel is None:
            return _objective_study(file, plan, legal, held, progress)
        study = _kernel_study(file, plan, kernel, legal, held, progress)
        if keep is not None:
            keep(study, kernel.case, plan.timing)
        return study


def _with_default(file: "SpaceFile", default: str) -> "SpaceFile":
    from nearpeak.core.tuning.space import settings_of

    if not default:
        return file
    configuration = file.space.configuration_of(settings_of(default, "--default"), "--default")
    return dataclasses.replace(file, space=dataclasses.replace(file.space, default=configuration))


def _request(file: "SpaceFile", plan: TuningPlan, case: Case | None, runner: str) -> dict[str, Any]:
    """Return what makes two studies the same; budgets may grow between two runs of one study."""
    from nearpeak.core.tuning.study import STUDIES

    timed = case or file.case
    return {
        "space": STUDIES.plain(file.space), "function": runner or file.function or file.evaluate,
        "case": None if timed is None else timed.record(), "search": plan.search, "seed": plan.seed,
        "checks": [check.record() for check in file.checks], "cache": plan.timing.cache,
        "threads": plan.timing.thread_count, "validated": plan.timing.validate,
    }  # fmt: skip


def _kernel(file: "SpaceFile", plan: TuningPlan, case: Case | None, runner: str, path: Path) -> "TunedKernel":
    from nearpeak.tuning.candidate_measurement import TunedKernel

    timed = case or file.case
    if timed is None:
        raise SpecError(f"{path}: states no case; add --case 'gemm m=512 n=512 k=512 dtype=fp32'")
    named = runner or (f"{file.runner}:{file.function}" if file.function else "")
    if not named:
        raise SpecError(f"{path}: states no function; add --runner callable:kernels.py:NAME")
    overlap = sorted({parameter.name for parameter in file.space.parameters} & set(_axes(timed)))
    if overlap:
        raise SpecError(f"{path}: {overlap[0]} is a parameter and an axis of {timed.op}; rename the parameter")
    return TunedKernel(space=file.space, case=timed, runner=named, checks=file.checks, timing=plan.timing)


def _axes(case: Case) -> dict[str, Any]:
    """Return extents, formats and attributes of a case by name, as constraints may use them."""
    return {name: value for name, value in case.record().items() if name not in ("op", "phase")}


def _legal(space: TuningSpace, axes: Mapping[str, Any], path: Path) -> "LegalSet":
    """Return the legal configurations, the default among them."""
    from nearpeak.tuning.legal_set import legal_set

    try:
        legal = legal_set(space, axes)
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from None
    if space.default is not None and legal.index_of(space.default) is None:
        words = settings_text(space.named(space.default))
        raise SpecError(f"{path}: the default {words} is not legal; it breaks a constraint")
    return legal


def _kernel_study(
    file: "SpaceFile", plan: TuningPlan, kernel: "TunedKernel", legal: "LegalSet", journal: "StudyJournal",
    progress: TuningProgress,
) -> Study:  # fmt: skip
    from nearpeak.api.measured_analysis import bound_s, known_target, timed_target
    from nearpeak.ops import label_of
    from nearpeak.tuning.candidate_measurement import measure_candidate
    from nearpeak.tuning.configuration_bound import configuration_bound
    from nearpeak.tuning.finalists import winner_of
    from nearpeak.tuning.legal_set import combination_count
    from nearpeak.tuning.search_choice import SEARCHES, search_name
    from nearpeak.tuning.trial_loop import SearchLimits, search_trials

    space, name = kernel.space, search_name(plan.search)
    device = known_target(timed_target(kernel.runner))
    case_bound_s = bound_s(kernel.case, device, cached=plan.timing.cache == "hot")
    achievable = _achievable(kernel.case, device)
    default = None if space.default is None else space.named(space.default)
    about = Study(
        space=space.name, subject=label_of(kernel.case), runner=kernel.runner, search=name, seed=plan.seed, trials=(),
        combination_count=len(legal) if space.listed else combination_count(space), legal_count=len(legal),
        stop_reason="", default=default, bound_s=case_bound_s, achievable_s=achievable[1] if achievable else None,
        achievable_low_s=achievable[0] if achievable else None,
    )  # fmt: skip
    limits = SearchLimits(
        trial_count=plan.trial_count, spent_s=plan.spent_s, least_gain_ratio=plan.least_gain_ratio,
        target_s=(1 + plan.within_ratio) * (achievable[0] if achievable else 0.0),
        refuted_s=(1 - plan.within_ratio) * (achievable[0] if achievable else 0.0),
        target_words=f"the best is within {100 * plan.within_ratio:g} % of the achievable time",
    )  # fmt: skip
    if journal.study is None:
        journal.state(about)
    progress.stage(_beginning(about, plan, len(journal.trials)))
    reason = search_trials(
        legal, SEARCHES[name](legal, plan.seed, 1),
        lambda candidate, best_s: measure_candidate(kernel, candidate, best_s), limits, journal,
        bound_s=configuration_bound(file.work, space, _axes(kernel.case), device, case_bound_s),
        progress=progress.trial,
    )  # fmt: skip
    _refuse_all_failed(journal, space.name)
    progress.stage(_search_end(journal, reason))
    winner = winner_of(
        journal, default, _duel(kernel, plan), _fault(kernel, plan.seed), plan.finalist_count, progress.contest
    )
    return _ended(journal, about, reason, winner)


def _beginning(about: Study, plan: TuningPlan, kept_count: int) -> str:
    """Return what is searched, how, and for how long at most."""
    budget = f"{plan.trial_count:,} evaluations" if plan.spent_s == inf else f"{plan.spent_s:g} s"
    journaled = f", {kept_count:,} already in the journal" if kept_count else ""
    return (
        f"{about.space}: {about.legal_count:,} legal configurations; search {about.search}, at most {budget}{journaled}"
    )


def _search_end(journal: "StudyJournal", reason: str) -> str:
    """Return the best of the search, and why it ended."""
    best = min(journal.trials, key=lambda trial: trial.score_s)
    return f"search ended, {reason}; best {settings_text(best.settings)}, {show(best.score_s, 's')}"


def _ended(journal: "StudyJournal", about: Study, reason: str, winner: Mapping[str, Setting] | None = None) -> Study:
    """Return a finished study, and state its end in the journal."""
    study = dataclasses.replace(
        about, trials=tuple(journal.trials), contests=tuple(journal.contests), stop_reason=reason, winner=winner
    )
    journal.state(study)
    return study


def _refuse_all_failed(journal: "StudyJournal", name: str) -> None:
    """Refuse to name anything where no configuration has a time; the journal keeps why.

    Raises:
        MeasureError: all failed.
    """
    if any(trial.score_s < inf for trial in journal.trials):
        return
    first = journal.trials[0]
    journaled = f"; {journal.path} keeps the study" if journal.path else ""
    raise MeasureError(
        f"{name}: none of {len(journal.trials)} configurations has a time; {settings_text(first.settings)}: "
        f"{first.outcome}: {first.note}{journaled}"
    )


def _achievable(case: Case, device: "Target | None") -> tuple[float, float] | None:
    """Return the lower end of the achievable time and its centre; none where nothing predicts it."""
    from nearpeak.api.achievable_time import predict

    if device is None:
        return None
    try:
        prediction = predict(case, device)
    except NearpeakError:
        return None
    return prediction.low_s, prediction.time_s


def _duel(kernel: "TunedKernel", plan: TuningPlan) -> Callable[[Mapping[str, Setting], Mapping[str, Setting]], Any]:
    from nearpeak.api.measured_analysis import compare
    from nearpeak.measurement.timing.interleaved_rounds import Arm

    def duel(champion: Mapping[str, Setting], challenger: Mapping[str, Setting]) -> Any:
        left, right = (
            Arm(runner=kernel.runner_of(tuple(settings[p.name] for p in kernel.space.parameters)))
            for settings in (champion, challenger)
        )
        return compare(
            kernel.case, left, right, plan.timing, tolerance_ratio=plan.tolerance_ratio, budget_s=plan.pair_budget_s
        )

    return duel


def _fault(kernel: "TunedKernel", seed: int) -> Callable[[Mapping[str, Setting]], str]:
    """Return the function that validates a finalist by V0 to V12 on inputs that the search has not seen."""
    from nearpeak.case_tensors.size_limits import beyond_rounds
    from nearpeak.measurement.isolated_validation import validated_apart
    from nearpeak.measurement.outcomes import is_wrong

    cases = [case for case in kernel.checks or (kernel.case,) if not beyond_rounds(case)]

    def fault_of(settings: Mapping[str, Setting]) -> str:
        runner = kernel.runner_of(tuple(settings[p.name] for p in kernel.space.parameters))
        for case in cases if kernel.timing.validate else []:
            record, _ = validated_apart(case, runner, seed + 1, is_runner=True, limit_s=kernel.timing.limit_s)
            if is_wrong(record):
                return f"{record.status} in {', '.join(record.failed)}: {record.reason}"
        return ""

    return fault_of


def _objective_study(
    file: "SpaceFile", plan: TuningPlan, legal: "LegalSet", journal: "StudyJournal", progress: TuningProgress
) -> Study:
    """Return the study of a function with several objectives."""
    from nearpeak.tuning.legal_set import combination_count
    from nearpeak.tuning.objective_evaluation import evaluated
    from nearpeak.tuning.search_choice import SEARCHES, search_name
    from nearpeak.tuning.trial_loop import SearchLimits, search_trials

    space, names = file.space, file.objectives
    name = search_name(plan.search, len(names))

    def evaluate(configuration: Configuration, _: float) -> Trial:
        return evaluated(
            file.evaluate, space.named(configuration), names, plan.seed, limit_s=plan.timing.limit_s,
            memory_bytes=plan.timing.memory_bytes, thread_count=plan.timing.thread_count,
        )  # fmt: skip

    about = Study(
        space=space.name, subject=file.evaluate, runner="", search=name, seed=plan.seed, objectives=names, trials=(),
        combination_count=len(legal) if space.listed else combination_count(space), legal_count=len(legal),
        stop_reason="", default=None if space.default is None else space.named(space.default),
    )  # fmt: skip
    if journal.study is None:
        journal.state(about)
    progress.stage(_beginning(about, plan, len(journal.trials)))
    limits = SearchLimits(trial_count=plan.trial_count, spent_s=plan.spent_s, objectives=names)
    reason = search_trials(
        legal, SEARCHES[name](legal, plan.seed, len(names)), evaluate, limits, journal, progress=progress.trial
    )
    progress.stage(f"search ended, {reason}")
    return _ended(journal, about, reason)


def replay_search(
    path: Path, search: str = "auto", seed_count: int = 20, *, within_ratio: float = 0.05,
    most_count: int = 1000, least_gain_ratio: float = 0.0,
    progress: "Callable[[ReplayRun], None]" = lambda _: None,
) -> "ReplayStudy":  # fmt: skip
    """Return how a search does on a recorded space: evaluations until within the margin of the best, seed by seed.

    Args:
        least_gain_ratio: expected gain of the rest below which a run stops; 0 for runs that end at the first good one.

    Raises:
        SpecError: the file is no recorded space, or there is no such search.
    """
    from nearpeak.tuning.recorded_replay import replay
    from nearpeak.tuning.recorded_space import read_recorded_space

    recorded = read_recorded_space(path)
    return replay(
        recorded,
        search,
        range(seed_count),
        margin_ratio=within_ratio,
        most_count=most_count,
        least_gain_ratio=least_gain_ratio,
        progress=progress,
    )


def random_counts(study: "ReplayStudy") -> tuple[float, int]:
    """Return mean and median of the evaluations that random search needs on the same space, exactly."""
    from nearpeak.tuning.recorded_replay import random_count, random_median

    return random_count(study.legal_count, study.within_count), random_median(study.legal_count, study.within_count)
