"""File lock of a device on its host, inherited by the measuring process and released when that ends."""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from nearpeak.core.runs.measurement import Environment
from nearpeak.errors import UnfitError
from nearpeak.farm.jobs import Device
from nearpeak.measurement.machine.device_lock import lock_path, opened

_POLL_S = 0.05


def lock_file(device: str) -> Path:
    """Return the lock file of a device, the one that measurements outside the farm use too.

    >>> lock_file("GPU-1").name
    'nearpeak-1.lock'
    """
    if device.startswith("cpu@"):
        from nearpeak.base.host_system import cpu_name

        return lock_path(Environment(device=cpu_name()))
    return lock_path(Environment(device=device, device_uuid=device.removeprefix("GPU-")))


@contextmanager
def held(
    device: Device, wait_s: float, is_stopped: Callable[[], bool] = lambda: False
) -> Iterator[tuple[tuple[int, ...], tuple[str, ...]]]:
    """Hold a device, and its board with other slices of it; yield the open files and their names.

    A slot of a host's cores has no lock.

    Raises:
        UnfitError: another measurement holds it for longer than `wait_s`, or `is_stopped` says so meanwhile.
    """
    wanted = [] if device.pool == "slot" else [(lock_file(device.name), fcntl.LOCK_EX)]
    if device.parent and wanted:
        wanted.insert(0, (lock_file(device.parent), fcntl.LOCK_SH))
    with ExitStack() as stack:
        files = []
        for path, mode in wanted:
            file = opened(path)
            stack.callback(os.close, file)
            _wait(file, mode, (path, time.monotonic() + wait_s), is_stopped)
            files.append(file)
        yield tuple(files), tuple(str(path) for path, _ in wanted)


def _wait(file: int, mode: int, what: tuple[Path, float], is_stopped: Callable[[], bool]) -> None:
    path, deadline_s = what
    while True:
        try:
            fcntl.flock(file, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline_s or is_stopped():
                raise UnfitError(f"{path}: the device is held by another measurement on this host") from None
            time.sleep(_POLL_S)
        else:
            return
