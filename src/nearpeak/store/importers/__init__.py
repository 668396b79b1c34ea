"""Registry of importers of result files, one module per file format, named by its stem."""

import gzip
import hashlib
import zlib
from pathlib import Path

from nearpeak.base.registry import Registry
from nearpeak.core.history.stored_run import RunRecord
from nearpeak.errors import SpecError
from nearpeak.store.importer import FileContext, Importer
from nearpeak.store.json_tree import parsed

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
    if data.lstrip()[:1] in (b"{", b"["):
        _check_json(data, name)
    raise SpecError(f"{name}: is of no known format{_nearest(data)}; name it by --format: {', '.join(IMPORTERS)}")


def _check_json(data: bytes, name: str) -> None:
    """Refuse JSON that ends too early or is none, by its place; lines of JSON, one value each, are JSON too."""
    first, _, rest = data.strip().partition(b"\n")
    if rest and first.startswith(b"{") and first.rstrip().endswith(b"}"):
        for number, line in enumerate(data.splitlines(), 1):
            if line.strip():
                parsed(line, f"{name}: record {number}")
        return
    parsed(data, name)


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
    return f": {name} has {' and '.join(mark.replace('|', ' or ') for mark in missing)}, which is missing"


def file_bytes(path: Path) -> bytes:
    """Return the bytes of a result file, unpacked where it is a gzip file.

    Raises:
        SpecError: it is not there, is a folder, or is packed and damaged.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise SpecError(f"{path}: cannot be read: {error.strerror}") from None
    if data[:2] != b"\x1f\x8b":
        return data
    try:
        return gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        raise SpecError(f"{path}: is a damaged gzip file: {error}") from None


def file_digest(data: bytes) -> str:
    """Return the identity of a file's bytes: renamed or packed, it is the same file."""
    return hashlib.sha256(data).hexdigest()
