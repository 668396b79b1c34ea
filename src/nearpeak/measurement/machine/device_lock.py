"""Lock file per device that allows one measurement at a time and is released when its holder dies."""

import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nearpeak.base.file_lock import wait_for_lock
from nearpeak.core.runs.measurement import Environment
from nearpeak.errors import UnfitError

WAIT_S = 300.0
"""Longest wait for a device that another measurement holds."""


def lock_path(environment: Environment) -> Path:
    """Return the lock file of the device, the same for all users of the machine.

    >>> lock_path(Environment(device="NVIDIA T4", device_uuid="GPU-1")).name
    'nearpeak-GPU-1.lock'
    """
    identity = (
        environment.device_uuid or f"{environment.device} {hashlib.sha256(environment.device.encode()).hexdigest()[:8]}"
    )
    return Path(tempfile.gettempdir()) / f"nearpeak-{re.sub(r'[^A-Za-z0-9.-]+', '-', identity)}.lock"


@contextmanager
def device_lock(environment: Environment, wait_s: float = WAIT_S) -> Iterator[None]:
    """Hold the device while the block runs.

    Raises:
        UnfitError: another measurement holds it for longer than `wait_s`.
        SpecError: the folder of temporary files keeps no locks.
    """
    path = lock_path(environment)
    file = opened(path)
    try:
        if not wait_for_lock(file, path, wait_s):
            raise UnfitError(f"{path}: the device is held by another measurement; wait for it to end")
        yield
    finally:
        os.close(file)


def opened(path: Path) -> int:
    """Return the opened lock file, created if absent; a symbolic link placed there is not followed.

    All users may lock it: locking needs no write permission, which only the creator has.

    Raises:
        UnfitError: something else has its name, or its creator keeps others out.
    """
    how = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # a pipe of that name would be waited for
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | how, 0o644)
    except FileExistsError:
        try:
            return _opened(path, how)
        except OSError as error:
            raise UnfitError(f"{path}: cannot be locked: {error.strerror}; another user made it, remove it") from None
    os.fchmod(file, 0o644)  # the umask may have hidden it from others
    return file


def _opened(path: Path, how: int) -> int:
    try:
        file = os.open(path, os.O_RDWR | how)
    except PermissionError:
        file = os.open(path, os.O_RDONLY | how)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise UnfitError(f"{path}: is no file, so that the device cannot be locked; remove it")
    return file
