"""Temporary folders of one case, which a later run removes if their process was killed."""

import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_PREFIX, _HELD = "nearpeak-case-", ".held"
_SETTLED_S = 60.0
"""Age above which an unlocked folder counts as abandoned: its creator locks it at once."""


@contextlib.contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield an empty folder that is removed with the block; first remove those whose creators were killed.

    The creator holds a lock in its folder, which is released when it dies.

    >>> with scratch_folder() as folder:
    ...     folder.is_dir()
    True
    """
    _remove_abandoned()
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as name:
        lock = os.open(Path(name) / _HELD, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with contextlib.suppress(OSError):  # where there are no locks, no other process removes it either
                fcntl.flock(lock, fcntl.LOCK_EX)
            yield Path(name)
        finally:
            os.close(lock)


def _remove_abandoned() -> None:
    for held in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_HELD}"):
        with contextlib.suppress(OSError):  # somebody else's, or just removed
            if held.parent.stat().st_uid != os.getuid() or time.time() - held.stat().st_mtime < _SETTLED_S:
                continue
            lock = os.open(held, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(held.parent, ignore_errors=True)
            finally:
                os.close(lock)
