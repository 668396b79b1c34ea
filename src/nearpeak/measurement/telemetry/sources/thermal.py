"""Temperatures of the Linux thermal zones."""

from pathlib import Path

from nearpeak.core.runs.telemetry import Channel
from nearpeak.measurement.telemetry.sysfs_files import FileSource, NumberFile, by_number, text_of


class _Zone(NumberFile):
    """A zone's temperature: one that has none at the start, as of a modem that sleeps, has one when it wakes up."""

    def __init__(self, path: Path, factor: float) -> None:
        """Open it; only a file that cannot be opened stays unknown."""
        super().__init__(path, factor)
        if self._file >= 0:
            self.status = ""


def source(root: Path) -> FileSource:
    """Return one channel per thermal zone."""
    zones = by_number(list((root / "sys/class/thermal").glob("thermal_zone*")))
    files = [
        (
            Channel(
                name=f"{zone.name.removeprefix('thermal_')}.{text_of(zone / 'type') or 'unnamed'}.temperature",
                unit="celsius", kind="instantaneous", meaning="temperature of a zone, stated in millidegrees",
                resolution=1e-3,
            ),
            _Zone(zone / "temp", 1e-3),
        )
        for zone in zones
    ]  # fmt: skip
    return FileSource("thermal", 10.0, files, "the kernel watches no thermal zone here")


SOURCE = source
