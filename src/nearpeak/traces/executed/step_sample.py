"""Steps that are looked into: all of them, or a sample over the whole trace where their calls are too many."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from nearpeak.core.traces.timeline import Step
from nearpeak.core.traces.trace import EventKind
from nearpeak.traces import NO_ROW, Trace
from nearpeak.traces.reading.stream_order import EARLY
from nearpeak.units import show

MOST_ITEMS = 20_000
"""Calls looked into, but for those of a single step, or of the three steps that a comparison of steps needs."""
_LEAST_STEPS = 3
_OUTLIER = 1.5
"""Length of a step over the median beyond which it is named."""
Span = tuple[int, int]


class Sample(NamedTuple):
    """The steps looked into, and the lengths of all."""

    stretches: tuple[tuple[Span, ...], ...]
    """Begin and end of each step looked into; steps of one stretch follow each other."""
    step_ns: tuple[int, ...]
    """Length of every steady step by its mark."""
    notes: tuple[str, ...]
    """What was left out and why, and which steps take much longer than the others."""

    @property
    def spans(self) -> tuple[Span, ...]:
        """Return the steps looked into."""
        return tuple(span for stretch in self.stretches for span in stretch)


def sample_of(trace: Trace, steps: Sequence[Step]) -> Sample:
    """Return the steps to look into; where there are none, the whole trace as one.

    Of too many, the trace is cut into equal parts, and of each the step of most usual length is taken.
    """
    if not steps:
        work = trace.device_rows()
        both = np.concatenate([trace.rows(EventKind.HOST_API), work])
        other_clock = any(loss.kind.startswith(EARLY) for loss in trace.header.losses)
        if other_clock and (trace.launch[work] == NO_ROW).all():
            both = work
        whole = (int(trace.start_ns[both].min()), int(trace.end_ns[both].max()))
        return Sample(((whole,),), (whole[1] - whole[0],), ())
    # From one marker to the next is a step, also where something stands between them, unless a mark is missing there.
    ahead = [after.index - step.index for step, after in pairwise(steps)]
    usual = float(np.median(ahead)) if ahead else 0.0
    spans = [
        (step.start_ns, max(step.end_ns, after.start_ns) if after.index - step.index <= usual else step.end_ns)
        for step, after in pairwise(steps)
    ] + [(steps[-1].start_ns, steps[-1].end_ns)]
    if len(spans) > 1 and spans[-1][0] == spans[-1][1]:  # a mark without length ends the step before it
        spans, steps = spans[:-1], steps[:-1]
    lengths = np.array([end - start for start, end in spans])
    counts = _call_counts(trace, spans)
    chosen = _chosen(lengths, counts)
    breaks = [
        0,
        *(place + 1 for place, (a, b) in enumerate(pairwise(chosen)) if b > a + 1 or spans[a][1] < spans[b][0]),
        len(chosen),
    ]
    stretches = tuple(tuple(spans[number] for number in chosen[a:b]) for a, b in pairwise(breaks))
    return Sample(stretches, tuple(lengths.tolist()), tuple(_notes(steps, lengths, counts, len(chosen))))


def _call_counts(trace: Trace, spans: Sequence[Span]) -> list[int]:
    rows = trace.rows(EventKind.HOST_API)
    calls = np.sort(trace.start_ns[rows if len(rows) else trace.device_rows()])
    return [int(np.searchsorted(calls, end) - np.searchsorted(calls, start)) for start, end in spans]


def _chosen(lengths: np.ndarray, counts: Sequence[int]) -> list[int]:
    """Return the numbers of the steps to look into, ascending."""
    number, total = len(lengths), sum(counts)
    if total <= MOST_ITEMS:
        return list(range(number))
    size = int(MOST_ITEMS * number / total)
    if _LEAST_STEPS * max(counts) <= 2 * MOST_ITEMS:
        size = max(size, _LEAST_STEPS)
    parts = np.array_split(np.arange(number), min(number, max(1, size)))
    return [int(part[np.abs(lengths[part] - np.median(lengths[part])).argmin()]) for part in parts]


def _notes(steps: Sequence[Step], lengths: np.ndarray, counts: Sequence[int], chosen_count: int) -> Iterator[str]:
    shown = [show(float(value) * 1e-9, "s") for value in (lengths.mean(), lengths.min(), lengths.max())]
    if chosen_count < len(steps):
        yield (
            f"{chosen_count} of {len(steps)} steps are looked into, spread over the trace: all {sum(counts):,} calls "
            f"are too many to replay; by the marks a step takes {shown[0]} on average ({shown[1]} to {shown[2]})"
        )
    usual = float(np.median(lengths))
    slow = np.flatnonzero(lengths > _OUTLIER * usual)
    if len(slow) and len(steps) > 2:
        worst = int(lengths.argmax())
        count = f"{len(slow)} of {len(steps)} steps"
        yield (
            f"{count} {'take' if len(slow) > 1 else 'takes'} more than {_OUTLIER} times the median of "
            f"{show(usual * 1e-9, 's')}: {steps[worst].name} takes {shown[2]}"
        )
