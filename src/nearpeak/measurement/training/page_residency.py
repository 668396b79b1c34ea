"""Page cache of a data set's files: how much of them is resident, dropping and reading them; faults and reads."""

import ctypes
import mmap
import os
import resource
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np

_LIBC = ctypes.CDLL(None, use_errno=True)
DROPPED = "posix_fadvise(DONTNEED) on the data set's own files"
"""How pages are dropped: without rights over other files, and those of no other program."""


class Counters(NamedTuple):
    """Counters of this process and of its children that have ended."""

    major_fault_count: int
    """Page faults that had to read."""
    read_bytes: int
    """Bytes that storage delivered; −1 where the system does not say."""


def counters() -> Counters:
    """Return the counters until now.

    Reads of children count once they have ended and were waited for (proc(5), getrusage(2)).
    """
    faults = sum(resource.getrusage(who).ru_majflt for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    try:
        lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    except OSError:
        return Counters(faults, -1)
    return Counters(faults, next((int(line.split()[1]) for line in lines if line.startswith("read_bytes")), -1))


def resident_bytes(files: Iterable[Path]) -> int:
    """Return how many bytes of files are in the page cache, in whole pages (mincore(2)); −1 where nobody can say."""
    if not hasattr(_LIBC, "mincore"):
        return -1
    total = 0
    for path in files:
        if not path.stat().st_size:
            continue
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            view = np.frombuffer(mapped, np.uint8)
            pages = (ctypes.c_ubyte * -(-len(mapped) // mmap.PAGESIZE))()
            address, length = ctypes.c_void_p(view.ctypes.data), ctypes.c_size_t(len(mapped))
            failed = _LIBC.mincore(address, length, pages)
            del view
        if failed:
            return -1
        total += min(path.stat().st_size, mmap.PAGESIZE * sum(page & 1 for page in bytes(pages)))
    return total


def drop_pages(files: Iterable[Path]) -> None:
    """Drop files from the page cache; pages that were not written back yet are written first."""
    for path in files:
        file = os.open(path, os.O_RDONLY)
        try:
            os.fsync(file)
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(file)


def read_pages(files: Iterable[Path]) -> None:
    """Read files, so that they are in the page cache as far as it has room."""
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 20):
                pass
