"""Append-only result files: one synced line per measurement, from which an interrupted run resumes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from nearpeak.base.canonical_json import canonical_json
from nearpeak.base.file_lock import try_lock
from nearpeak.base.folders import synchronise, why_foreign
from nearpeak.base.input_files import border, text_of_file
from nearpeak.core.runs.measurement import Measurement
from nearpeak.errors import SpecError
from nearpeak.exchange.measurement_lines import environment_record, measurement_record, parse_results

_HEADS = (b'{"algorithm":', b'{"device":')
"""Beginnings of lines: only an incomplete last line with one of them is removed from a file."""


class ResultFile:
    """A result file that this process alone writes."""

    def __init__(self, file: int, path: Path) -> None:
        """Read the stored results; an incomplete last line is removed, as its case will run again."""
        self.path, self._file = path, file
        text = b"".join(iter(partial(os.read, file, 1 << 20), b""))
        end = text.rfind(b"\n") + 1
        self._environments, stored = parse_results(text[:end].decode("utf-8", "replace"), str(path))
        cut_off = text[end:]
        if not any(head.startswith(cut_off[: len(head)]) for head in _HEADS):
            raise SpecError(f"{path}: is no result file; it ends with {cut_off.decode('utf-8', 'replace')[:40]!r}")
        if cut_off:
            os.ftruncate(file, end)
        os.lseek(file, 0, os.SEEK_END)
        self.keys = set(stored)

    def append(self, measurement: Measurement, key: str) -> None:
        """Write one measurement, which is on disk when this returns.

        Raises:
            SpecError: the file already holds it, or cannot be written; its contents are then unchanged.
        """
        if key in self.keys:
            raise SpecError(f"{self.path}: already holds {measurement.case.label()} by {measurement.runner}")
        lines = []
        environment = measurement.environment
        if environment is not None and environment.digest not in self._environments:
            lines.append(canonical_json(environment_record(environment)))
            self._environments[environment.digest] = environment
        lines.append(canonical_json(measurement_record(measurement, key)))
        append_whole(self._file, ("\n".join(lines) + "\n").encode(), self.path)
        self.keys.add(key)


@contextmanager
def result_file(path: Path) -> Iterator[ResultFile]:
    """Hold `path` as a result file.

    Raises:
        SpecError: another process writes it, or it is no result file.
    """
    with held_file(path) as file:
        yield ResultFile(file, path)


def append_whole(file: int, data: bytes, path: Path) -> None:
    """Append all of `data` or nothing to a locked file; the data are on disk when this returns.

    Raises:
        SpecError: it cannot be written.
    """
    end = os.lseek(file, 0, os.SEEK_END)
    try:
        while data:
            data = data[os.write(file, data) :]
        os.fsync(file)
    except OSError as error:
        os.ftruncate(file, end)
        raise SpecError(
            f"{path}: cannot be written: {error.strerror}; it holds what ran until now, "
            "and the same command goes on from there"
        ) from None


@contextmanager
def held_file(path: Path) -> Iterator[int]:
    """Lock a file for writing by this process alone; a new one is removed if the block fails and it is empty.

    Raises:
        SpecError: another process writes it, or it is no file.
    """
    new = not path.exists()
    if not new and not path.is_file():  # a device may never end
        raise SpecError(f"{path}: is no file that can be read again; name one")
    if why := why_foreign(path):
        raise SpecError(f"{path}: {why}; remove it, or name another file")
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        if not try_lock(file, path) or not os.fstat(file).st_nlink:  # its creator may have removed it since then
            raise SpecError(f"{path}: another process writes it; name another file")
        if new:
            synchronise(path.resolve().parent)
        try:
            yield file
        except BaseException:
            if new and not os.fstat(file).st_size:
                path.unlink(missing_ok=True)
            raise
    finally:
        os.close(file)


@border("results")
def read_results(path: Path) -> tuple[Measurement, ...]:
    """Return the measurements of a result file, in order; a last line that is still being written is left out.

    Raises:
        SpecError: it is no result file.
    """
    text = text_of_file(path, errors="replace")
    return tuple(parse_results(text[: text.rfind("\n") + 1], str(path))[1].values())
