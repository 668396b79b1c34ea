"""Stream identity: a stream number is unique only within its process, device and context."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nearpeak.traces.timeline.trace_columns import MISSING, NO_ROW, Trace

Array = npt.NDArray[Any]
_DEVICE, _STREAM, _PROCESS, _CONTEXT = range(4)


class Lanes(NamedTuple):
    """Lanes of some events: work of one lane runs in order."""

    rows: Array
    """Rows of the events, ascending."""
    numbers: Array
    """Lane of each."""
    keys: tuple[tuple[int, int, int, int], ...]
    """Device, stream, process and context of each lane, `MISSING` where neither the event nor its call tells."""
    labels: tuple[str, ...]
    """What people call each lane; no two of one device are called alike."""

    def of(self, row: int) -> int:
        """Return the lane of one of the events."""
        return int(self.numbers[np.searchsorted(self.rows, row)])

    def beside(self, row: int, stream: int) -> int:
        """Return the lane of another stream of an event's process, device and context; NO_ROW where it has no event."""
        device, _, process, context = self.keys[self.of(row)]
        wanted = (device, stream, process, context)
        return self.keys.index(wanted) if wanted in self.keys else NO_ROW


def lanes_of(trace: Trace, rows: Array) -> Lanes:
    """Return the lanes of device events and synchronisations, in order of device and stream.

    The process is the event's own, or that of its call. Where neither is known it is that of the other events of the
    stream, if these have one only; likewise the context.

    Args:
        rows: ascending.
    """
    columns = [trace.device[rows], trace.stream[rows], _processes(trace, rows), trace.values("context", rows)]
    for column in (_DEVICE, _PROCESS, _CONTEXT):
        columns[column] = _filled(columns, column)
    numbers, first = _numbered(columns, len(rows))
    keys = tuple(tuple(int(column[place]) for column in columns) for place in first)
    order = sorted(range(len(keys)), key=lambda place: keys[place])
    rank = np.empty(len(keys), np.int64)
    rank[order] = np.arange(len(keys))
    sorted_keys = tuple(keys[place] for place in order)
    return Lanes(rows, rank[numbers] if len(rows) else numbers, sorted_keys, tuple(_labels(sorted_keys)))  # type: ignore[arg-type]


def _processes(trace: Trace, rows: Array) -> Array:
    own_processes, launch = trace.process[rows], trace.launch[rows]
    from_call = (own_processes == MISSING) & (launch != NO_ROW)
    if not from_call.any():
        return own_processes
    processes = own_processes.copy()
    processes[from_call] = trace.process[launch[from_call]]
    return processes


def _filled(columns: list[Array], which: int) -> Array:
    """Return a column with missing values filled in where all events of the same stream agree."""
    values = columns[which]
    silent = values == MISSING
    if not silent.any() or silent.all():
        return values
    known = values[~silent]
    if known.min() == known.max():
        return np.where(silent, known[0], values)
    others = [columns[index] for index in (_DEVICE, _STREAM) if index != which]
    numbers, _ = _numbered(others, len(values))
    filled_values = values.copy()
    for number in np.unique(numbers[silent]):
        choice = np.unique(values[~silent & (numbers == number)])
        if len(choice) == 1:
            filled_values[silent & (numbers == number)] = choice[0]
    return filled_values


def _numbered(columns: list[Array], count: int) -> tuple[Array, Array]:
    """Return a number for each combination of values, and the first position of each number."""
    numbers, first = np.zeros(count, np.int64), np.zeros(min(count, 1), np.int64)
    for column in columns:
        if not count or column.min() == column.max():  # most files have one device, one process, one context
            continue
        values, codes = np.unique(column, return_inverse=True)
        _, first, numbers = np.unique(numbers * len(values) + codes.reshape(-1), return_index=True, return_inverse=True)
    return numbers, first


def _labels(keys: tuple[Any, ...]) -> Iterator[str]:
    shared = Counter((key[_DEVICE], key[_STREAM]) for key in keys)
    for key in keys:
        label = f"stream {_shown(key[_STREAM])}"
        if shared[key[_DEVICE], key[_STREAM]] > 1:
            alike = [other for other in keys if other[:_PROCESS] == key[:_PROCESS]]
            words = {_PROCESS: "process", _CONTEXT: "context"}
            differ = [part for part in words if len({other[part] for other in alike}) > 1]
            label += " of " + ", ".join(f"{words[part]} {_shown(key[part])}" for part in differ)
        yield label


def _shown(value: int) -> str:
    return "?" if value == MISSING else str(value)
