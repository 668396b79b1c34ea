"""Clocks of the CPU cores and the throttle counter of the package."""

from pathlib import Path

from nearpeak.core.runs.telemetry import Channel
from nearpeak.measurement.telemetry.sysfs_files import FileSource, NumberFile, by_number

MOST_CORES = 4
"""Cores that are read: each costs system calls, and of many cores some spread evenly show the same."""
_CLOCK = "clock as the scaling driver says it: measured since its last look, or as it was asked for"
_THROTTLE = "times that the package was throttled for its temperature since the machine started"


def source(root: Path) -> FileSource:
    """Return the clocks of up to four cores, spread evenly, and the first package's throttle counter."""
    cores = by_number(list((root / "sys/devices/system/cpu").glob("cpu[0-9]*")))
    clocked = [core for core in cores if (core / "cpufreq/scaling_cur_freq").exists()]
    chosen = clocked[:: -(-len(clocked) // MOST_CORES)] if clocked else []
    files = [
        (
            Channel(name=f"{core.name}.clock", unit="Hz", kind="instantaneous", meaning=_CLOCK, resolution=1e3),
            NumberFile(core / "cpufreq/scaling_cur_freq", 1e3),
        )
        for core in chosen
    ]
    counters = [core / "thermal_throttle/package_throttle_count" for core in cores]
    files += [(_COUNTER, NumberFile(path)) for path in counters if path.exists()][:1]
    return FileSource("cpu_clock", 100.0, files, "the system shows neither clocks nor throttle counters of its cores")


_COUNTER = Channel(name="cpu.throttle_count", unit="count", kind="counter", meaning=_THROTTLE, resolution=1.0)
SOURCE = source
