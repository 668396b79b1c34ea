"""How readings travel from the sampler to the process that asked: records in a file that both hold open."""

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


def header(content: dict[str, Any]) -> bytes:
    """Return the record that says which channels each source has."""
    return _framed(bytes([HEADER]) + json.dumps(content).encode())


def reading(source: int, before_ns: int, after_ns: int, values: Sequence[float]) -> bytes:
    """Return the record of one reading of the source with that number."""
    return _framed(_READING.pack(READING, source, before_ns, after_ns) + struct.pack(f"<{len(values)}d", *values))


def tick(due_ns: int, begun_ns: int, wall_ns: int, cpu_ns: int) -> bytes:
    """Return the record of one round: when it was due and began, wall time, CPU time of the sampler so far."""
    return _framed(_TICK.pack(TICK, due_ns, begun_ns, wall_ns, cpu_ns))


def _framed(data: bytes) -> bytes:
    return _LENGTH.pack(len(data)) + data


class Records:
    """Reads what the sampler has written since the last time; a record that is still being written waits."""

    def __init__(self, file: int) -> None:
        """Keep the open file; reading begins at its start."""
        self._file, self._offset, self._rest = file, 0, b""

    def new(self) -> Iterator[tuple[int, Any]]:
        """Yield kind and content of each whole record: a mapping, (source, before, after, values), or a tick."""
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
