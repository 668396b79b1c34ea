"""Limits that a process sets for itself: its memory, its core files, its end with its parent process."""

import ctypes
import resource
import signal
import sys

_LIBC = ctypes.CDLL(None)
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)
_ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER of prctl(2)


def limit(memory_bytes: int | None) -> None:
    """Limit the further memory of this process, disable core files, and end with the parent process.

    A limit that a parent process has set is never raised.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform != "linux":
        return
    _LIBC.prctl(_DIE_WITH_PARENT, signal.SIGKILL)
    if memory_bytes is None:
        return
    with open("/proc/self/statm", encoding="ascii") as file:
        present = int(file.read().split()[0]) * resource.getpagesize()
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = present + memory_bytes if hard == resource.RLIM_INFINITY else min(present + memory_bytes, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent ends, so that none is lost from sight (Linux)."""
    if sys.platform == "linux":
        _LIBC.prctl(_ADOPT_ORPHANS, 1, 0, 0, 0)
