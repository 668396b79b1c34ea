"""Spans of host time with a known cause: data loading, tensor creation, code between compiled graphs."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nearpeak.core.traces.trace import EventKind
from nearpeak.traces import Trace

Array = npt.NDArray[Any]
LOADING = re.compile(r"DataLoader|dataloader|data_loader|_next_data|\bprefetch|read_batch|load_batch")
"""Ranges, operators and functions that load data."""
CREATION = re.compile(
    r"^aten::(tensor|scalar_tensor|full|zeros|ones|arange|eye|linspace|lift_fresh|new_(full|zeros|ones))$"
)
"""Operators that make tensors with values of their own."""
_COMPILED = re.compile(r"^Torch-Compiled Region|^CompiledFxGraph|^## Call CompiledFxGraph")


class Covers:
    """Coverage of host time spans by each known cause."""

    def __init__(self, trace: Trace, steps: Sequence[tuple[int, int]]) -> None:
        """Merge the spans of each cause."""
        spans = {
            "loading": _named(trace, LOADING, EventKind.HOST_RANGE, EventKind.HOST_OP, EventKind.HOST_FRAME),
            "creation": _outermost(trace, CREATION, steps),
            "between graphs": _between(_named(trace, _COMPILED, EventKind.HOST_RANGE, EventKind.HOST_OP), steps),
        }
        self._covers = {name: Cover(*span) for name, span in spans.items() if len(span[0])}

    def parts(self, begin: int, end: int) -> Iterator[tuple[str, int]]:
        """Yield the causes that cover a part of a span, with the nanoseconds each covers; never more than the span."""
        left = max(0, end - begin)
        for name, cover in self._covers.items():
            part = min(left, cover.inside(begin, end))
            if part > 0:
                left -= part
                yield name, part


class Cover:
    """A union of time spans."""

    def __init__(self, start: Array, end: Array) -> None:
        """Merge the spans."""
        order = np.argsort(start, kind="stable")
        start, end = start[order], np.maximum.accumulate(end[order])
        fresh = np.concatenate([[True], start[1:] > end[:-1]])
        self.start = start[fresh]
        self.end = np.concatenate([end[:-1][fresh[1:]], end[-1:]])
        self.whole = np.concatenate([[0], np.cumsum(self.end - self.start)])

    def inside(self, begin: int, end: int) -> int:
        """Return how many nanoseconds of a span are covered."""
        return self._before(end) - self._before(begin)

    def _before(self, time: int) -> int:
        place = int(np.searchsorted(self.start, time))
        if not place:
            return 0
        return int(self.whole[place - 1] + min(time, int(self.end[place - 1])) - self.start[place - 1])


def _named(trace: Trace, pattern: re.Pattern[str], *kinds: EventKind) -> tuple[Array, Array]:
    rows = trace.named_rows(pattern, *kinds)
    return trace.start_ns[rows], trace.end_ns[rows]


def _outermost(
    trace: Trace, pattern: re.Pattern[str], steps: Sequence[tuple[int, int]]
) -> tuple[Array, Array]:  # fmt: skip
    """Return the operators of this name that no other operator calls, and that every step asks for alike.

    Alike are calls of one operator with the same shapes and values, as far as these were recorded. What a step makes
    in a way of its own is no constant.
    """
    rows = trace.named_rows(pattern, EventKind.HOST_OP)
    matches = trace.matching_names(pattern)
    rows = rows[trace.outermost(rows) | matches[trace.name[trace.parent[rows]]]]
    rows = rows[_in_every_step(trace, rows, steps)]
    return trace.start_ns[rows], trace.end_ns[rows]


def _in_every_step(trace: Trace, rows: Array, steps: Sequence[tuple[int, int]]) -> Array:
    """Return which operators of the steps have one with the same name, shapes and values in each step."""
    step = np.searchsorted(np.array([begin for begin, _ in steps]), trace.start_ns[rows], side="right") - 1
    known = np.stack([trace.name[rows], trace.values("shapes", rows), trace.values("concrete", rows)])
    _, alike = np.unique(known, axis=1, return_inverse=True)
    pairs = np.unique(np.stack([alike.reshape(-1), step]), axis=1)
    count = np.bincount(pairs[0][pairs[1] >= 0], minlength=len(rows) + 1)
    in_every_step: Array = (step >= 0) & (count[alike.reshape(-1)] == len(steps))
    return in_every_step


def _between(regions: tuple[Array, Array], steps: Sequence[tuple[int, int]]) -> tuple[Array, Array]:
    """Return the spans between compiled regions of the same step."""
    start, end = regions
    if not len(start):
        return start, end
    merged = Cover(start, end)
    step = np.searchsorted(np.array([begin for begin, _ in steps]), merged.start, side="right")
    same = (step[1:] == step[:-1]) & (step[1:] > 0)
    return merged.end[:-1][same], merged.start[1:][same]
