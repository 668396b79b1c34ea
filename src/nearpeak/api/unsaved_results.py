"""Results measured into a file but not yet stored: a later run uploads what an interrupted one left."""

import hashlib
import json
import time
from dataclasses import dataclass
from pathlib import Path

from nearpeak.base.canonical_json import canonical_json
from nearpeak.base.folders import whole_file
from nearpeak.core.history.stored_run import Revision, RunRecord
from nearpeak.core.records.record_codec import Codec
from nearpeak.errors import SpecError
from nearpeak.measurement.result_file import read_results, result_file
from nearpeak.store.importers.nearpeak_results import runs_at

_RECORDS = Codec(strict=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsavedResults:
    """What a call that measures promises: results of its file, from one on, belong to a store under a commit."""

    destination: str
    """Store and dashboard that take them, without passwords."""
    branch: str
    """Branch whose history they belong to."""
    began_ns: int
    """When the call began, since 1970 UTC."""
    first_count: int
    """Results that the file held before."""
    revision: Revision | None = None
    """Commit that is measured."""

    def runs(self, out: Path) -> tuple[RunRecord, ...]:
        """Return the results as runs whose identity follows from them, so that they are saved only once."""
        measurements = list(read_results(out))[self.first_count :] if out.exists() else []
        if not measurements:
            return ()
        text = canonical_json([_RECORDS.plain(self), [repr(measurement) for measurement in measurements]])
        digest = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
        return runs_at(measurements, self.began_ns, digest, revision=self.revision, branch=self.branch)


def begin(out: Path, destination: str, revision: Revision | None, branch: str) -> UnsavedResults:
    """Note beside a result file where the results of this call belong, before the first is measured.

    Raises:
        SpecError: another process writes the file, or it is no result file.
    """
    count = 0
    if out.exists():
        with result_file(out) as file:
            count = len(file.keys)
    unsaved = UnsavedResults(
        destination=destination, branch=branch, began_ns=time.time_ns(), first_count=count, revision=revision
    )
    with whole_file(_note(out)) as part:
        part.write_bytes(f"{canonical_json(_RECORDS.plain(unsaved))}\n".encode("utf-8", "surrogateescape"))
    return unsaved


def left(out: Path, destination: str) -> UnsavedResults | None:
    """Return what a call that was stopped left unsaved; none where there is nothing.

    Raises:
        SpecError: it belongs to another store, or the note is damaged.
    """
    path = _note(out)
    if not path.exists():
        return None
    if out.exists():
        with result_file(out):  # whoever still measures saves them itself
            pass
    try:
        unsaved: UnsavedResults = _RECORDS.value(
            json.loads(path.read_text(encoding="utf-8", errors="surrogateescape")), UnsavedResults, str(path)
        )
    except ValueError as error:
        raise SpecError(
            f"{path}: says which results are not saved yet, and is damaged ({error}); 'nearpeak store import {out}'"
            " saves them, then remove it"
        ) from None
    if not unsaved.runs(out):
        end(out)
        return None
    if unsaved.destination != destination:
        raise SpecError(
            f"{out}: holds results that {unsaved.destination} has not taken yet; name it again, or remove {path}"
        )
    return unsaved


def end(out: Path) -> None:
    """Remove the note: everything is saved."""
    _note(out).unlink(missing_ok=True)


def _note(out: Path) -> Path:
    return out.with_name(f"{out.name}.unsaved")
