"""Replay of a search on recorded spaces: how many configurations it needs, beside the exact figure of random search."""

import math
import statistics
from collections.abc import Callable
from math import inf

from nearpeak.core.tuning.replay import ReplayRun, ReplayStudy
from nearpeak.core.tuning.space import Configuration
from nearpeak.core.tuning.study import FAILED, STOPPED, TIMED, Trial
from nearpeak.tuning.legal_set import LegalSet, legal_set
from nearpeak.tuning.recorded_space import RecordedSpace, RecordedTimes
from nearpeak.tuning.search_choice import SEARCHES, search_name
from nearpeak.tuning.staged_stop import stop_reason
from nearpeak.tuning.study_journal import StudyJournal
from nearpeak.tuning.trial_loop import SearchLimits, search_trials


def replay(
    recorded: RecordedSpace, search: str, seeds: range, *, margin_ratio: float = 0.05, most_count: int = 1000,
    progress: Callable[[ReplayRun], None] = lambda _: None,
) -> ReplayStudy:  # fmt: skip
    """Return how a search does on a recorded space: distinct configurations until one is within the margin of the best.

    Device time counts the calls that the stop rule makes; in full, every recorded call of the same configurations.

    Args:
        most_count: evaluations after which a run is given up.

    Raises:
        SpecError: there is no such search.
    """
    name, legal = search_name(search), legal_set(recorded.space)
    runs = []
    for seed in seeds:
        runs.append(_run(recorded, legal, name, seed, (1 + margin_ratio) * recorded.best_s, most_count))
        progress(runs[-1])
    return ReplayStudy(
        space=recorded.space.name, search=name, margin_ratio=margin_ratio, legal_count=len(legal),
        failed_count=sum(times.time_s == inf for times in recorded.times.values()),
        within_count=recorded.count_within(margin_ratio), best_s=recorded.best_s, runs=tuple(runs),
    )  # fmt: skip


def _run(recorded: RecordedSpace, legal: LegalSet, name: str, seed: int, wanted_s: float, most_count: int) -> ReplayRun:
    """Return one run, which ends at the first configuration whose recorded time is good enough."""

    def times_of(trial: Trial) -> RecordedTimes:
        return recorded.times[recorded.space.configuration_of(trial.settings, "replay")]

    journal = StudyJournal(None, None, {})
    limits = SearchLimits(
        trial_count=min(most_count, len(legal)), suffices=lambda trial: times_of(trial).time_s <= wanted_s
    )
    search_trials(
        legal, SEARCHES[name](legal, seed, 1),
        lambda configuration, best_s: recorded_trial(recorded, configuration, best_s), limits, journal,
    )  # fmt: skip
    tried = [times_of(trial) for trial in journal.trials]
    return ReplayRun(
        seed=seed, found_count=len(tried) if tried[-1].time_s <= wanted_s else None, run_count=len(tried),
        best_ratio=min(times.time_s for times in tried) / recorded.best_s,
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


def random_best_ratio(times_s: list[float], count: int) -> float:
    """Return the expectation of best over found time after `count` random draws without replacement.

    P(best found has rank i) = C(N - i, n - 1) / C(N, n), ranks from 1; failed configurations (infinite) give 0.

    >>> round(random_best_ratio([1.0, 2.0], 1), 3), random_best_ratio([1.0, 2.0], 2)
    (0.75, 1.0)
    """
    ordered = sorted(times_s)
    total = math.comb(len(ordered), count)
    chances = (math.comb(len(ordered) - rank, count - 1) / total for rank in range(1, len(ordered) - count + 2))
    return sum(chance * ordered[0] / time_s for chance, time_s in zip(chances, ordered, strict=False))
