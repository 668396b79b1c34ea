"""Profiles of JAX, TensorFlow and PyTorch/XLA: `plugins/profile/*/*.xplane.pb`, protobuf of planes and events."""

import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nearpeak.core.traces.trace import END, Loss, TraceHeader
from nearpeak.errors import SpecError
from nearpeak.traces.reading.byte_stream import blocks
from nearpeak.traces.reading.table_rows import EventRows
from nearpeak.traces.reading.wire_format import FIXED64, fields, signed
from nearpeak.traces.reading.xla_planes import Plane, PlaneEvent, PlaneLine, add_planes
from nearpeak.traces.timeline.trace_columns import Trace
from nearpeak.traces.trace_format import TraceFormat

# Numbers of fields. Source: openxla/xla, third_party/tsl/tsl/profiler/protobuf/xplane.proto; the order of
# planes and host: protobuf writes fields by number, and tsl/profiler/lib/profiler_session.cc always adds the host.
_PLANE, _HOST = 1, 4
_NAME, _LINES, _EVENT_NAMES, _STAT_NAMES, _PLANE_STATS = 2, 3, 4, 5, 6
_LINE_ID, _LINE_NAME, _LINE_BEGIN_NS, _EVENTS, _LINE_TITLE = 1, 2, 3, 4, 11
_METADATA, _OFFSET_PS, _LENGTH_PS, _EVENT_STATS = 1, 2, 3, 4
_DOUBLE, _UNSIGNED, _SIGNED, _TEXT, _BLOB, _REFERENCE = 2, 3, 4, 5, 6, 7
MOST_BYTES, MOST_EVENTS = 1 << 28, 2_000_000
"""Bytes unpacked and events that are read, as they are held at once."""
MOST_UNKNOWN = 1_000
"""Fields of a profile that the format does not know; newer versions may have a few, damage has millions."""


class _Reader:
    """Reads messages, and notes once where the file is cut off."""

    def __init__(self) -> None:
        self.losses: list[Loss] = []

    def fields(self, data: memoryview) -> Iterator[tuple[int, int, Any]]:
        try:
            yield from fields(data)
        except EOFError:
            self._note_end("a message is cut off")

    def _note_end(self, example: str) -> None:
        if not self.losses:
            self.losses.append(Loss(what="dropped", kind=f"{END} the file", record_count=1, example=example))

    def planes(self, data: memoryview, rows: EventRows) -> Iterator[Plane]:
        """Yield the planes; a file without the name of its host, which ProfilerSession writes last, may lack some."""
        unknown_count, is_whole = 0, False
        for number, _, value in self.fields(data):
            is_whole |= number == _HOST
            unknown_count += number > _HOST
            if unknown_count > MOST_UNKNOWN:
                raise SpecError(f"holds more than {MOST_UNKNOWN:,} fields that no profile has; it is damaged")
            if number == _PLANE and isinstance(value, memoryview):
                yield self._plane(value, rows)
        if not is_whole:
            self._note_end("the name of the host is missing, which the profiler writes last")

    def _plane(self, data: memoryview, rows: EventRows) -> Plane:
        name, lines, stats = "", list[memoryview](), list[memoryview]()
        events: dict[int, str] = {}
        stat_names: dict[int, str] = {}
        for number, _, value in self.fields(data):
            if not isinstance(value, memoryview):
                continue
            if number == _NAME:
                name = _text(value)
            elif number == _LINES:
                lines.append(value)
            elif number in (_EVENT_NAMES, _STAT_NAMES):
                key, title = self._entry(value)
                (events if number == _EVENT_NAMES else stat_names)[key] = title
            elif number == _PLANE_STATS:
                stats.append(value)
        return Plane(
            name=name, lines=[self._line(line, events, stat_names, rows) for line in lines],
            stats=dict(self._stat(stat, stat_names) for stat in stats),
        )  # fmt: skip

    def _entry(self, data: memoryview) -> tuple[int, str]:
        """Return number and name of an entry of the maps of names; a display name wins."""
        key, name, title = 0, "", ""
        for number, _, value in self.fields(data):
            if number == 1:
                key = value
            elif number == 2 and isinstance(value, memoryview):
                for inner, _, text in self.fields(value):
                    if isinstance(text, memoryview) and inner == 2:
                        name = _text(text)
                    elif isinstance(text, memoryview) and inner == 4:
                        title = _text(text)
        return key, title or name

    def _line(self, data: memoryview, names: Mapping[int, str], stats: Mapping[int, str], rows: EventRows) -> PlaneLine:
        number_of_line, name, title, begin_ns, events = 0, "", "", 0, list[memoryview]()
        for number, _, value in self.fields(data):
            if number == _EVENTS and isinstance(value, memoryview):
                events.append(value)
            elif number == _LINE_ID and isinstance(value, int):
                number_of_line = value & 0xFFFFFFFF  # as the JSON of the same profile has it
            elif number == _LINE_BEGIN_NS and isinstance(value, int):
                begin_ns = signed(value)
            elif number in (_LINE_NAME, _LINE_TITLE) and isinstance(value, memoryview):
                name, title = (_text(value), title) if number == _LINE_NAME else (name, _text(value))
        if rows.record_count + len(events) > MOST_EVENTS:
            raise SpecError(f"holds more than {MOST_EVENTS} events, which are read at once; record fewer steps")
        read = [self._event(event, begin_ns * 1000, names, stats) for event in events]
        rows.record_count += len(events)
        return PlaneLine(number=number_of_line, name=title or name, events=read)

    def _event(self, data: memoryview, begin_ps: int, names: Mapping[int, str], stats: Mapping[int, str]) -> PlaneEvent:
        name, offset_ps, length_ps, values = 0, 0, 0, dict[str, Any]()
        for number, _, value in self.fields(data):
            if number == _METADATA and isinstance(value, int):
                name = value
            elif number == _OFFSET_PS and isinstance(value, int):
                offset_ps = signed(value)
            elif number == _LENGTH_PS and isinstance(value, int):
                length_ps = signed(value)
            elif number == _EVENT_STATS and isinstance(value, memoryview):
                key, stat = self._stat(value, stats)
                values[key] = stat
        start_ps = begin_ps + offset_ps
        return PlaneEvent(
            name=names.get(name, f"event {name}"), start_ns=_near(start_ps // 1000),
            end_ns=_near((start_ps + length_ps) // 1000), stats=values,
        )  # fmt: skip

    def _stat(self, data: memoryview, names: Mapping[int, str]) -> tuple[str, Any]:
        key, stat = 0, None
        for number, kind, value in self.fields(data):
            if number == _METADATA:
                key = value if isinstance(value, int) else 0
            elif number == _DOUBLE and kind == FIXED64:
                (stat,) = struct.unpack("<d", value)
            elif isinstance(value, memoryview):
                stat = _text(value) if number == _TEXT else None
            elif number == _REFERENCE:
                stat = names.get(value, "")
            elif number in (_UNSIGNED, _SIGNED):
                stat = signed(value) if number == _SIGNED else value
        return names.get(key, str(key)), stat


def _near(time_ns: int) -> int:
    """Return a time that 64 bits hold; one beyond is at their end, where it counts as impossible."""
    return max(-(2**62), min(2**62, time_ns))


def _text(value: memoryview) -> str:
    return bytes(value).decode("utf-8", "replace")


def _read(path: Path) -> Trace:
    """Return the trace of a profile; work of devices, calls, ranges and frames of Python."""
    rows, reader, losses = EventRows(), _Reader(), list[Loss]()
    data = bytearray()
    for block in blocks(path, losses):
        data += block
        if len(data) > MOST_BYTES:
            raise SpecError(
                f"{path.name}: is larger than {MOST_BYTES >> 20} MiB, which are read at once; record fewer steps"
            )
    try:
        devices = add_planes(reader.planes(memoryview(data), rows), rows)
    except SpecError as error:
        raise SpecError(f"{path.name}: {error}") from None
    header = TraceHeader(
        format="xplane_pb", source=path.name, clock="monotonic", method="profiler (XLA)", devices=devices,
        losses=(*losses, *reader.losses),
    )  # fmt: skip
    return rows.trace(header)


def _recognises(head: bytes) -> bool:
    """A file that begins with a plane, whose name is one of those that XLA gives."""
    return head[:1] == b"\x0a" and any(name in head[:4096] for name in (b"/host:", b"/device:", b"Task Environment"))


FORMAT = TraceFormat(
    name="xplane_pb", title="JAX, TensorFlow and PyTorch/XLA, xplane.pb", recognises=_recognises, read=_read
)
