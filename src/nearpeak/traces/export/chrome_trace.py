"""Chrome JSON export of a trace: exact decimal microseconds, one track per stream, extra tracks for overlaps."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from nearpeak.core.traces.trace import DEVICE_KINDS, EventKind
from nearpeak.traces.timeline.lanes import Lanes, lanes_of
from nearpeak.traces.timeline.trace_columns import MISSING, Trace

Array = npt.NDArray[Any]
_DEVICE = (*DEVICE_KINDS, EventKind.SYNC, EventKind.DEVICE_RANGE)


def write_chrome(trace: Trace, path: Path) -> None:
    """Write the events of a trace as a file that viewers of Chrome traces read, and that reads back to the same events.

    Slices of one track nest: a slice that crosses another goes to a track beside it. Fields are under their own names.
    """
    with path.open("w", encoding="utf-8") as file:
        _write(trace, file)


def _write(trace: Trace, file: TextIO) -> None:
    head = {
        "nearpeak": 1,
        "displayTimeUnit": "ns",
        "baseTimeNanoseconds": trace.header.base_ns,
        "method": trace.header.method,
        "lacks": list(trace.header.lacks),
        "losses": [loss.line() for loss in trace.header.losses],
    }
    file.write(json.dumps(head, ensure_ascii=False)[:-1] + ', "traceEvents": [')
    for place, event in enumerate(_events(trace)):
        file.write(",\n" if place else "\n")
        file.write(event)
    file.write("\n]}\n")


def tracks_of(trace: Trace, rows: Array) -> Array:
    """Return for each event 0, or the number of the extra track of its stream that has room for it.

    Events on one track are disjoint or inside each other.
    """
    numbers = np.zeros(len(rows), np.int64)
    streams = streams_of(trace, rows)
    lanes: dict[tuple[int, ...], list[list[int]]] = {}
    for place, row in enumerate(rows.tolist()):
        on_device = EventKind(trace.kind[row]) in _DEVICE
        key = (streams.of(row),) if on_device else (int(trace.process[row]), int(trace.thread[row]))
        tracks = lanes.setdefault(key, [])
        start, end = int(trace.start_ns[row]), int(trace.end_ns[row])
        number = len(tracks)
        for track, stack in enumerate(tracks):
            while stack and stack[-1] <= start:
                stack.pop()
            if not stack or stack[-1] >= end:
                number = track
                break
        tracks.extend([[]] if number == len(tracks) else [])
        tracks[number].append(end)
        numbers[place] = number
    return numbers


def streams_of(trace: Trace, rows: Array) -> Lanes:
    """Return the lanes of those events that are drawn on a device."""
    return lanes_of(trace, rows[np.isin(trace.kind[rows], np.array(list(_DEVICE)))])


def _events(trace: Trace) -> Iterator[str]:
    """Yield each event as a line."""
    rows = np.arange(len(trace))
    tracks, streams = tracks_of(trace, rows), streams_of(trace, rows)
    for row in rows.tolist():
        kind = EventKind(trace.kind[row])
        on_device = kind in _DEVICE
        args = _args(trace, row)
        track = f" ({int(tracks[row]) + 1})" if tracks[row] else ""
        record = {
            "ph": "C" if kind is EventKind.COUNTER else "i" if kind is EventKind.INSTANT else "X",
            "cat": kind.name.lower(),
            "name": trace.name_of(row),
            "pid": f"device {_number(trace.device[row])}" if on_device else _lane(trace.process[row], ""),
            "tid": f"{streams.labels[streams.of(row)]}{track}" if on_device else _lane(trace.thread[row], track),
        }
        times = f'"ts": {_us(int(trace.start_ns[row]))}, "dur": {_us(int(trace.end_ns[row] - trace.start_ns[row]))}'
        text = json.dumps(record, ensure_ascii=False)
        yield f'{text[:-1]}, {times}, "args": {json.dumps(args, ensure_ascii=False, default=str)}}}'


def _lane(value: Any, track: str) -> int | str:
    """Return a number where there is one that a viewer can show; an unknown one reads back as unknown."""
    known = value != MISSING
    return f"{_number(value) if known else 'unknown'}{track}" if track or not known else _number(value)


def _number(value: Any) -> int:
    return -1 if value == MISSING else int(value)


def _us(time_ns: int) -> str:
    """Return nanoseconds as microseconds with three decimals, exactly."""
    sign = "-" if time_ns < 0 else ""
    return f"{sign}{abs(time_ns) // 1000}.{abs(time_ns) % 1000:03d}"


def _args(trace: Trace, row: int) -> dict[str, Any]:
    """Return all fields of an event; lists as lists, so that they read back."""
    args: dict[str, Any] = {}
    for name, column in (
        ("device", trace.device),
        ("stream", trace.stream),
        ("correlation", trace.correlation),
        ("process", trace.process),
        ("thread", trace.thread),
    ):
        if column[row] != MISSING:
            args[name] = int(column[row])
    for name in trace.sparse:
        if (value := trace.at(name, row)) is not None:
            args[name] = list(value) if isinstance(value, tuple) else value
    return args
