"""Devices of a trace by their busy time, and the pairing of those of two traces."""

from collections.abc import Sequence

import numpy as np

from nearpeak.core.traces.finding_report import TraceReport
from nearpeak.traces import Trace


def working_devices(trace: Trace) -> tuple[int, ...]:
    """Return the devices with work that takes time, most device time first."""
    rows = trace.device_rows()
    rows = rows[trace.end_ns[rows] > trace.start_ns[rows]]
    devices, places = np.unique(trace.device[rows], return_inverse=True)
    times = np.bincount(places.reshape(-1), weights=trace.duration_ns[rows].astype(float), minlength=len(devices))
    return tuple(int(devices[place]) for place in np.argsort(-times, kind="stable"))


Pair = tuple[TraceReport | None, TraceReport | None]
"""One device in baseline and candidate; none where only one of the two has it."""


def paired(baseline: Sequence[TraceReport], candidate: Sequence[TraceReport]) -> tuple[Pair, ...]:
    """Return the reports of two traces by device, in order of their numbers.

    Devices of one number are a pair. Where no number is in both, one of each is a pair too: runs of one process may see
    other devices. More cannot be told apart, and stay alone.
    """
    before, after = ({report.executed.device_number: report for report in side} for side in (baseline, candidate))
    pairs: dict[int | None, Pair] = {
        number: (before.get(number), after.get(number)) for number in [*before, *after]
    }  # fmt: skip
    if len(before) == len(after) == 1 and len(pairs) == 2:
        return ((next(iter(before.values())), next(iter(after.values()))),)
    return tuple(pairs[number] for number in sorted(pairs, key=lambda number: -1 if number is None else number))
