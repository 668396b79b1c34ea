"""File lock of a device on its host, inherited by the measuring process and released when that ends."""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from nearpeak.base.file_lock import wait_for_lock
from nearpeak.core.runs.measurement import Environment
from nearpeak.errors import UnfitError
from nearpeak.farm.jobs import Device
from nearpeak.measurement.machine.device_lock import lock_path, opened


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
            if not wait_for_lock(file, path, wait_s, mode, is_stopped):
                raise UnfitError(f"{path}: the device is held by another measurement on this host")
            files.append(file)
        yield tuple(files), tuple(str(path) for path, _ in wanted)
