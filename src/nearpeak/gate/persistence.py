"""Persistence test of a slowdown: excursions of one run and recurring states are not attributed to a commit."""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from nearpeak.core.runs.paired_rounds import REGRESSION, Judgement

LEVEL_VALUES = 5
"""Values before an excursion whose median is the level that it leaves."""
LONGEST_VALUES = 12
"""What lasts longer and comes back was a change and its repair, no excursion."""
ALIKE_RATIO = 0.75
"""Part of a slowdown that an earlier excursion must reach to count as alike."""
STAY_RATIO = 0.5
"""Part of an excursion that its later values must keep."""
SEVERAL = 2
"""Runs, or commits in a row, that bear a slowdown out where excursions are of one run."""
FAR_RATIO = 1.5
"""A slowdown this many times as large as the largest excursion among MANY_VALUES is none."""
MANY_VALUES = 1000
Span = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """Whether a slowdown is more than an excursion of one run."""

    confirmed: bool
    """Whether consecutive commits, several runs, or its size confirm it."""
    text: str
    """Evidence, or the measurement that would provide it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryJudgement:
    """A commit against its baseline in history."""

    judgement: Judgement
    """The verdict at equal clocks where these are known, else on the values as they are."""
    plain: Judgement
    """The verdict on the values as they are."""
    clock_ratio: float | None = None
    """Clock of the judged commit over that of its baseline; none where one is unknown."""
    share_known: bool = True
    """Whether the clock dependence is known; else the verdict holds for none and for full dependence."""
    confirmation: Confirmation | None = None
    """Evidence for a regression; none for other verdicts."""
    revisions: tuple[str, ...] = ()
    """Commits that the baseline consists of, oldest first."""
    wanted_count: int = 1
    """Commits that the rule asks for."""
    strayed: str = ""
    """Commit before the judged one that was passed by, because it strays from the one before it; empty for none."""

    @property
    def fails(self) -> bool:
        """Say whether it is a confirmed regression."""
        bears = self.confirmation is not None and self.confirmation.confirmed
        return self.judgement.verdict == REGRESSION and bears


def excursions(values: Sequence[float], size: float) -> tuple[Span, ...]:
    """Return from where to where each excursion of at least `size` lasted, up or down, that went away by itself.

    Shapes: `values` [commits], logarithms.

    >>> excursions([0.0] * 6 + [0.05] + [0.0] * 6 + [0.04, 0.05] + [0.0] * 3, 0.04)
    ((6, 7), (13, 15))
    >>> excursions([0.0] * 6 + [0.05] * 20, 0.05)
    ()
    """
    return tuple(sorted({*_upwards(values, size), *_upwards([-value for value in values], size)}))


def _upwards(values: Sequence[float], size: float) -> Iterator[Span]:
    quiet: list[float] = []
    place = 0
    while place < len(values):
        level = statistics.median(quiet[-LEVEL_VALUES:]) if len(quiet) >= 2 else None
        if level is None or values[place] - level < size:
            quiet.append(values[place])
            place += 1
            continue
        stop = place + 1
        while stop < len(values) and values[stop] - level >= STAY_RATIO * size:
            stop += 1
        if stop == len(values) or stop - place > LONGEST_VALUES:
            quiet = []  # another level, or what is judged now
        else:
            yield place, stop
        place = stop


def largest_excursion(values: Sequence[float]) -> float:
    """Return how far a value strayed at most from the commits before it and from those after it, whichever is less.

    >>> round(largest_excursion([0.0, 0.0, 0.0, 0.05, 0.0, 0.0, 0.3, 0.3, 0.3]), 2)
    0.05
    """
    largest = 0.0
    for place in range(3, len(values) - 2):
        sides = (values[place - 3 : place], values[place + 1 : place + 4])
        largest = max(largest, min(abs(values[place] - statistics.median(side)) for side in sides))
    return largest


def confirmation(
    limit: float, runs: Sequence[float], beside: tuple[Sequence[float], Sequence[float]], history: Sequence[float],
    many_runs: Sequence[bool], far: float | None,
) -> Confirmation:  # fmt: skip
    """Return whether more than one run confirms a slowdown.

    Several commits in a row do, where each is beyond the limit, and no earlier excursion of their size lasted half as
    long; but not where such excursions of more than one commit came more than once. Several runs of the commit itself
    do, the median among them, where no such excursion lasted, or was seen by several runs: it was the machine's for
    longer than a run, and so may be this one. What is half as large again as any excursion of a thousand values does.

    Args:
        limit: logarithm beyond which a value is slower than the baseline, which is 0 here and below.
        runs: logarithm of the value of each run of the judged commit.
        beside: logarithms of the commits before, the nearest last, and after it, the nearest first.
        history: logarithms of the commits before the judged one.
        many_runs: whether each of them was measured by several runs.
        far: the largest excursion of the store; none where it has too few values to tell.
    """
    effect = max(limit, statistics.median(runs))
    group = [effect]  # with the neighbouring commits that show the slowdown, too
    for side in (beside[0][::-1], beside[1]):
        group += takewhile(lambda value: value >= limit, side)
    spans = excursions(history, ALIKE_RATIO * min(group))
    longest = max((stop - start for start, stop in spans), default=0)
    returning = sum(stop - start > 1 for start, stop in spans) > 1
    if len(group) >= max(SEVERAL, 2 * longest if longest > 1 else 0) and not returning:
        return Confirmation(confirmed=True, text=f"at {len(group)} commits in a row")
    shown = [value for value in runs if value >= limit]
    spans = excursions(history, ALIKE_RATIO * min((effect, *shown)))
    passing = all(stop - start == 1 and not many_runs[start] for start, stop in spans)
    if passing and len(shown) >= SEVERAL and 2 * len(shown) > len(runs):
        return Confirmation(confirmed=True, text=f"in {len(shown)} of {len(runs)} runs")
    if far is not None and effect >= FAR_RATIO * far:
        return Confirmation(confirmed=True, text="larger than anything that went away by itself")
    if passing:
        reason = "its runs disagree" if len(runs) >= SEVERAL else "one run alone shows it"
        return Confirmation(confirmed=False, text=f"{reason}: measure this revision again")
    return Confirmation(confirmed=False, text="as much came and went by itself before: measure both revisions in turns")
