"""Byte blocks of a plain or gzip file; damage to the gzip stream is recorded as a loss, not raised."""

import zlib
from collections.abc import Iterator
from pathlib import Path

from nearpeak.base.input_files import check_file, check_ratio
from nearpeak.core.traces.trace import Loss
from nearpeak.errors import SpecError

BLOCK_BYTES = 1 << 23


def blocks(path: Path, losses: list[Loss], size: int = BLOCK_BYTES) -> Iterator[bytes]:
    """Yield the bytes of a file; of a damaged gzip file those that come before the damage.

    Args:
        losses: takes a note of damage.

    Raises:
        SpecError: the file cannot be read.
    """
    check_file(path)
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            plain = iter(lambda: file.read(size), b"")
            yield from _unpacked(plain, losses, size, path) if packed else plain
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}") from None


def head_of(path: Path, size: int = 1 << 16) -> bytes:
    """Return the first bytes of a file, unpacked."""
    return next(blocks(path, [], size), b"")[:size]


def _unpacked(packed: Iterator[bytes], losses: list[Loss], size: int, path: Path) -> Iterator[bytes]:
    """Yield what packed bytes hold, of several members one after the other."""
    unpack, whole, total, packed_bytes = zlib.decompressobj(47), True, 0, 0
    try:
        for block in packed:
            rest: bytes = block
            packed_bytes += len(block)
            while rest:
                if unpack.eof:
                    if rest[:2] != b"\x1f\x8b":  # padding after the last member
                        return
                    unpack = zlib.decompressobj(47)
                data = unpack.decompress(rest, size)
                total += len(data)
                rest = unpack.unused_data if unpack.eof else unpack.unconsumed_tail
                check_ratio(packed_bytes - len(rest), total, path)  # of what was unpacked, not of the whole block
                if data:
                    yield data
        whole = unpack.eof
        damage = "the gzip stream ends early"
    except zlib.error as error:
        whole, damage = False, f"the gzip stream is damaged: {error}"
    if not whole:
        losses.append(
            Loss(what="dropped", kind="end of a gzip file", record_count=1, example=f"{damage}, after {total} bytes")
        )
