"""Final comparisons: the best of a search against the configuration in use, in interleaved pairs of fresh processes."""

from collections.abc import Callable, Mapping, Sequence
from math import inf

from nearpeak.core.runs.paired_rounds import IMPROVEMENT, PairedComparison
from nearpeak.core.tuning.space import Setting
from nearpeak.core.tuning.study import TIMED, WRONG, Contest, Trial
from nearpeak.tuning.study_journal import StudyJournal

Settings = Mapping[str, Setting]
Duel = Callable[[Settings, Settings], PairedComparison]
"""From champion and challenger, their comparison."""


def winner_of(
    journal: StudyJournal, default: Settings | None, duel: Duel, fault_of: Callable[[Settings], str], count: int,
    progress: Callable[[Contest], None] = lambda _: None,
) -> Settings | None:  # fmt: skip
    """Return the configuration that wins; none where none is proved faster than the default, or none is right.

    The fastest of the search, in their order, each challenge the champion: at first the default, without one the first
    of them that is right. Who is faster in pairs leads from there. Contests are kept in the journal.

    Args:
        fault_of: returns why a configuration is wrong on fresh inputs; empty where it is right.
        count: most finalists.
    """
    finalists = [trial for trial in ranked(journal.trials) if trial.settings != default][:count]
    times_s = {_key(trial.settings): trial.score_s for trial in journal.trials}
    is_timed = default is not None and times_s.get(_key(default), inf) < inf
    waiting, champion = list(journal.contests), default if is_timed else None
    for trial in finalists:
        contest = waiting.pop(0) if waiting else None
        if contest is None:
            contest = _contest(champion, trial, times_s, duel, fault_of)
            journal.add_contest(contest)
            progress(contest)
        if contest.verdict == IMPROVEMENT:
            champion = trial.settings
    return None if champion == default else champion


def ranked(trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials that may win, fastest first: neither stopped nor excluded, wrong or failed."""
    return sorted((trial for trial in trials if trial.outcome == TIMED), key=lambda trial: trial.score_s)


def _contest(
    champion: Settings | None, trial: Trial, times_s: Mapping[object, float], duel: Duel,
    fault_of: Callable[[Settings], str],
) -> Contest:  # fmt: skip
    fault = fault_of(trial.settings)
    if fault:
        return Contest(champion=champion or {}, challenger=trial.settings, verdict=WRONG, time_ratio=None, note=fault)
    if champion is None:
        note = "the first that is right leads, as no default is stated"
        return Contest(champion={}, challenger=trial.settings, verdict=IMPROVEMENT, time_ratio=None, note=note)
    search_ratio = trial.score_s / times_s[_key(champion)]
    comparison = duel(champion, trial.settings)
    judgement = comparison.judgement
    if judgement is None:
        return Contest(
            champion=champion, challenger=trial.settings, verdict=comparison.outcome, time_ratio=None,
            search_ratio=search_ratio, note=comparison.note,
        )  # fmt: skip
    return Contest(
        champion=champion, challenger=trial.settings, verdict=judgement.verdict, time_ratio=judgement.time_ratio,
        low_ratio=judgement.low_ratio, high_ratio=judgement.high_ratio, search_ratio=search_ratio,
    )  # fmt: skip


def _key(settings: Settings) -> object:
    return tuple(sorted(settings.items(), key=lambda pair: pair[0]))
