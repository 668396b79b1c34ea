"""Clocks of the processor's cores, and how often it throttled."""

from pathlib import Path

from nearpeak.core.telemetry import Channel
from nearpeak.measure.telemetry.sources._sysfs import FileSource, NumberFile, by_number

MOST_CORES = 8
"""Cores that are read: each takes microseconds, and of many cores some spread evenly show the same."""


def source(root: Path) -> FileSource:
    """Return clock and throttle counter of up to eight cores, spread evenly."""
    cores = by_number(list((root / "sys/devices/system/cpu").glob("cpu[0-9]*")))
    chosen = cores[:: -(-len(cores) // MOST_CORES)] if cores else []
    files = []
    for core in chosen:
        clock, throttle = core / "cpufreq/scaling_cur_freq", core / "thermal_throttle/core_throttle_count"
        if clock.exists():
            meaning = "clock as the scaling driver says it: measured since its last look, or as it was asked for"
            channel = Channel(name=f"{core.name}.clock", unit="Hz", kind="instantaneous", meaning=meaning, resolution=1e3)
            files.append((channel, NumberFile(clock, 1e3)))
        if throttle.exists():
            meaning = "times that the core was throttled for its temperature since the machine started"
            channel = Channel(name=f"{core.name}.throttle_count", unit="count", kind="counter", meaning=meaning, resolution=1.0)
            files.append((channel, NumberFile(throttle)))
    return FileSource("cpu_clock", 100.0, files, "the system shows neither clocks nor throttle counters of its cores")


SOURCE = source
