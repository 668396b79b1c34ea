"""CPU time that other processes take beside a measurement."""

import os
import time
from dataclasses import dataclass
from typing import NamedTuple

BUSY_RATIO = 0.1
"""Share of the cores above which others disturb; what an idle system does by itself is below."""


class CpuTimes(NamedTuple):
    """CPU time so far, and when that was."""

    at_s: float
    """Monotonic clock."""
    busy_s: float
    """CPU time of all processes of the machine, and that which other virtual machines stole."""
    own_s: float
    """CPU time of this process and of all that it started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherLoad:
    """Cores that others took in the mean of a time."""

    cores_ratio: float
    """Their number, which need not be whole."""
    core_count: int
    """Cores of the machine."""

    @property
    def disturbs(self) -> bool:
        """Return whether wall times are too long by it.

        >>> OtherLoad(cores_ratio=1.6, core_count=2).disturbs, OtherLoad(cores_ratio=0.1, core_count=2).disturbs
        (True, False)
        """
        return self.cores_ratio > BUSY_RATIO * self.core_count

    def __str__(self) -> str:
        """Return it in words.

        >>> str(OtherLoad(cores_ratio=1.6, core_count=2))
        'other processes took 1.6 of 2 cores'
        """
        return f"other processes took {self.cores_ratio:.1f} of {self.core_count} cores"


def cpu_times() -> CpuTimes:
    """Return the CPU time that the machine and this process with its children have used so far."""
    import psutil

    times = psutil.cpu_times()
    idle_s = times.idle + getattr(times, "iowait", 0.0)
    guests_s = getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # in user and nice already
    return CpuTimes(at_s=time.monotonic(), busy_s=sum(times) - idle_s - guests_s, own_s=_own_s())


def load_between(start: CpuTimes, end: CpuTimes) -> OtherLoad:
    """Return what others took between two moments.

    >>> load_between(CpuTimes(0.0, 100.0, 10.0), CpuTimes(10.0, 118.0, 13.0)).cores_ratio
    1.5
    """
    passed_s = max(end.at_s - start.at_s, 1e-3)
    others_s = max(0.0, (end.busy_s - start.busy_s) - (end.own_s - start.own_s))
    return OtherLoad(cores_ratio=others_s / passed_s, core_count=os.cpu_count() or 1)


def _own_s() -> float:
    """Return the CPU time of this process and all below it, those that ended included."""
    import psutil

    this_process = psutil.Process()
    total_s = 0.0
    for process in (this_process, *this_process.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.Error:  # it ended meanwhile, and is in its parent's
            continue
        total_s += times.user + times.system
        total_s += getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return total_s
