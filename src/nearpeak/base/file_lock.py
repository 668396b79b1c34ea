"""Locks of open files, which end with the process that holds them."""

import fcntl
import time
from collections.abc import Callable
from pathlib import Path

from nearpeak.errors import SpecError

_POLL_S = 0.02


def try_lock(file: int, path: Path, mode: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file unless another process holds it, and return whether this one does now.

    Args:
        file: descriptor.
        path: its name in messages.
        mode: `fcntl.LOCK_EX`, or `fcntl.LOCK_SH` for a lock that several may hold.

    Raises:
        SpecError: the file system keeps no locks, as some network file systems do not.

    >>> with open(__file__) as file:
    ...     try_lock(file.fileno(), Path(__file__), fcntl.LOCK_SH)
    True
    """
    try:
        fcntl.flock(file, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise SpecError(f"{path}: cannot be locked: {error.strerror}; it must lie on a disk that keeps locks") from None
    return True


def wait_for_lock(
    file: int, path: Path, wait_s: float, mode: int = fcntl.LOCK_EX, is_stopped: Callable[[], bool] = lambda: False
) -> bool:
    """Lock an open file once no other process holds it; return false after `wait_s`, or when `is_stopped` says so.

    Raises:
        SpecError: the file system keeps no locks.
    """
    deadline_s = time.monotonic() + wait_s
    while not try_lock(file, path, mode):
        if time.monotonic() > deadline_s or is_stopped():
            return False
        time.sleep(_POLL_S)
    return True
