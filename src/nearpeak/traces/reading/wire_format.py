"""Fields of protobuf messages, read without a schema compiler: what is cut off ends the message."""

from collections.abc import Iterator

from nearpeak.errors import SpecError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5


def varint(data: memoryview, place: int) -> tuple[int, int]:
    """Return a number of variable length and the place after it.

    Raises:
        IndexError: it is cut off.
        SpecError: it has more than ten bytes, so that this is no protobuf.
    """
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
        if shift > 63:
            raise SpecError("holds a number of more than 64 bits, so that it is no protobuf")


def fields(data: memoryview) -> Iterator[tuple[int, int, int | memoryview]]:
    r"""Yield number, wire type and value of each field of a message: a number, or bytes.

    Raises:
        EOFError: the last field is cut off; those before it were yielded.
        SpecError: these bytes are no protobuf.

    >>> [(number, value) for number, _, value in fields(memoryview(b"\x08\x96\x01"))]
    [(1, 150)]
    """
    place, end = 0, len(data)
    while place < end:
        try:
            key, place = varint(data, place)
            kind = key & 7
            if kind == VARINT:
                value, place = varint(data, place)
                yield key >> 3, kind, value
                continue
            size, place = varint(data, place) if kind == BYTES else ({FIXED64: 8, FIXED32: 4}.get(kind, -1), place)
        except IndexError:
            raise EOFError from None
        if size < 0:
            raise SpecError(f"holds a field of wire type {kind}, so that it is no protobuf")
        if place + size > end:
            raise EOFError
        yield key >> 3, kind, data[place : place + size]
        place += size


def signed(value: int) -> int:
    """Return a number of 64 bits as int64 states it.

    >>> signed(2**64 - 1), signed(7)
    (-1, 7)
    """
    return value - (1 << 64) if value >= 1 << 63 else value
