"""Iterations of a trace: from markers, else from repetition; long leading steps are warm-up."""

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from nearpeak.core.traces.timeline import Step, Steps
from nearpeak.core.traces.trace import DEVICE_KINDS, EventKind
from nearpeak.traces.timeline.trace_columns import NO_ROW, Trace

Array = npt.NDArray[Any]
_MARKER = re.compile(r"^ProfilerStep#(\d+)$")
_RANGE = re.compile(r"(?:^|[^A-Za-z])(?:step|iter|iteration|batch|epoch_step)s?[ _#:=/-]*(\d+)\b", re.IGNORECASE)
_RUN = "model_run"
"""What onnxruntime calls a run."""
LONGER = 1.25
"""Leading steps that take this much longer than the median of the others are warm-up."""
_SAME = 0.8
"""Share of equal distances from which on an operator counts as periodic."""
_LEAST = 3


def steps_of(trace: Trace) -> Steps:
    """Return the iterations of a trace.

    In this order: marks of the PyTorch profiler; marked ranges whose names count; runs of a session of onnxruntime;
    the operator, or else the kernel, that comes back at equal distances, the rarest of them.
    """
    for how, pattern in (("marker", _MARKER), ("range", _RANGE)):
        if candidates := _marked(trace, pattern):
            return Steps(how=how, steps=_warmed(candidates))
    if candidates := _runs(trace):
        return Steps(how="range", steps=_warmed(candidates))
    for how, kinds in (("operator", (EventKind.HOST_OP,)), ("kernel", DEVICE_KINDS)):
        rows = trace.rows(*kinds)
        if how == "operator":
            rows = rows[trace.outermost(rows)]
        candidates = _periodic(trace, rows)
        steps = _warmed(candidates)
        if candidates and _covers(trace, candidates) and _even(steps):
            return Steps(how=how, steps=steps, note="found by repetition; nothing marks the steps")
    return Steps(how="none", steps=(), note="no marks, and nothing repeats at equal distances at least three times")


def _marked(trace: Trace, pattern: re.Pattern[str]) -> list[Step]:
    """Return steps of marked ranges, on one thread and not inside each other."""
    steps: list[Step] = []
    for row in trace.named_rows(pattern, EventKind.HOST_RANGE).tolist():
        match = pattern.search(trace.name_of(row))
        if match and (not steps or trace.start_ns[row] >= steps[-1].end_ns) and len(match[1]) < 18:
            steps.append(
                Step(
                    index=int(match[1]),
                    name=trace.name_of(row),
                    start_ns=int(trace.start_ns[row]),
                    end_ns=int(trace.end_ns[row]),
                    warm_up=False,
                )
            )
    return steps


def _runs(trace: Trace) -> list[Step]:
    """Return the runs of a session of onnxruntime, numbered; none where some overlap, as several threads' do."""
    rows = np.flatnonzero(trace.of_kind(EventKind.HOST_RANGE) & trace.where(lambda name: name == _RUN))
    if (trace.start_ns[rows[1:]] < trace.end_ns[rows[:-1]]).any():
        return []
    return [
        Step(index=place, name=_RUN, start_ns=int(trace.start_ns[row]), end_ns=int(trace.end_ns[row]), warm_up=False)
        for place, row in enumerate(rows.tolist())
    ]


def _periodic(trace: Trace, rows: Array) -> list[Step]:
    """Return steps that begin with the rarest name which comes at equal distances."""
    names = trace.name[rows]
    if len(rows) < 2 * _LEAST:
        return []
    order = np.argsort(names, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(names[order])) + 1)
    best: tuple[int, int, Array] | None = None
    for places in parts:
        if len(places) < _LEAST:
            continue
        distance = np.diff(places)
        usual = int(np.median(distance))
        longer = best is None or (usual, -int(places[0])) > best[:2]
        if longer and usual > 1 and (distance == usual).mean() >= _SAME and _alike(names, places, usual):
            best = (usual, -int(places[0]), places)
    if best is None:
        return []
    starts = rows[best[2]]
    last = min(int(best[2][-1]) + best[0] - 1, len(rows) - 1)
    ends = [*trace.start_ns[starts[1:]].tolist(), int(trace.end_ns[rows[best[2][-1] : last + 1]].max())]
    name = trace.name_of(int(starts[0]))
    return [
        Step(index=place, name=name, start_ns=int(start), end_ns=int(end), warm_up=False)
        for place, (start, end) in enumerate(zip(trace.start_ns[starts].tolist(), ends, strict=True))
    ]


def _covers(trace: Trace, steps: list[Step]) -> bool:
    """Say whether most of the time of kernels belongs to the steps: a loop that only prepares is no iteration."""
    rows = trace.rows(EventKind.KERNEL)
    call = trace.launch[rows]
    moment = np.where(call != NO_ROW, trace.start_ns[call], trace.start_ns[rows])
    inside = (moment >= steps[0].start_ns) & (moment < steps[-1].end_ns)
    length = trace.duration_ns[rows]
    return not len(rows) or int(length[inside].sum()) * 2 >= int(length.sum())


def _even(steps: tuple[Step, ...]) -> bool:
    """Say whether most steps take about as long as the median one, as iterations do."""
    lengths = np.array([step.end_ns - step.start_ns for step in steps if not step.warm_up])
    return len(lengths) >= _LEAST - 1 and bool(
        (np.abs(lengths - np.median(lengths)) <= np.median(lengths) / 2).mean() >= _SAME
    )


def _alike(names: Array, places: Array, usual: int) -> bool:
    """Say whether what follows each start is the same sequence, as steps are and single operators are not."""
    whole = places[places + usual <= len(names)]
    if len(whole) < _LEAST - 1:
        return False
    table = names[whole[:, None] + np.arange(usual)]
    return bool((table[1:] == table[:-1]).mean() >= _SAME)


def _warmed(steps: list[Step]) -> tuple[Step, ...]:
    """Return the steps with leading long ones called warm-up, as long as at least one remains."""
    lengths = [step.end_ns - step.start_ns for step in steps]
    count = 0
    while count + 1 < len(steps) and lengths[count] > LONGER * float(np.median(lengths[count + 1 :])):
        count += 1
    return tuple(
        Step(
            index=iteration.index,
            name=iteration.name,
            start_ns=iteration.start_ns,
            end_ns=iteration.end_ns,
            warm_up=place < count,
        )
        for place, iteration in enumerate(steps)
    )
