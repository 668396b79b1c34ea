"""Binary encoding of samples: little-endian values in measurement order, compressed, with a checksum."""

import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nearpeak.errors import SpecError, StoreError

FORMATS: dict[str, np.dtype[Any]] = {"f4": np.dtype("<f4"), "f8": np.dtype("<f8"), "i8": np.dtype("<i8")}
"""Formats of a blob: float32 for seconds, 8 bytes for all else; a float32 holds no integer beyond 2^24."""
MOST_BYTES = 16 << 20
"""Largest blob; longer recordings are files of their own."""


def format_of(unit: str, values: Sequence[float] | npt.NDArray[Any]) -> str:
    """Return the storage format of samples of `unit`.

    >>> format_of("s", [0.5]), format_of("B", [16777217]), format_of("J", [0.5])
    ('f4', 'i8', 'f8')
    """
    if unit == "s":
        return "f4"
    return "i8" if np.asarray(values).dtype.kind in "iu" else "f8"


def array_of(what: str, unit: str, values: Sequence[float] | npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return samples as they will be read again.

    Raises:
        SpecError: one is not finite or does not fit its format, or there are too many.
    """
    try:
        raw = np.asarray(values)
        with np.errstate(over="ignore"):
            array: npt.NDArray[Any] = raw.astype(FORMATS[format_of(unit, raw)])
    except (OverflowError, TypeError, ValueError):
        raise SpecError(f"{what}: samples are not numbers of 64 bits") from None
    if array.ndim != 1 or raw.dtype.kind not in "iuf":
        raise SpecError(f"{what}: samples are no row of numbers of 64 bits")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        raise SpecError(f"{what}: sample {float(raw[~np.isfinite(array)][0])!r} is not finite; leave failed ones out")
    if raw.dtype.kind == "u" and raw.size and int(raw.max()) >= 1 << 63:
        raise SpecError(f"{what}: sample {int(raw.max())} does not fit 64 bits with a sign")
    if array.nbytes > MOST_BYTES:
        raise SpecError(f"{what}: {array.size} samples are more than the {MOST_BYTES >> 20} MiB that one set may take")
    return array


def packed(values: npt.NDArray[Any]) -> tuple[str, int, bytes]:
    r"""Return format, checksum and bytes of an array that `array_of` made.

    >>> packed(array_of("a", "s", [1.0]))
    ('f4', -1398707606, b'\x00\x00\x80?')
    """
    data = values.tobytes()
    return f"{values.dtype.kind}{values.dtype.itemsize}", checksum(data), data


def checksum(data: bytes) -> int:
    """Return CRC-32 of `data`, with a sign so that it takes four bytes in a file."""
    crc32 = zlib.crc32(data)
    return crc32 - (1 << 32) if crc32 >= 1 << 31 else crc32


def unpacked(what: str, form: str, crc32: int, data: bytes) -> npt.NDArray[Any]:
    """Return the samples of stored bytes.

    Raises:
        StoreError: the format is unknown to this version, or the bytes are not those that were written.
    """
    if form not in FORMATS:
        raise StoreError(f"{what}: samples are stored as {form!r}; this version reads {', '.join(FORMATS)}")
    if checksum(data) != crc32:
        raise StoreError(f"{what}: its samples are damaged on disk (checksum differs); import its file again")
    array: npt.NDArray[Any] = np.frombuffer(data, dtype=FORMATS[form])
    return array
