"""Commits of a series with their launches, and how much of the clock shows in them."""

import math
from collections.abc import Sequence
from itertools import groupby
from statistics import median

from nearpeak.analyze.clocks import LEAST_STEP_RATIO, clock_share, clock_share_of_steps
from nearpeak.core.track import TrackPoint
from nearpeak.store import History


def points_of(history: History) -> tuple[TrackPoint, ...]:
    """Return a point for each commit, in order: its launches of all runs; a run of no commit is a point of its own."""
    rows = [row for row in range(len(history)) if not math.isnan(history.median[row])]
    keys = {row: history.shas[row] or f"run {history.run_ids[row]}" for row in rows}
    return tuple(_point(history, list(part)) for _, part in groupby(rows, key=keys.__getitem__))


def _point(history: History, rows: list[int]) -> TrackPoint:
    last = rows[-1]
    values = tuple(float(history.median[row]) for row in rows)
    clocks = tuple(float(history.clock_hz[row]) for row in rows)
    return TrackPoint(
        sha=history.shas[last], position=int(history.positions[last]), order_key=int(history.order_keys[last]),
        run_id=int(history.run_ids[last]), stack_id=int(history.stack_ids[last]),
        device_id=int(history.device_ids[last]), value=median(values), values=values,
        clocks_hz=() if any(map(math.isnan, clocks)) else clocks,
        run_ids=tuple(int(history.run_ids[row]) for row in rows),
    )  # fmt: skip


def clock_share_between(points: Sequence[TrackPoint]) -> float | None:
    """Return the part of the clock that shows in the values; none where a clock is unknown, or it hardly moved."""
    clocks = [median(one.clocks_hz) for one in points if one.clocks_hz]
    if len(clocks) < len(points) or not clocks or min(clocks) <= 0:
        return None
    return _share(points, [one.value for one in points], clocks)


def _share(points: Sequence[TrackPoint], values: Sequence[float], clocks: Sequence[float]) -> float | None:
    """Return the part of the clock that shows: out of launches of one commit, or else of steps between commits.

    Where the clock hardly moved over the history, there is nothing to take out.
    """
    if max(clocks) / min(clocks) - 1 < LEAST_STEP_RATIO:
        return None
    share = clock_share([list(zip(one.values, one.clocks_hz, strict=True)) for one in points])
    return clock_share_of_steps(values, clocks) if share is None else share
