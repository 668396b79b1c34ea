"""Saves measurements of the current process to a store."""

import time
from collections.abc import Sequence

from nearpeak.core.history.stored_run import Device, Revision, RunRecord
from nearpeak.core.runs.measurement import Measurement
from nearpeak.store import open_store
from nearpeak.store.importers import FileContext, file_digest
from nearpeak.store.importers.nearpeak_results import runs_of_measurements


def kept(
    place: str, measurements: Sequence[Measurement], revision: Revision | None = None, branch: str = "main"
) -> int:
    """Put measurements into the store at `place`, all or none, and return how many runs they are.

    Raises:
        StoreError: the store cannot be opened or written.
    """
    with open_store(place, create=True) as store:
        return sum(result.new for result in store.ingest_all(runs_of_now(measurements, revision, branch)))


def runs_of_now(
    measurements: Sequence[Measurement], revision: Revision | None = None, branch: str = "main"
) -> tuple[RunRecord, ...]:
    """Return measurements of this process as runs that began now."""
    now_ns = time.time_ns()
    context = FileContext(
        name="nearpeak measure", digest=file_digest(repr((now_ns, measurements)).encode()), revision=revision,
        branch=branch, device=Device(name=measurements[0].target), trigger="manual", started_ns=now_ns,
    )  # fmt: skip
    return runs_of_measurements(measurements, context)
