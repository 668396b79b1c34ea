"""Replay of a search on recorded spaces: how many configurations it needs, beside the exact figure of random search."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf

from nearpeak.core.tuning.replay import ReplayRun, ReplayStudy
from nearpeak.core.tuning.space import Configuration
from nearpeak.core.tuning.study import FAILED, STOPPED, TIMED, Trial
from nearpeak.tuning.legal_set import LegalSet, legal_set
from nearpeak.tuning.recorded_space import RecordedSpace, RecordedTimes
from nearpeak.tuning.search_choice import SEARCHES, Search, search_name
from nearpeak.tuning.staged_stop import stop_reason
from nearpeak.tuning.study_journal import StudyJournal
from nearpeak.tuning.trial_loop import SearchLimits, search_trials


def replay(
    recorded: RecordedSpace, search: str, seeds: range, *, margin_ratio: float = 0.05, most_count: int = 1000,
    least_gain_ratio: float = 0.0, progress: Callable[[ReplayRun], None] = lambda _: None,
) -> ReplayStudy:  # fmt: skip
    """Return how a search does on a recorded space: distinct configurations until one is within the margin of the best.

    Device time counts the calls that the stop rule makes; in full, every recorded call of the same configurations.

    Args:
        most_count: evaluations after which a run is given up.
        least_gain_ratio: expected gain of the rest below which a run stops; 0 for runs that end at the first good one.

    Raises:
        SpecError: there is no such search.
    """
    name, legal = search_name(search), legal_set(recorded.space)
    limits = SearchLimits(trial_count=min(most_count, len(legal)), least_gain_ratio=least_gain_ratio)
    wanted_s = (1 + margin_ratio) * recorded.best_s
    times_s = [times.time_s for times in recorded.times.values()]
    runs = []
    for seed in seeds:
        runs.append(_run(recorded, legal, SEARCHES[name](legal, seed, 1), seed, wanted_s, limits))
        progress(runs[-1])
    return ReplayStudy(
        space=recorded.space.name, search=name, margin_ratio=margin_ratio, legal_count=len(legal),
        failed_count=sum(times.time_s == inf for times in recorded.times.values()),
        within_count=recorded.count_within(margin_ratio), best_s=recorded.best_s, runs=tuple(runs),
        least_gain_ratio=least_gain_ratio,
        random_speed_ratio=statistics.fmean(random_best_ratio(times_s, run.run_count) for run in runs),
    )  # fmt: skip


def _run(
    recorded: RecordedSpace, legal: LegalSet, search: Search, seed: int, wanted_s: float, limits: SearchLimits
) -> ReplayRun:
    """Return one run, which ends at the first configuration whose recorded time is good enough, or as limits say."""

    def times_of(trial: Trial) -> RecordedTimes:
        return recorded.times[recorded.space.configuration_of(trial.settings, "replay")]

    journal = StudyJournal(None, None, {})
    if not limits.least_gain_ratio:
        limits = replace(limits, suffices=lambda trial: times_of(trial).time_s <= wanted_s)
    search_trials(
        legal, search, lambda configuration, best_s: recorded_trial(recorded, configuration, best_s), limits, journal
    )
    tried = [times_of(trial) for trial in journal.trials]
    return ReplayRun(
        seed=seed, run_count=len(tried), best_ratio=min(times.time_s for times in tried) / recorded.best_s,
        found_count=next((count for count, times in enumerate(tried, 1) if times.time_s <= wanted_s), None),
        device_s=sum(sum(trial.samples_s) for trial in journal.trials),
        full_device_s=sum(sum(times.samples_s) for times in tried),
    )  # fmt: skip


def recorded_trial(recorded: RecordedSpace, configuration: Configuration, best_s: float) -> Trial:
    """Return the trial that a measurement would give whose calls take the recorded times in their order."""
    times, settings = recorded.times[configuration], recorded.space.named(configuration)
    if not times.samples_s:
        return Trial(position=0, settings=settings, outcome=FAILED, note=times.note)
    samples: list[float] = []
    reason = None
    for sample_s in times.samples_s:
        samples.append(sample_s)
        reason = stop_reason(samples, best_s)
        if reason is not None:
            break
    outcome = STOPPED if reason and statistics.median(samples) > best_s else TIMED
    return Trial(
        position=0, settings=settings, outcome=outcome, time_s=statistics.median(samples), samples_s=tuple(samples),
        spent_s=sum(samples), note=reason or "",
    )  # fmt: skip


def random_count(legal_count: int, within_count: int) -> float:
    """Return the expected draws without replacement until one of `within_count` good ones among `legal_count` appears.

    >>> round(random_count(2442, 14), 1)
    162.9
    """
    return (legal_count + 1) / (within_count + 1)


def random_median(legal_count: int, within_count: int) -> int:
    """Return the median of those draws: the first n by which the chance C(N - k, n) / C(N, n) of none is at most half.

    >>> random_median(2442, 14)
    118
    """
    none_ratio, count = 1.0, 0
    while none_ratio > 0.5:
        none_ratio *= (legal_count - within_count - count) / (legal_count - count)
        count += 1
    return count


def random_best_ratio(times_s: Sequence[float], count: int) -> float:
    """Return the expectation of best over found time after `count` random draws without replacement.

    P(best found has rank i) = C(N - i, n - 1) / C(N, n), ranks from 1; failed configurations (infinite) give 0.

    >>> round(random_best_ratio([1.0, 2.0], 1), 3), random_best_ratio([1.0, 2.0], 2)
    (0.75, 1.0)
    """
    ordered, total_count, speed_ratio = sorted(times_s), len(times_s), 0.0
    chance = count / total_count
    for rank, time_s in enumerate(ordered[: total_count - count + 1], 1):
        speed_ratio += chance * ordered[0] / time_s
        chance *= (total_count - rank - count + 1) / max(total_count - rank, 1)
    return speed_ratio
