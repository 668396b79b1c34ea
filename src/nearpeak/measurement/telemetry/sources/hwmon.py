"""Temperatures, power, energy and clocks from Linux hwmon sensors, except power monitors of supply rails."""

from collections.abc import Iterator
from pathlib import Path

from nearpeak.core.runs.telemetry import Channel
from nearpeak.measurement.telemetry.sysfs_files import FileSource, NumberFile, by_number, text_of

_KINDS = {
    "temp*_input": ("temperature", "celsius", 1e-3, 1e-3, "instantaneous"),
    "power*_input": ("power", "W", 1e-6, 1e-6, "instantaneous"),
    "power*_average": ("power_mean", "W", 1e-6, 1e-6, "mean"),
    "energy*_input": ("energy", "J", 1e-6, 1e-6, "counter"),
    "freq*_input": ("clock", "Hz", 1.0, 1.0, "instantaneous"),
}
"""File, what it shows, base unit, factor to it, step: Linux kernel, Documentation/hwmon/sysfs-interface.rst."""


def source(root: Path) -> FileSource:
    """Return the sensors of every chip but power monitors of rails."""
    chips = by_number(list((root / "sys/class/hwmon").glob("hwmon*")))
    files = [sensor for chip in chips if not text_of(chip / "name").startswith("ina") for sensor in _files(chip)]
    return FileSource("hwmon", 10.0, files, "no chip under /sys/class/hwmon shows a sensor")


def _files(chip: Path) -> Iterator[tuple[Channel, NumberFile]]:
    for pattern, (quantity, unit, factor, step, kind) in _KINDS.items():
        for path in by_number(list(chip.glob(pattern))):
            place = path.name.partition("_")[0]
            label = text_of(chip / f"{place}_label") or place
            domain = f"{chip.name}.{text_of(chip / 'name') or 'chip'}.{label}"
            window = text_of(chip / f"{place}_average_interval") if kind == "mean" else ""
            yield (
                Channel(
                    name=f"{domain}.{quantity}", unit=unit, kind=kind, domain=domain if unit in ("W", "J") else "",
                    meaning="as its driver defines it, stated in steps of the file's unit; the sensor's may be coarser",
                    resolution=step, window_s=int(window) / 1e3 if window.isdigit() else None,
                ),
                NumberFile(path, factor),
            )  # fmt: skip


SOURCE = source
