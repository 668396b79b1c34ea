"""Energy counters of the CPU from RAPL, through Linux powercap."""

from collections.abc import Iterator
from pathlib import Path

from nearpeak.core.runs.telemetry import Channel
from nearpeak.measurement.telemetry.sysfs_files import FileSource, NumberFile, by_number, text_of

_STEP_J = 2.0**-14
"""Coarsest usual step of the counters, 61 µJ; servers have 2^-14 or 2^-16 (Intel SDM volume 3B, 15.10.1)."""
_UPDATE_S = 1e-3
"""Usual time between two values (Intel SDM volume 3B, 15.10.3: about one millisecond)."""
_MEANING = "energy since an arbitrary start, of a model of the processor's activity or of its regulator"


def source(root: Path) -> FileSource:
    """Return the counters of all packages, cores and memories."""
    folder = root / "sys/class/powercap"
    zones = by_number([path for path in folder.glob("*-rapl:*") if (path / "energy_uj").exists()])
    none = f"{folder} has no RAPL zones: no such counter, or a virtual machine"
    return FileSource("rapl", 100.0, list(_files(zones)), none)


def _files(zones: list[Path]) -> Iterator[tuple[Channel, NumberFile]]:
    seen: set[Path] = set()
    for zone in zones:
        place = zone.resolve()
        if place in seen or zone.name.startswith("intel-rapl-mmio"):  # the same counters seen another way
            continue
        seen.add(place)
        domain = _domain(zone)
        top = text_of(zone / "max_energy_range_uj")
        channel = Channel(
            name=f"{domain}.energy", unit="J", kind="counter", domain=domain, meaning=_MEANING, resolution=_STEP_J,
            update_s=_UPDATE_S, rollover=float(top) * 1e-6 if top.isdigit() else None,
        )  # fmt: skip
        yield channel, NumberFile(zone / "energy_uj", 1e-6)


def _domain(zone: Path) -> str:
    """Return the name of a zone with that of its package: `package-0`, `package-0/dram`."""
    name, parts = text_of(zone / "name") or zone.name, zone.name.split(":")
    if len(parts) < 3:
        return name
    parent = zone.with_name(":".join(parts[:-1]))
    return f"{text_of(parent / 'name') or parent.name}/{name}"


SOURCE = source
