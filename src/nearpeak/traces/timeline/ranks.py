"""Skew between ranks: clocks aligned at common collectives, late ranks and waiting ranks."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nearpeak.core.traces.timeline import RankSkew, Skew
from nearpeak.core.traces.trace import EventKind
from nearpeak.errors import SpecError
from nearpeak.traces.timeline.device_time import Communication, class_of, timelines
from nearpeak.traces.timeline.trace_columns import Trace

Array = npt.NDArray[Any]
_LATE_SHARE = 0.5
"""A straggler is last at more than half of the collectives …"""
_WAIT_SHARE = 0.1
"""… and the others wait for it longer than this share of the time of the collectives."""


def skew_of(traces: Sequence[Trace]) -> Skew:
    """Return how ranks arrive at their collectives.

    Collectives are matched by their name and their place among those of that name. A collective ends on all ranks at
    about the same time: the median difference of the ends is the offset of a clock, what is left is its residual. A
    rank waits from its own arrival to that of the last; the rest of the collective is transfer.

    Raises:
        SpecError: fewer than two traces, two of one rank, or no collective that all have.
    """
    if len(traces) < 2:
        raise SpecError("ranks: one trace has no skew; give the traces of two or more ranks")
    stated = [trace.header.rank for trace in traces]
    if None in stated and any(rank is not None for rank in stated):
        silent = traces[stated.index(None)].header.source
        raise SpecError(f"ranks: {silent} does not state its rank, and others do; record all ranks alike")
    ranks = [place if rank is None else rank for place, rank in enumerate(stated)]
    if len(set(ranks)) < len(ranks):
        raise SpecError(f"ranks: two traces are of rank {next(trace for trace in ranks if ranks.count(trace) > 1)}")
    base = traces[0].header.base_ns
    start, end = _common(traces)
    shift = np.array([trace.header.base_ns - base for trace in traces], np.int64)
    raw = end + shift[:, None]
    offset = np.array([int(np.median(raw[0] - trace)) for trace in raw], np.int64)
    residual = [int(np.median(np.abs(raw[0] - trace - move))) for trace, move in zip(raw, offset, strict=True)]
    move = (shift + offset)[:, None]
    return _skew(traces, ranks, start + move, end + move, offset, residual)


def _common(traces: Sequence[Trace]) -> tuple[Array, Array]:
    """Return starts and ends of the collectives that all traces have, a row per rank, in order of the first rank."""
    tables = [_collectives(trace) for trace in traces]
    keys = [key for key in tables[0] if all(key in table for table in tables)]
    if not keys:
        raise SpecError("ranks: no collective is in all traces; record the same steps on all ranks")
    pairs = np.array([[table[key] for key in keys] for table in tables], np.int64)
    return pairs[:, :, 0], pairs[:, :, 1]


def _collectives(trace: Trace) -> dict[tuple[str, int], tuple[int, int]]:
    """Return start and end of each collective by name and place among those of that name."""
    rows = trace.rows(EventKind.KERNEL)
    rows = rows[class_of(trace, rows, Communication.ANY) == 1]
    seen: dict[str, int] = {}
    times_ns = {}
    devices = np.unique(trace.device[rows]).tolist()
    for row in rows.tolist():
        name = trace.text_of("collective", row) or trace.name_of(row)
        group = trace.text_of("group", row)
        key = f"{name} {group} {devices.index(trace.device[row])}"  # a process may drive several devices
        times_ns[key, seen.setdefault(key, 0)] = (int(trace.start_ns[row]), int(trace.end_ns[row]))
        seen[key] += 1
    return times_ns


def _skew(
    traces: Sequence[Trace], ranks: Sequence[int], start: Array, end: Array, offset: Array, residual: list[int]
) -> Skew:
    last = start.max(axis=0)
    wait = last - start
    transfer = np.maximum(end - last, 0)
    late = start.argmax(axis=0)
    counts = np.bincount(late, minlength=len(ranks))
    spread = last - start.min(axis=0)
    skews = [
        RankSkew(
            rank=rank,
            offset_ns=int(offset[place]),
            residual_ns=residual[place],
            wait_ns=int(wait[place].sum()),
            transfer_ns=int(transfer[place].sum()),
            last_count=int(counts[place]),
            busy_ns=sum(timeline.busy_ns for timeline in timelines(traces[place])),
        )
        for place, rank in enumerate(ranks)
    ]
    worst = int(counts.argmax())
    whole = int((end - start).sum())
    stands_out = counts[worst] > _LATE_SHARE * len(late) and wait.sum() > _WAIT_SHARE * max(whole, 1)
    beyond = int(np.median(spread)) > 2 * max(residual)
    return Skew(
        ranks=tuple(skews),
        collective_count=len(late),
        straggler=ranks[worst] if stands_out and beyond else None,
        spread_ns=int(np.median(spread)),
        note="" if beyond else "arrivals differ by less than twice the residual of the clocks: no rank can be named",
    )
