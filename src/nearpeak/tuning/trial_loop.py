"""The loop of a search: propose, prove that it cannot win, or measure, and tell, until there is a reason to stop."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite

from nearpeak.core.tuning.space import Configuration
from nearpeak.core.tuning.study import FAILED, PRUNED, Trial
from nearpeak.tuning.legal_set import LegalSet
from nearpeak.tuning.remaining_gain import remaining_gain_ratio
from nearpeak.tuning.search_choice import Search
from nearpeak.tuning.study_journal import StudyJournal

Evaluate = Callable[[Configuration, float], Trial]
"""From a configuration and the best time until now, its trial; the position is the loop's to give."""
Bound = Callable[[Configuration], float]
"""Proved lower bound of a configuration's time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchLimits:
    """What ends a search."""

    trial_count: int
    """Most configurations that run; those that a bound excludes are free."""
    spent_s: float = inf
    """Wall time of all trials together."""
    target_s: float = 0.0
    """Time that is near enough to the achievable one; 0 where none is known."""
    refuted_s: float = 0.0
    """Time below which the achievable one is refuted, so that it ends nothing."""
    target_words: str = ""
    """What that time is."""
    least_gain_ratio: float = 0.0
    """Expected gain of all that is left below which the search ends; 0 never ends it."""
    objectives: tuple[str, ...] = ()
    """Names of several objectives; one time otherwise."""
    suffices: Callable[[Trial], bool] = lambda _: False
    """Whether a trial ends the search."""


def search_trials(
    legal: LegalSet, search: Search, evaluate: Evaluate, limits: SearchLimits, journal: StudyJournal, *,
    bound_s: Bound = lambda _: 0.0, progress: Callable[[Trial, float], None] = lambda *_: None,
) -> str:  # fmt: skip
    """Run trials, each kept in the journal, and return why the search ended.

    Trials that the journal holds are told to the search again and do not run. A stated default runs first.

    Args:
        progress: told each new trial, and the best time.
    """
    best_s, run_count, spent_s = inf, 0, 0.0
    waiting, seen_count, times_s = list(journal.trials), 0, list[float]()
    while seen_count < len(legal):
        reason = _end(run_count, spent_s, best_s, limits) or _end_of_gain(times_s, len(legal) - seen_count, limits)
        if reason:
            return reason
        default = legal.space.default
        index = legal.index_of(default) if default is not None and not seen_count else None
        index = search.propose() if index is None else index
        trial = waiting.pop(0) if waiting else None
        if trial is not None:
            where = f"{journal.path}: trial {trial.position}"
            known = legal.index_of(legal.space.configuration_of(trial.settings, where))
            index = index if known is None else known
        else:
            trial = _tried(legal, index, best_s, evaluate, bound_s, journal)
            journal.add(trial)
            progress(trial, min(best_s, trial.score_s))
        score_s = trial.bound_s if trial.outcome == PRUNED else trial.score_s
        several = [trial.values.get(name, inf) for name in limits.objectives]
        search.tell(index, *(several or [score_s]))
        best_s, spent_s = min(best_s, trial.score_s), spent_s + trial.spent_s
        run_count, seen_count = run_count + (trial.outcome != PRUNED), seen_count + 1
        times_s += [score_s] if trial.score_s < inf else []
        if limits.suffices(trial):
            return "a configuration suffices"
    return f"all {len(legal):,} legal configurations are tried or excluded"


def _end(run_count: int, spent_s: float, best_s: float, limits: SearchLimits) -> str:
    """Return why the search ends; empty while it goes on."""
    if limits.refuted_s <= best_s <= limits.target_s:
        return limits.target_words
    if run_count >= limits.trial_count:
        return f"the budget of {limits.trial_count:,} evaluations is spent"
    return f"the budget of {limits.spent_s:g} s is spent" if spent_s >= limits.spent_s else ""


def _end_of_gain(times_s: list[float], left_count: int, limits: SearchLimits) -> str:
    """Return why little is left to be gained; empty where that is not asked, not known or not so."""
    gain_ratio = remaining_gain_ratio(times_s, left_count) if limits.least_gain_ratio else None
    if gain_ratio is None or gain_ratio >= limits.least_gain_ratio:
        return ""
    least = f"{100 * limits.least_gain_ratio:g} %"
    return f"the {left_count:,} configurations left are expected to gain {100 * gain_ratio:.2g} %, less than {least}"


def _tried(
    legal: LegalSet, index: int, best_s: float, evaluate: Evaluate, bound_s: Bound, journal: StudyJournal
) -> Trial:
    """Return the trial of a configuration: excluded by its bound, or run."""
    configuration, position = legal.configuration(index), len(journal.trials) + 1
    settings, least_s = legal.space.named(configuration), bound_s(configuration)
    if isfinite(best_s) and least_s > best_s:
        note = f"its bound is {least_s / best_s:.2f} × the best time"
        return Trial(position=position, settings=settings, outcome=PRUNED, bound_s=least_s, note=note)
    failed = journal.begin(settings)
    if failed is not None:
        return failed
    trial = dataclasses.replace(evaluate(configuration, best_s), position=position, bound_s=least_s)
    if trial.score_s >= least_s:
        return trial
    note = f"its time of {trial.score_s:.4g} s is below its bound of {least_s:.4g} s: a timer, rule or figure is wrong"
    return dataclasses.replace(trial, outcome=FAILED, note=note)
