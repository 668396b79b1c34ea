"""The steps of a trace: markers where it has them, else a range or an operator that comes back; warm-up left out."""

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from nearpeak.core.timeline import Step, Steps
from nearpeak.core.trace import EventKind
from nearpeak.trace import NO_ROW, Trace

Array = npt.NDArray[Any]
_MARKER = re.compile(r"ProfilerStep\s*#\s*(\d+)")
_SLOWER = 1.1
"""A first step that takes so many times the median of the others is warm-up."""
_LEAST = 3
"""Repetitions without which a range or an operator marks no step."""


def steps_of(trace: Trace) -> Steps:
    """Return the steps of the host; none where nothing comes back, with the reason."""
    for how, rows in (("marker", _markers(trace)), ("range", _ranges(trace)), ("operator", _operators(trace))):
        if len(rows) >= (1 if how == "marker" else _LEAST):
            return Steps(how=how, steps=_with_warm_up(trace, rows, how))
    return Steps(how="none", steps=(), note="nothing comes back: no marker, range or operator repeats")


def _markers(trace: Trace) -> Array:
    rows = trace.rows(EventKind.HOST_RANGE, EventKind.HOST_OP)
    table = trace.name_table(lambda text: bool(_MARKER.search(text)))
    return rows[table[trace.name[rows]]] if len(rows) else rows


def _ranges(trace: Trace) -> Array:
    """Return the outermost ranges of the name that covers most time and comes back."""
    rows = trace.rows(EventKind.HOST_RANGE)
    return _most(trace, rows[trace.parent[rows] == NO_ROW] if len(rows) else rows)


def _operators(trace: Trace) -> Array:
    """Return an operator without parent that occurs least often of those that repeat: once for each step."""
    rows = trace.rows(EventKind.HOST_OP)
    rows = rows[trace.parent[rows] == NO_ROW] if len(rows) else rows
    if not len(rows):
        return rows
    names, counts = np.unique(trace.name[rows], return_counts=True)
    often = counts >= _LEAST
    if not often.any():
        return rows[:0]
    count = counts[often].min()
    spread = (counts % count == 0).mean()  # a true step divides the counts of most operators
    if spread < 0.5:
        return rows[:0]
    first = names[often][counts[often] == count]
    chosen = min(first, key=lambda name: int(trace.start_ns[rows[trace.name[rows] == name][0]]))
    return rows[trace.name[rows] == chosen]


def _most(trace: Trace, rows: Array) -> Array:
    if not len(rows):
        return rows
    names, places, counts = np.unique(trace.name[rows], return_inverse=True, return_counts=True)
    covered = np.bincount(places, weights=trace.duration_ns[rows].astype(float)) * (counts >= _LEAST)
    return rows[places == covered.argmax()] if covered.max() > 0 else rows[:0]


def _with_warm_up(trace: Trace, rows: Array, how: str) -> tuple[Step, ...]:
    start = trace.start_ns[rows]
    end = trace.end_ns[rows] if how != "operator" else np.concatenate([start[1:], start[-1:]])
    if how == "operator":
        rows, start, end = rows[:-1], start[:-1], end[:-1]
    else:  # from one marker to the next is a step, also where something stands between them
        end = np.maximum(end, np.concatenate([start[1:], end[-1:]]))
    length = end - start
    found = []
    for index, row in enumerate(map(int, rows)):
        later = length[index + 1 :]
        warm = len(later) >= 2 and all(step.warm_up for step in found) and length[index] > _SLOWER * np.median(later)
        name = trace.name_of(row)
        number = _MARKER.search(name)
        found.append(
            Step(
                index=int(number[1]) if number else index, name=name, start_ns=int(start[index]), end_ns=int(end[index]),
                warm_up=bool(warm),
            )
        )  # fmt: skip
    return tuple(found)
