"""Processor, memory and disks of the machine, by psutil."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nearpeak.core.telemetry import Channel
from nearpeak.measure.telemetry.sources import Unavailable

_TIMES = "CPU time of all cores together since the machine started, from the system's accounting"


class Host:
    """Counters of the whole machine; utilisation over a window is the growth of `cpu.busy` over time and cores."""

    name, most_hz = "host", 10.0

    def __init__(self, root: Path) -> None:
        """Refuse where psutil is absent, or where another root is asked for, which psutil cannot read."""
        try:
            import psutil
        except ImportError:
            raise Unavailable("psutil is not installed; install psutil") from None
        if root != Path("/"):
            raise Unavailable(f"psutil reads the running system only, not {root}")
        self._psutil: Any = psutil
        self._disks = _disks(psutil) is not None
        status = "" if self._disks else "the system counts no disk traffic here"
        self.channels = (
            Channel(name="cpu.busy", unit="s", kind="counter", meaning=f"{_TIMES}, idle and waiting left out",
                    resolution=0.01),
            Channel(name="cpu.stolen", unit="s", kind="counter", resolution=0.01,
                    meaning=f"{_TIMES}, that the hypervisor gave to others"),
            Channel(name="memory.used", unit="B", kind="instantaneous", resolution=1024.0,
                    meaning="memory that is not available to new processes"),
            Channel(name="memory.swapped", unit="B", kind="instantaneous", resolution=1024.0, meaning="swap in use"),
            Channel(name="disk.read", unit="B", kind="counter", resolution=512.0, status=status,
                    meaning="bytes read from all disks since the machine started"),
            Channel(name="disk.written", unit="B", kind="counter", resolution=512.0, status=status,
                    meaning="bytes written to all disks since the machine started"),
        )  # fmt: skip

    def read(self) -> Sequence[float]:
        """Return the six values."""
        psutil = self._psutil
        times, memory, disks = psutil.cpu_times(), psutil.virtual_memory(), _disks(psutil) if self._disks else None
        busy_s = sum(times) - times.idle - getattr(times, "iowait", 0.0)
        busy_s -= getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)  # counted within user already
        return (
            busy_s, getattr(times, "steal", math.nan), float(memory.total - memory.available),
            float(psutil.swap_memory().used), float(disks.read_bytes) if disks else math.nan,
            float(disks.write_bytes) if disks else math.nan,
        )  # fmt: skip

    def close(self) -> None:
        """Nothing is held."""


def _disks(psutil: Any) -> Any:
    try:
        return psutil.disk_io_counters()
    except (OSError, RuntimeError):
        return None


SOURCE = Host
