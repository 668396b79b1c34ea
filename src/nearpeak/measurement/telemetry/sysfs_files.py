"""Numbers in small sysfs files, opened once and read repeatedly."""

import math
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from nearpeak.core.runs.telemetry import Channel
from nearpeak.measurement.telemetry.sources import Unavailable


class NumberFile:
    """A file that holds one number."""

    def __init__(self, path: Path, factor: float = 1.0) -> None:
        """Open it; `factor` converts its number to the base unit. `status` holds the reason why it cannot be read."""
        self._file, self._factor, self.status = -1, factor, ""
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            if math.isnan(self.read()):
                self.status = self.status or f"{path.name} holds no number"
        except PermissionError:
            self.status = f"permission denied: {path.name} may be read by another user only"
        except OSError as error:
            self.status = f"{path.name}: {error.strerror or error}"

    @property
    def place(self) -> tuple[int, float]:
        """Its descriptor and its factor, -1 where it could not be opened."""
        return self._file, self._factor

    def read(self) -> float:
        """Return its number in the base unit, NaN where it has none now."""
        return _numbers([self.place])[0]

    def close(self) -> None:
        """Close it."""
        if self._file >= 0:
            os.close(self._file)


class FileSource:
    """A source whose channels are one file each."""

    def __init__(self, name: str, most_hz: float, files: Sequence[tuple[Channel, NumberFile]], none: str) -> None:
        """Keep channels and files.

        Args:
            none: reason given where there are no files.

        Raises:
            Unavailable: no file can be read.
        """
        if not files:
            raise Unavailable(none)
        if all(file.status for _, file in files):
            raise Unavailable(f"{files[0][0].name}: {files[0][1].status}")
        self.name, self.most_hz = name, most_hz
        self.channels = tuple(replace(channel, status=file.status or channel.status) for channel, file in files)
        self._files = [file for _, file in files]
        self._places = [(-1, 1.0) if file.status else file.place for file in self._files]

    def read(self) -> Sequence[float]:
        """Return one value per file."""
        return _numbers(self._places)

    def close(self) -> None:
        """Close all files."""
        for file in self._files:
            file.close()


def _numbers(places: Sequence[tuple[int, float]]) -> list[float]:
    """Return the numbers of open files in their base units, NaN where there is none.

    In one function: after a sleep each further piece of cold code costs as much as a system call.
    """
    numbers = []
    for file, factor in places:
        try:
            numbers.append(float(os.pread(file, 64, 0)) * factor)
        except (OSError, ValueError):
            numbers.append(math.nan)
    return numbers


def text_of(path: Path) -> str:
    """Return the text of a file, empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip().strip("\0")
    except OSError:
        return ""


def by_number(paths: Sequence[Path]) -> list[Path]:
    """Return paths in the order of the numbers in their names.

    >>> [one.name for one in by_number([Path("cpu10"), Path("cpu2")])]
    ['cpu2', 'cpu10']
    """
    return sorted(
        paths, key=lambda path: [int(part) if part.isdigit() else 0 for part in re.findall(r"\d+", str(path))]
    )
