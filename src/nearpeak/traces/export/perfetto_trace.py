"""Perfetto protobuf export of a trace, with the field numbers of Perfetto's public .proto files."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from nearpeak.core.traces.trace import DEVICE_KINDS, EventKind
from nearpeak.traces.export.chrome_trace import streams_of, tracks_of
from nearpeak.traces.export.protobuf_fields import field_key, message_field, number_field, text_field
from nearpeak.traces.timeline.trace_columns import MISSING, NO_ROW, Trace

_PACKET, _STAMP, _SEQUENCE, _EVENT, _DESCRIPTOR = 1, 8, 10, 11, 60
_CATEGORY, _NAME, _TYPE, _TRACK, _NOTE, _FLOW = 22, 23, 9, 11, 4, 47
_UUID, _PARENT, _LABEL = 1, 5, 2
_BEGIN, _END, _INSTANT = 1, 2, 3
_DEVICE = (*DEVICE_KINDS, EventKind.SYNC, EventKind.DEVICE_RANGE)
_SHOWN = ("bytes", "grid", "block", "shapes", "dtypes", "collective", "wait_stream")


def write_perfetto(trace: Trace, path: Path) -> None:
    """Write a trace as Perfetto reads it: a track per stream and thread, calls joined to their work by flows.

    Slices of one track nest; those that cross others go to a track beside it. Counters are left out.
    """
    with path.open("wb") as file:
        _write(trace, file)


def _write(trace: Trace, file: BinaryIO) -> None:
    rows = np.flatnonzero(trace.kind != EventKind.COUNTER)
    tracks, streams = tracks_of(trace, rows), streams_of(trace, rows)
    uuids: dict[tuple[object, ...], int] = {}
    moments: list[tuple[int, int, int, int]] = []
    first = int(trace.start_ns[rows].min()) if len(rows) else 0
    base = trace.header.base_ns if trace.header.base_ns + first >= 0 else -first
    for row, track in zip(rows.tolist(), tracks.tolist(), strict=True):
        if EventKind(trace.kind[row]) in _DEVICE:
            group, lane = f"device {_shown(trace.device[row])}", streams.labels[streams.of(row)]
        else:
            group, lane = f"process {_shown(trace.process[row])}", f"thread {_shown(trace.thread[row])}"
        label = group, lane + (f" ({track + 1})" if track else "")
        if label not in uuids:
            for packet in _descriptors(uuids, label):
                file.write(packet)
        start, end = int(trace.start_ns[row]) + base, int(trace.end_ns[row]) + base
        moments += (
            [(start, 1, row, uuids[label]), (end, 0, row, uuids[label])]
            if end > start
            else [(start, 2, row, uuids[label])]
        )
    launched = {int(entry) for entry in trace.launch if entry != NO_ROW}
    # Ends come before begins of the same moment; of several ends the inner, which began last, comes first.
    moments.sort(key=lambda entry: (entry[0], entry[1], -entry[2] if entry[1] == 0 else entry[2]))
    for moment, what, row, uuid in moments:
        event = message_field(_EVENT, _event(trace, row, uuid, what, launched))
        file.write(message_field(_PACKET, number_field(_STAMP, moment) + number_field(_SEQUENCE, 1) + event))


def _shown(value: np.int64) -> str:
    return "?" if value == MISSING else str(int(value))


def _descriptors(uuids: dict[tuple[object, ...], int], label: tuple[object, ...]) -> Iterator[bytes]:
    """Yield the packets that describe a track and, once, its group."""
    group = (label[0],)
    if group not in uuids:
        uuids[group] = len(uuids) + 1
        described = number_field(_UUID, uuids[group]) + text_field(_LABEL, str(group[0]))
        yield message_field(_PACKET, message_field(_DESCRIPTOR, described) + number_field(_SEQUENCE, 1))
    uuids[label] = len(uuids) + 1
    described = number_field(_UUID, uuids[label]) + number_field(_PARENT, uuids[group])
    described += text_field(_LABEL, str(label[1]))
    yield message_field(_PACKET, message_field(_DESCRIPTOR, described) + number_field(_SEQUENCE, 1))


def _event(trace: Trace, row: int, uuid: int, what: int, launched: set[int]) -> bytes:
    """Return the begin, end or moment of an event."""
    kind = (_END, _BEGIN, _INSTANT)[what]
    data = number_field(_TYPE, kind) + number_field(_TRACK, uuid)
    if kind == _END:
        return data
    data += text_field(_NAME, trace.name_of(row)) + text_field(_CATEGORY, EventKind(trace.kind[row]).name.lower())
    flow = row if row in launched else int(trace.launch[row])
    if flow != NO_ROW:
        data += field_key(_FLOW, 1) + struct.pack("<Q", flow + 1)
    for name in _SHOWN:
        if (value := trace.at(name, row)) is not None:
            note = number_field(4, value) if isinstance(value, int) else text_field(6, str(value))
            data += message_field(_NOTE, text_field(10, name) + note)
    return data
