"""Baselines from a series' history: the commits to compare a revision with, their clock, and the verdict."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean, median

from nearpeak.core.history.gate import GateRule
from nearpeak.core.history.stored_run import Metric
from nearpeak.core.history.track import TrackPoint
from nearpeak.core.runs.paired_rounds import REGRESSION, Judgement
from nearpeak.gate.persistence import MANY_VALUES, Confirmation, HistoryJudgement, confirmation, largest_excursion
from nearpeak.history.commit_points import clock_share_between
from nearpeak.judgement.newest_value_test import at_both, judged_against

HISTORY_VALUES = 60
"""Newest commits before the judged one for the noise estimate."""
CLOCK_RATIO = 0.001
"""Clocks that differ less than this explain nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A series at the judged revision with the history of its baseline."""

    own: tuple[TrackPoint, ...]
    """Commits of its branch."""
    base: tuple[TrackPoint, ...]
    """Commits of the branch of the baseline; the same where both are one."""
    sha: str
    """Judged revision."""
    metric: Metric
    """What the values are."""

    @property
    def before(self) -> tuple[TrackPoint, ...]:
        """Return the commits of the baseline's branch before the judged one; of another branch, all."""
        place = next((place for place, point in enumerate(self.base) if point.sha == self.sha), len(self.base))
        return self.base[max(0, place - HISTORY_VALUES) : place]


def far_of(lines: Sequence[Line]) -> float | None:
    """Return the largest excursion that went away by itself; none where there are too few values to tell."""
    values = [_values(line, line.before, 0.0) for line in lines]
    if sum(map(len, values)) < MANY_VALUES:
        return None
    return max(map(largest_excursion, values))


def judged_in_history(rule: GateRule, line: Line, tag: str, far: float | None = None) -> HistoryJudgement | None:
    """Return the verdict of a rule on a series; none where its baseline holds no value, or nothing tells the noise.

    Args:
        tag: commit that the rule's `tag` names.
        far: largest excursion in the store; see `far_of`.
    """
    mine = next((point for point in line.own if point.sha == line.sha), None)
    before = line.before
    chosen, lag = _chosen(rule, line, tag)
    if mine is None or not chosen:
        return None
    plain = _judgement(rule, line, mine, chosen, before, lag, 0.0)
    if plain is None:
        return None
    usual = _usual(chosen)
    clock_ratio = median(mine.clocks_hz) / usual if mine.clocks_hz and usual else None
    shares = _shares(line, mine, clock_ratio)
    judgements = [_judgement(rule, line, mine, chosen, before, lag, share) or plain for share in shares]
    judgement = judgements[0] if len(judgements) == 1 else at_both(judgements[0], judgements[-1])
    borne = None
    if judgement.verdict == REGRESSION:
        borne = _confirmation(line, mine, chosen, judgement, fmean(shares), far)
    return HistoryJudgement(
        judgement=judgement, plain=plain, clock_ratio=clock_ratio, share_known=len(shares) == 1, confirmation=borne,
        revisions=tuple(point.sha for point in chosen), wanted_count=max(1, rule.window_count),
        strayed=before[-1].sha if rule.baseline == "previous" and lag > 1 else "",
    )  # fmt: skip


def _chosen(rule: GateRule, line: Line, tag: str) -> tuple[Sequence[TrackPoint], int]:
    """Return the commits of a rule's baseline, and the distance of the newest one to the judged commit.

    A single run of one commit may be an excursion: the previous commit is passed by where it strays from the one before
    it, and a tag is taken with its two neighbours, of whose median one excursion or one change does not matter.
    """
    before = line.before
    if rule.baseline == "rolling":
        return before[-max(1, rule.window_count) :], 1
    if rule.baseline == "previous":
        values, limit = _values(line, before[-2:], 0.0), math.log1p(rule.tolerance_ratio)
        strayed = len(values) > 1 and len(set(before[-1].run_ids)) == 1 and abs(values[1] - values[0]) >= limit
        return (before[-2:-1], 2) if strayed else (before[-1:], 1)
    place = next((place for place, point in enumerate(line.base) if point.sha == tag), None)
    if place is None:
        return (), 1
    tagged = line.base[place : place + 1]
    lag = max(1, len([point for point in before if point.order_key >= tagged[0].order_key]))
    if len(set(tagged[0].run_ids)) > 1 or lag == 1 or not place:
        return tagged, lag
    return line.base[place - 1 : place + 2], lag - 1


def _judgement(
    rule: GateRule, line: Line, mine: TrackPoint, chosen: Sequence[TrackPoint], before: Sequence[TrackPoint],
    lag: int, share: float,
) -> Judgement | None:  # fmt: skip
    usual = _usual(chosen)
    taken = [math.exp(log) for log in _launches(line, mine, share, usual)]
    values = [math.exp(log) for log in _values(line, before, share, usual)]
    few = len(chosen) == 1 and len(before) < 5
    baseline = _launches(line, chosen[0], share, usual) if few else _values(line, chosen, share, usual)
    return judged_against(taken, [math.exp(log) for log in baseline], values, rule.tolerance_ratio, lag=lag)


def _confirmation(
    line: Line, mine: TrackPoint, chosen: Sequence[TrackPoint], judgement: Judgement, share: float,
    far: float | None,
) -> Confirmation:  # fmt: skip
    usual, before = _usual(chosen), line.before
    place = line.own.index(mine)
    runs = [
        median(value for _, value in part)
        for _, part in groupby(zip(mine.run_ids, _launches(line, mine, share, usual), strict=True), key=lambda x: x[0])
    ]
    level = median(_values(line, chosen, share, usual))
    sides = [_values(line, part, share, usual) for part in (line.own[:place], line.own[place + 1 :])]
    limit = max(math.log1p(judgement.tolerance_ratio), math.log(judgement.time_ratio / judgement.low_ratio))
    return confirmation(
        limit, _over(runs, level), (_over(sides[0], level), _over(sides[1], level)),
        _values(line, before, share, usual), [len(set(point.run_ids)) > 1 for point in before], far,
    )  # fmt: skip


def _over(values: Sequence[float], level: float) -> list[float]:
    return [value - level for value in values]


def _usual(chosen: Sequence[TrackPoint]) -> float | None:
    """Return the clock of the baseline; none where one is unknown."""
    clocks = [median(point.clocks_hz) for point in chosen if point.clocks_hz]
    return median(clocks) if len(clocks) == len(chosen) else None


def _shares(line: Line, mine: TrackPoint, clock_ratio: float | None) -> tuple[float, ...]:
    """Return the clock dependence of the time: one value, or the two ends of its possible range."""
    if clock_ratio is None or line.metric.kind != "time":
        return (0.0,)
    share = clock_share_between((*line.before, mine))
    if share is not None:
        return (share,)
    return (0.0,) if abs(math.log(clock_ratio)) < CLOCK_RATIO else (0.0, 1.0)


def _values(line: Line, points: Sequence[TrackPoint], share: float, usual: float | None = None) -> list[float]:
    """Return the logarithm of a value for each commit, at the usual clock; more is worse."""
    return [median(_launches(line, point, share, usual)) for point in points]


def _launches(line: Line, point: TrackPoint, share: float, usual: float | None) -> list[float]:
    sign = -1.0 if line.metric.direction == "higher" else 1.0  # less is worse: the inverse is a time
    logs = [sign * math.log(value) if value > 0 else math.nan for value in point.values]
    if not share or usual is None or not point.clocks_hz:
        return logs
    return [value + share * math.log(clock / usual) for value, clock in zip(logs, point.clocks_hz, strict=True)]
