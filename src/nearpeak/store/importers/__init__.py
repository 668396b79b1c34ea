"""Registry of importers of result files, one module per file format, named by its stem."""

import hashlib
from pathlib import Path

from nearpeak.base.input_files import bytes_of_file, in_utf8, naming, reading, unpacked
from nearpeak.base.registry import Registry
from nearpeak.core.history.stored_run import RunRecord
from nearpeak.errors import SpecError
from nearpeak.exchange.file_kinds import HEAD_BYTES, described
from nearpeak.exchange.power_logs import LOGS
from nearpeak.store.importer import FileContext, Importer
from nearpeak.store.json_tree import is_lines, parsed, parsed_lines

__all__ = ["IMPORTERS", "FileContext", "Importer", "file_bytes", "file_digest", "importer_of", "runs_of_file"]


IMPORTERS: Registry[Importer] = Registry.of_modules(
    "IMPORTER", kind="importer", package=__name__, file=__file__, group="nearpeak.importers"
)
"""All formats by name; adding one is adding a file with an `IMPORTER`."""


def runs_of_file(data: bytes, context: FileContext, form: str | None = None) -> tuple[RunRecord, ...]:
    """Return the runs that the bytes of a result file hold.

    Args:
        form: name of the format; recognised by the bytes where it is none.

    Raises:
        SpecError: no format, or several, recognise it; or a field is missing or wrong.
    """
    with reading(context.name, "result file"), naming(context.name):
        importer = IMPORTERS[form] if form else importer_of(data, context.name)
        runs = importer.read(data, context)
    if not runs:
        raise SpecError(f"{context.name}: holds no measurements")
    return runs


def importer_of(data: bytes, name: str) -> Importer:
    """Return the format that recognises `data`.

    Raises:
        SpecError: none does, or several do, and which there are; or it is JSON that was cut off, and where.
    """
    importers = (IMPORTERS[stem] for stem in IMPORTERS)
    candidates = [importer for importer in importers if importer.recognises(data)]
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        names = ", ".join(importer.name for importer in candidates)
        raise SpecError(f"{name}: is of several formats; name it by --format: {names}")
    if words := described(data[:HEAD_BYTES], name):
        raise SpecError(f"{name}: {words}")
    if not data.strip():
        raise SpecError(f"{name}: is empty")
    if any(LOGS[log].recognises(data[:HEAD_BYTES].decode("utf-8", "replace")) for log in LOGS):
        raise SpecError(f"{name}: is a power log; 'nearpeak telemetry --import' reads it")
    if data.lstrip()[:1] in (b"{", b"["):
        (parsed_lines if is_lines(data) else parsed)(data, name)
    raise SpecError(f"{name}: is of no known format{_nearest(data)}; name it by --format: {', '.join(IMPORTERS)}")


def _nearest(data: bytes) -> str:
    """Return which format bytes come nearest to, and what they lack of it; empty where they are like none."""
    lacking = []
    for importer in (IMPORTERS[name] for name in IMPORTERS):
        missing = [mark for mark in importer.marks if not any(part.encode() in data for part in mark.split("|"))]
        if missing and 2 * len(missing) <= len(importer.marks):
            lacking.append((len(missing) / len(importer.marks), importer.name, missing))
    if not lacking:
        return ""
    _, name, missing = min(lacking)
    return f": the nearest is {name}, of which it lacks {' and '.join(mark.replace('|', ' or ') for mark in missing)}"


def file_bytes(path: Path) -> bytes:
    """Return the bytes of a result file in UTF-8, unpacked where it is a gzip file.

    Raises:
        SpecError: it is not there, is no file, is packed and damaged, or is over a limit.
    """
    return in_utf8(unpacked(bytes_of_file(path), path))


def file_digest(data: bytes) -> str:
    """Return the identity of a file's bytes: renamed or packed, it is the same file."""
    return hashlib.sha256(data).hexdigest()
