"""Commits of a series with their launches, and the clock dependence of their times."""

import math
from collections.abc import Sequence
from itertools import groupby
from statistics import median
from typing import Any

from nearpeak.core.history.track import TrackPoint
from nearpeak.judgement.clock_adjustment import LEAST_STEP_RATIO, clock_share, clock_share_of_steps
from nearpeak.store import History


def points_of(history: History) -> tuple[TrackPoint, ...]:
    """Return a point for each commit, in order: its launches of all runs; a run of no commit is a point of its own."""
    columns = (
        history.shas, history.positions.tolist(), history.order_keys.tolist(), history.run_ids.tolist(),
        history.stack_ids.tolist(), history.device_ids.tolist(), history.median.tolist(), history.clock_hz.tolist(),
    )  # fmt: skip
    rows = (row for row in zip(*columns, strict=True) if not math.isnan(row[6]))
    return tuple(_point(list(part)) for _, part in groupby(rows, key=lambda row: row[0] or f"run {row[3]}"))


def _point(rows: Sequence[tuple[Any, ...]]) -> TrackPoint:
    _, _, _, run_ids, _, _, values, clocks = zip(*rows, strict=True)
    sha, position, order_key, run, stack, device, value, _ = rows[-1]
    return TrackPoint(
        sha=sha, position=position, order_key=order_key, run_id=run, stack_id=stack, device_id=device,
        value=value if len(rows) == 1 else median(values), values=values,
        clocks_hz=() if any(map(math.isnan, clocks)) else clocks, run_ids=run_ids,
    )  # fmt: skip


def clock_share_between(points: Sequence[TrackPoint]) -> float | None:
    """Return the clock dependence of the values; none where a clock is unknown, or the clock hardly moved.

    It is estimated from launches of one commit, or else from steps between commits.
    """
    clocks = [median(point.clocks_hz) for point in points if point.clocks_hz]
    if len(clocks) < len(points) or not clocks or min(clocks) <= 0 or max(clocks) / min(clocks) - 1 < LEAST_STEP_RATIO:
        return None
    share = clock_share([list(zip(point.values, point.clocks_hz, strict=True)) for point in points])
    return clock_share_of_steps([point.value for point in points], clocks) if share is None else share
