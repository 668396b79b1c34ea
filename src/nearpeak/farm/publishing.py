"""Accepted measurements into the history, within the transaction that accepts them."""

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, select

from nearpeak.core.history import TRIGGERS
from nearpeak.farm.queue import ATTEMPT, BATCH
from nearpeak.farm.values import Lease
from nearpeak.store.dialect import claim
from nearpeak.store.ingest import add_run, prepared, stored_run

if TYPE_CHECKING:
    from nearpeak.farm.leases import Outcome


def into_history(connection: Connection, lease: Lease, outcomes: "Sequence[Outcome]") -> None:
    """Write each measurement as a run whose identity follows from its job, so that it can stand there only once."""
    asked = select(BATCH.c.run_trigger, ATTEMPT.c.begun_ns).join_from(ATTEMPT, BATCH)
    trigger, begun_ns = connection.execute(asked.where(ATTEMPT.c.id == lease.attempt)).one().tuple()
    why = trigger if trigger in TRIGGERS else "manual"  # older queues took any word
    for job, one in zip(lease.jobs, outcomes, strict=True):
        if job.kind == "measure" and (result := json.loads(one.text)).get("measurement") is not None:
            _write(connection, lease, job.uid, (job.payload, result), (why, begun_ns))


def _write(
    connection: Connection, lease: Lease, uid: str, what: tuple[Mapping[str, Any], Any], begun: tuple[str, int]
) -> None:
    from nearpeak.core.history import Device as Place
    from nearpeak.exchange.measurement_lines import environment_of, measurement_of
    from nearpeak.farm.kinds.measure import revision_in
    from nearpeak.store.importers import Given, file_digest
    from nearpeak.store.importers.nearpeak_results import runs_of_measurements

    payload, result = what
    environment = environment_of(result["environment"]) if result["environment"] else None
    known = {environment.digest: environment} if environment else {}
    found = measurement_of(result["measurement"], known, f"job {uid}")
    given = Given(
        name=f"farm job {uid}", digest=file_digest(uid.encode()), revision=revision_in(payload),
        branch=payload.get("branch") or "main", host=lease.device.host, started_ns=begun[1], trigger=begun[0],
        device=Place(name=found.target or lease.device.model or lease.device.name, host=lease.device.host),
    )  # fmt: skip
    for record in runs_of_measurements([found], given):
        ready = prepared(record)
        claim(connection, ready.uid)
        if stored_run(connection, ready.uid) is None:
            add_run(connection, ready, {})
