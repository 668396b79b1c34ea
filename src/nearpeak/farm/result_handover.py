"""Result file of a child process, written atomically: length and checksum, then JSON."""

import json
import os
import zlib
from pathlib import Path
from typing import Any

from nearpeak.base.folders import synchronise

_MARK = "nearpeak-result"
_LONGEST_BYTES = 64 << 20


def write_result(path: Path, value: object) -> None:
    """Write a result so that it appears whole, also after a power cut."""
    text = json.dumps(value).encode()
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        file.write(f"{_MARK} {len(text)} {zlib.crc32(text):08x}\n".encode() + text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)
    synchronise(path.parent)


def read_result(path: Path) -> Any:
    """Return a result; none where the file is missing, half, changed, or no JSON.

    >>> read_result(Path("missing")) is None
    True
    """
    try:
        if path.stat().st_size > _LONGEST_BYTES:
            return None
        head, _, text = path.read_bytes().partition(b"\n")
        mark, length, crc = head.decode("ascii").split(" ")
        if mark != _MARK or int(length) != len(text) or int(crc, 16) != zlib.crc32(text):
            return None
        return json.loads(text)
    except (OSError, ValueError):
        return None
