"""Binary records by which the sampler process hands its readings to the measuring process."""

import json
import os
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from nearpeak.errors import MeasureError

_LENGTH = struct.Struct("<I")
_READING = struct.Struct("<BBqq")
_TICK = struct.Struct("<Bqqqq")
HEADER, READING, TICK = range(3)
Reading = tuple[int, int, int, Sequence[float]]
"""Number of the source, time before and after the reading in ns, values by channel."""
Tick = tuple[int, int, int, int]
"""Due time and start of a round, wall time, CPU time of the sampler so far (0 where not measured), all in ns."""


def header(content: dict[str, Any]) -> bytes:
    """Return the record of the channels of each source."""
    return _framed(bytes([HEADER]) + json.dumps(content).encode())


def records(readings: Sequence[Reading], ticks: Sequence[Tick]) -> bytes:
    """Return the records of readings, then those of their rounds."""
    parts = [
        _READING.pack(READING, source, before_ns, after_ns) + struct.pack(f"<{len(values)}d", *values)
        for source, before_ns, after_ns, values in readings
    ]
    parts += [_TICK.pack(TICK, *tick) for tick in ticks]
    return b"".join(map(_framed, parts))


def _framed(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


class Records:
    """Reader of the records that the sampler has written since the last call, without an incomplete last one."""

    def __init__(self, file: int) -> None:
        """Keep the open file, which is read from its start."""
        self._file, self._offset, self._rest = file, 0, b""

    def new(self) -> Iterator[tuple[int, Any]]:
        """Yield kind and content of each complete record: a mapping, (source, before, after, values), or a tick."""
        while part := os.pread(self._file, 1 << 20, self._offset):
            self._offset += len(part)
            self._rest += part
        data, place = self._rest, 0
        while place + 4 <= len(data):
            (length,) = _LENGTH.unpack_from(data, place)
            if place + 4 + length > len(data):
                break
            yield _record(data[place + 4 : place + 4 + length])
            place += 4 + length
        self._rest = data[place:]


def _record(data: bytes) -> tuple[int, Any]:
    kind = data[0]
    if kind == HEADER:
        return kind, json.loads(data[1:])
    if kind == READING:
        _, source, before_ns, after_ns = _READING.unpack_from(data)
        count = (len(data) - _READING.size) // 8
        return kind, (source, before_ns, after_ns, struct.unpack_from(f"<{count}d", data, _READING.size))
    if kind == TICK:
        return kind, _TICK.unpack(data)[1:]
    raise MeasureError(f"telemetry: a record of kind {kind}, which no sampler of this version writes")
