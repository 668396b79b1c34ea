"""CPU time, memory, swap and disk traffic of the host, from /proc or psutil."""

import importlib
import importlib.util
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from nearpeak.core.runs.telemetry import Channel
from nearpeak.measurement.telemetry.sources import Unavailable

_TIMES = "CPU time of all cores together since the machine started, from the system's accounting"

_STAT, _MEMORY, _DISKS, _WHOLE = "proc/stat", "proc/meminfo", "proc/diskstats", "sys/block"
_ENTRIES = (b"MemTotal:", b"MemAvailable:", b"SwapTotal:", b"SwapFree:")
Pair = Callable[[], tuple[float, float]]


class Host:
    """Counters of the whole machine; utilisation over a window is the growth of `cpu.busy` over time and cores."""

    name, most_hz = "host", 10.0

    def __init__(self, root: Path) -> None:
        """Refuse where there are neither the files of Linux nor psutil, which reads the running system only."""
        has_psutil = importlib.util.find_spec("psutil") and root == Path("/")
        if not has_psutil and not all((root / name).exists() for name in (_STAT, _MEMORY)):
            why = (
                "psutil is not installed; install psutil"
                if root == Path("/")
                else "psutil reads the running system only"
            )
            raise Unavailable(f"{root} has no {_STAT} and {_MEMORY}, and {why}")
        self._psutil: Any = importlib.import_module("psutil") if has_psutil else None
        self._root = root
        self._files: list[int] = []
        self._times, self._memory, disks = self._time_reader(), self._memory_reader(), self._disk_reader()
        self._disks = disks or (lambda: (math.nan, math.nan))
        status = "" if disks else "the system counts no disk traffic here"
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
        return *self._times(), *self._memory(), *self._disks()

    def close(self) -> None:
        """Close the files of the system."""
        for file in self._files:
            os.close(file)

    def _file(self, name: str) -> int:
        self._files.append(os.open(self._root / name, os.O_RDONLY | os.O_CLOEXEC))
        return self._files[-1]

    def _time_reader(self) -> Pair:
        """Return the reader of busy and stolen CPU time: on Linux from an open file, which costs less."""
        psutil = self._psutil
        if not (self._root / _STAT).exists():

            def from_psutil() -> tuple[float, float]:
                times = psutil.cpu_times()
                busy_s = sum(times) - times.idle - getattr(times, "iowait", 0.0)
                return busy_s, getattr(times, "steal", math.nan)

            return from_psutil
        file, tick_s = self._file(_STAT), 1 / os.sysconf("SC_CLK_TCK")

        def read() -> tuple[float, float]:
            user, nice, system, _, _, irq, softirq, stolen = map(int, os.pread(file, 256, 0).split(None, 9)[1:9])
            return tick_s * (user + nice + system + irq + softirq + stolen), tick_s * stolen

        return read

    def _memory_reader(self) -> Pair:
        """Return the reader of unavailable memory and used swap: on Linux from an open file, which costs less."""
        psutil = self._psutil
        if not (self._root / _MEMORY).exists():

            def from_psutil() -> tuple[float, float]:
                memory = psutil.virtual_memory()
                return float(memory.total - memory.available), float(psutil.swap_memory().used)

            return from_psutil
        file = self._file(_MEMORY)

        def read() -> tuple[float, float]:
            words = os.pread(file, 4096, 0).split()
            kib = {name: words[words.index(name) + 1] for name in _ENTRIES if name in words}
            total, available, swap, free = (float(kib.get(name, b"nan")) * 1024 for name in _ENTRIES)
            return total - available, swap - free

        return read

    def _disk_reader(self) -> Pair | None:
        """Return the reader of bytes read from and written to whole disks; none where they are not counted."""
        if not (self._root / _DISKS).exists():
            return self._disks_of_psutil()
        file, folder = self._file(_DISKS), self._root / _WHOLE
        whole = {name.encode() for name in os.listdir(folder)} if folder.is_dir() else set()

        def read() -> tuple[float, float]:
            rows = [line.split() for line in os.pread(file, 1 << 16, 0).splitlines()]
            disks = [row for row in rows if len(row) > 9 and row[2] in whole]
            return 512.0 * sum(int(row[5]) for row in disks), 512.0 * sum(int(row[9]) for row in disks)

        return read if whole else None

    def _disks_of_psutil(self) -> Pair | None:
        psutil = self._psutil
        try:
            counters = psutil.disk_io_counters() if psutil else None
        except (OSError, RuntimeError):
            counters = None

        def from_psutil() -> tuple[float, float]:
            total = psutil.disk_io_counters()
            return float(total.read_bytes), float(total.write_bytes)

        return from_psutil if counters else None


SOURCE = Host
