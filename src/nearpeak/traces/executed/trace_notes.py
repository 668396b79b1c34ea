"""Notes of a trace: what a reader must know before its figures, as which part of the file they are of."""

from collections.abc import Iterator, Sequence

import numpy as np

from nearpeak.core.traces.executed_run import ExecutedOperator
from nearpeak.core.traces.trace import END, READ_AS_WORK
from nearpeak.traces import MISSING, Trace
from nearpeak.traces.executed.step_sample import Sample
from nearpeak.traces.executed.trace_devices import working_devices
from nearpeak.traces.timeline.device_time import timelines
from nearpeak.units import one_or_several, show

_TOLD_FIRST = ("no times", "statistics only", "kernels inside", "copies only")
"""How those begin of what a file lacks that change what the figures mean."""
_FASTER = 0.95
"""Measured time over bound below which an operator counts as faster: clocks and timers differ by less."""
_WHOLE_RATIO = 0.9
"""Part of the device's busy time that must be looked into for the rest to go without a word."""


def cut_of(trace: Trace) -> str | None:
    """Return where a file is cut off; none where it is whole."""
    losses = [loss for loss in trace.header.losses if loss.kind.startswith(END) and loss.what == "dropped"]
    return losses[-1].example if losses else None


def notes_of(
    trace: Trace, device: int, windows: Sequence[tuple[int, int]], sample: Sample, steps_note: str
) -> Iterator[str]:
    """Yield what a reader must know of the file and of the part of it that the figures are of."""
    if (cut := cut_of(trace)) is not None:
        yield f"the file is cut off ({cut}): events after the cut are missing from all figures"
    yield from (lack for lack in trace.header.lacks if lack.startswith(_TOLD_FIRST))
    yield from (loss.line() for loss in trace.header.losses if _changes_figures(loss.what, loss.kind))
    yield from _of_devices(trace, device)
    yield from sample.notes
    yield from _of_windows(trace, device, windows)
    yield from _of_clocks(windows, sample)
    if steps_note:
        yield steps_note


def _changes_figures(what: str, kind: str) -> bool:
    """Say whether a loss changes what figures of the device mean."""
    return kind.endswith(READ_AS_WORK) or "stream" in kind or (what == "dropped" and kind.startswith("event"))


def _of_devices(trace: Trace, device: int) -> Iterator[str]:
    devices = working_devices(trace)
    if len(devices) > 1:
        lines = timelines(trace)
        recorded_ns = max(line.end_ns for line in lines) - min(line.start_ns for line in lines)
        busy = {
            MISSING if line.device is None else line.device: f"{_device_name(line.device)}, busy "
            f"{line.busy_ns / max(1, recorded_ns):.0%}" for line in lines
        }  # fmt: skip
        others = "; ".join(text for number, text in busy.items() if number != device)
        which = "the busiest of" if devices[0] == device else "one of"
        yield f"{busy[device]} of the recorded time, is looked into, {which} {len(busy)}; also recorded: {others}"
    described = trace.header.devices
    if described and device not in {MISSING, *(entry.index for entry in described)}:
        listed = ", ".join(f"{entry.index}" for entry in described)
        same = trace.header.device(device)
        taken = f"all are {same.name or 'alike'}, which stands for it" if same else "they differ, so it has no name"
        yield f"device {device} is not among those that the file describes ({listed}): {taken}"


def _device_name(number: int | None) -> str:
    return "an unnamed device" if number is None else f"device {number}"


def _of_clocks(windows: Sequence[tuple[int, int]], sample: Sample) -> Iterator[str]:
    """Yield that work ends longer after the last step than all steps take."""
    (begin, _), (_, end) = sample.spans[0], sample.spans[-1]
    if (late_ns := windows[-1][1] - end) > end - begin:
        yield (
            f"the last work of these steps ends {show(late_ns * 1e-9, 's')} after their marks: the clocks of host and"
            " device may differ"
        )


def of_bounds(operators: Sequence[ExecutedOperator]) -> Iterator[str]:
    """Yield how many operators were faster than their bound, which nothing on the device can be."""
    ratios = {
        operator: operator.bound_s / operator.measured_s
        for operator in operators
        if operator.bound_s and operator.measured_s and operator.measured_s < _FASTER * operator.bound_s
    }
    if ratios:
        fastest = max(ratios, key=lambda operator: ratios[operator])
        yield (
            f"{one_or_several(len(ratios), 'operator was', 'operators were')} faster than the bound, at most"
            f" {ratios[fastest]:.3g} times ({fastest.label}): the device, its clocks or the shapes are not those"
            " recorded, or the operands were cached"
        )


def _of_windows(trace: Trace, device: int, windows: Sequence[tuple[int, int]]) -> Iterator[str]:
    """Yield how much of the recorded work is looked into, where that is not nearly all."""
    rows = trace.device_rows()
    rows = rows[trace.device[rows] == device]
    start, end = trace.start_ns[rows], trace.end_ns[rows]
    inside = sum(int(np.maximum(0, np.minimum(end, last) - np.maximum(start, first)).sum()) for first, last in windows)
    recorded_ns = int(end.max()) - int(start.min())
    if inside < _WHOLE_RATIO * int((end - start).sum()):
        looked_ns = sum(last - first for first, last in windows)
        yield (
            f"looked into: {show(looked_ns * 1e-9, 's')} of the {show(recorded_ns * 1e-9, 's')} in which the device "
            f"worked, {inside / int((end - start).sum()):.0%} of its work; the rest lies outside the steps looked into"
        )
