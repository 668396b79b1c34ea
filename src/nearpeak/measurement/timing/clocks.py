"""Host timers of wall and CPU time, and the state of the processor's clock."""

import hashlib
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from nearpeak.core.runs.runner_protocols import Activity, Reading
from nearpeak.core.work.case import Case

_WALL_NS, _THREAD_NS, _PROCESS_NS = time.perf_counter_ns, time.thread_time_ns, time.process_time_ns
"""Bound before a user's function can replace them."""
_PROBE = bytes(range(256)) * 64
_CPUS = Path("/sys/devices/system/cpu")
SLOW_CLOCK_RATIO = 0.75
"""Share of the clock at the start below which a measurement counts as throttled."""


class HostDefaults:
    """Defaults of timers: one set of inputs, and the host's clock."""

    flush_policy = "read_sweep"
    late_floor_s = 0.0
    records_activity = False

    def set_count(self, case: Case) -> int:
        """Return how many independent sets of inputs take turns: one."""
        del case
        return 1

    def most_calls(self) -> int:
        """Return how many calls can be queued: more than any batch has."""
        return 1 << 20

    def clock_probe_s(self) -> float:
        """Return the CPU time of one fixed computation in the first cache."""
        return clock_probe_s()

    def clock_policy(self) -> str:
        """Return the policy of the processor's clock."""
        return cpu_clock_policy()

    def activity(self, run: Callable[[], object]) -> Activity | None:
        """Return none: the host keeps no records of a call."""
        del run
        return None


class HostTimer(HostDefaults):
    """Timer of wall time, and of the CPU time of the calling thread, or of the process if it has several threads."""

    name = "perf_counter"
    mode = "host"

    def __init__(self, *, thread_count: int, flush_bytes: int) -> None:
        """Keep which CPU clock to read and how much to read between cold calls."""
        self.resolution_s = time.get_clock_info("perf_counter").resolution
        self._cpu_ns = _THREAD_NS if thread_count == 1 else _PROCESS_NS
        self._swept = sweep_buffer(flush_bytes) if flush_bytes else None

    def read(self, run: Callable[[], object], call_count: int) -> Reading:
        """Return the times of `call_count` calls in a row."""
        clock_ns, cpu_ns = _WALL_NS, self._cpu_ns
        if call_count == 1:
            cpu_start = cpu_ns()
            start = clock_ns()
            result = run()
            end = clock_ns()
            cpu_end = cpu_ns()
        else:
            calls = range(call_count - 1)
            cpu_start = cpu_ns()
            start = clock_ns()
            for _ in calls:
                run()
            result = run()
            end = clock_ns()
            cpu_end = cpu_ns()
        wall_s = (end - start) / 1e9
        return Reading(time_s=wall_s, cpu_s=(cpu_end - cpu_start) / 1e9, host_s=wall_s, result=result)

    def flush(self) -> None:
        """Read more than the last cache holds."""
        if self._swept is not None:
            self._swept.max()


@cache
def sweep_buffer(flush_bytes: int) -> Any:
    """Return the buffer that is read to empty the caches.

    Its values are random, as zeros may be compressed; it is only read, as written lines would be written back during
    the timed call.
    """
    return np.random.default_rng(0).random(flush_bytes // 8)


def clock_probe_s(count: int = 5) -> float:
    """Return the CPU time of one fixed computation in the first cache: it is long when the clock is low."""
    best_ns = 10**9
    for _ in range(count):
        start = _THREAD_NS()
        hashlib.sha256(_PROBE).digest()
        best_ns = min(best_ns, _THREAD_NS() - start)
    return best_ns / 1e9


def throttled(before_s: float, after_s: float) -> bool:
    """Return whether the clock fell below the permitted share between two probes.

    >>> throttled(1e-5, 1.1e-5), throttled(1e-5, 1.4e-5)
    (False, True)
    """
    return before_s / after_s < SLOW_CLOCK_RATIO


def cpu_clock_policy() -> str:
    """Return the CPU's clock policy that the operating system reports, or `unknown`."""
    files = (_CPUS.glob(f"cpu[0-9]*/cpufreq/scaling_{end}_freq") for end in ("min", "max"))
    lows, highs = (set(map(_number, paths)) for paths in files)
    if not lows or not highs:
        return "unknown"
    if lows == highs and len(lows) == 1:
        return f"locked@{min(lows) // 1000} MHz"
    return "free"


def cpu_throttle_count() -> int:
    """Return how often the processor has throttled since it started, 0 where nothing counts it."""
    return sum(map(_number, _CPUS.glob("cpu[0-9]*/thermal_throttle/core_throttle_count")))


def _number(path: Path) -> int:
    try:
        return int(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return 0
