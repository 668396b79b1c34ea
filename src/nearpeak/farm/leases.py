"""Device leases with fencing tokens: acquire, start, renew, publish, release, timed by the database clock alone."""

import json
import os
import platform
import secrets
import time
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, func, insert, select, update

from nearpeak.core.history.stored_run import TRIGGERS
from nearpeak.farm.job_queue import (
    ATTEMPT,
    BATCH,
    JOB,
    LEASE,
    NS,
    RESULT,
    attempt_count,
    freed,
    set_state,
    why_given_up,
)
from nearpeak.farm.jobs import FINAL, Device, Lease, LeasedJob, Outcome, text_of
from nearpeak.store import Store
from nearpeak.store.run_ingest import add_run, lock_runs, prepared, stored_run
from nearpeak.store.sql_dialect import add_rows, claim, now_ns, writing

TTL_S = 60.0
"""How long a lease lives unless it is renewed."""
INFRA_COUNT = 3
"""Times that a batch may meet an unfit host or device before it fails."""
BACK_OFF_S = 10.0
"""Wait after the first unfit host or device; it doubles with each, five times at most."""
_DOUBLINGS = 5
_LATE_DOUBLINGS = 4
_EVIDENCE_BYTES = 1 << 20
DRAINING, OVER, BUSY, ELSEWHERE = "draining", "over", "busy", "elsewhere"
"""Why a lease was not given: the device takes nothing new; the batch is finished; either is held; it belongs on the
device that the comparison began on."""


def holder_name() -> str:
    """Return a name that no other holder has: host, process, and a random word."""
    return f"{platform.node()}:{os.getpid()}:{secrets.token_hex(4)}"


def steady_s() -> float:
    """Return a clock that never steps and goes on while the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def take(store: Store, devices: Sequence[str], batch: int, ttl_s: float = TTL_S, holder: str = "") -> Lease | str:
    """Return the lease of one of `devices` for a batch, or why there is none.

    One transaction: a device that is free, or whose lease expired, gets the batch and the next token. The lease is
    twice as long after each execution that outlived its own, four times at most: a slow host gets there, too.
    """
    holder, began_s = holder or holder_name(), steady_s()
    with writing(store.engine, store.name) as connection:
        return _taken(connection, devices, batch, ttl_s, (holder, began_s))


def _taken(
    connection: Connection, devices: Sequence[str], batch: int, ttl_s: float, who: tuple[str, float]
) -> Lease | str:
    row, at_ns = _free_device(connection, devices, batch), now_ns(connection)
    if isinstance(row, str):
        return row
    pin = connection.execute(select(BATCH.c.comparison).where(BATCH.c.id == batch)).scalar()
    if pin:
        claim(connection, f"comparison {pin}")
    expired = _expired(connection, batch, row, at_ns)
    if expired is None:
        return BUSY
    wanted = _freed_batch(connection, batch, expired, at_ns)
    if wanted == BUSY:
        return BUSY
    if wanted is None or wanted.state in FINAL:
        return OVER
    if not _fits(connection, wanted, row):
        return ELSEWHERE
    token = row.fencing_token + 1
    ttl_s *= 2 ** min(attempt_count(connection, batch, "rejected"), _LATE_DOUBLINGS)
    connection.execute(
        update(LEASE)
        .where(LEASE.c.id == row.id)
        .values(job_batch_id=batch, holder=who[0], fencing_token=token, expires_ns=at_ns + int(ttl_s * NS))
    )
    attempt = {
        "job_batch_id": batch, "device": row.name, "fencing_token": token, "holder": who[0], "begun_ns": at_ns,
        "ended_ns": None, "outcome": "running", "note": "", "preflight": "", "postflight": "", "evidence": "",
    }  # fmt: skip
    number = int(connection.execute(insert(ATTEMPT).values(attempt).returning(ATTEMPT.c.id)).scalar_one())
    set_state(
        connection, batch, "leased", at_ns, held_by=row.name, fencing_token=token,
        attempt_count=wanted.attempt_count + 1,
    )  # fmt: skip
    jobs = connection.execute(select(JOB).where(JOB.c.job_batch_id == batch).order_by(JOB.c.place)).all()
    return Lease(
        device=Device(name=row.name, pool=row.pool, host=row.host, model=row.model, parent=row.parent), batch=batch,
        uid=wanted.uid, attempt=number, holder=who[0], fencing_token=token, ttl_s=ttl_s, began_s=who[1],
        jobs=tuple(LeasedJob(id=job.id, uid=job.uid, kind=job.kind, text=job.payload) for job in jobs),
    )  # fmt: skip


def _free_device(connection: Connection, devices: Sequence[str], batch: int) -> Any:
    """Return the row of a device that is to be had, held by this transaction; or why there is none.

    One on which the batch failed less often goes before others.
    """
    at_ns = now_ns(connection)
    free = (LEASE.c.job_batch_id.is_(None)) | (LEASE.c.expires_ns <= at_ns)
    query = select(LEASE).where(LEASE.c.name.in_(list(devices)))
    failed = select(func.count()).where(
        ATTEMPT.c.job_batch_id == batch, ATTEMPT.c.device == LEASE.c.name, ATTEMPT.c.outcome == "infra"
    )
    open_ = query.where(free, LEASE.c.service == "open").order_by(failed.scalar_subquery(), LEASE.c.name)
    row = connection.execute(open_.limit(1).with_for_update(skip_locked=True)).one_or_none()
    if row is not None:
        return row
    is_open = connection.execute(query.where(LEASE.c.service == "open").limit(1)).first()
    return BUSY if is_open else DRAINING


def _expired(connection: Connection, batch: int, row: Any, at_ns: int) -> list[Any] | None:
    """Return the expired leases that go with taking a device, held by this transaction: its own, and the batch's.

    None where the batch is held by a lease that lives, or by one that somebody else is just freeing. Leases are locked
    before batches, as everywhere, and never waited for while another one is held.
    """
    mine = select(LEASE).where(LEASE.c.job_batch_id == batch)
    seen = {held_row.name: held_row for held_row in connection.execute(mine).all()}
    if any(held_row.expires_ns > at_ns for held_row in seen.values()):
        return None
    held = {held_row.name: held_row for held_row in connection.execute(mine.with_for_update(skip_locked=True)).all()}
    if set(held) != set(seen) or any(held_row.expires_ns > at_ns for held_row in held.values()):
        return None
    rows = {row.name: row} if row.job_batch_id is not None else {}
    return list((held | rows).values())


def _freed_batch(connection: Connection, batch: int, expired: Sequence[Any], at_ns: int) -> Any:
    """Return the row of a batch once expired leases are freed, which may have ended it; none where there is none.

    `BUSY` where it was leased before this transaction held it; nothing is freed then.
    """
    ids = sorted({batch, *(row.job_batch_id for row in expired)})
    wanted = select(BATCH).where(BATCH.c.id.in_(ids)).order_by(BATCH.c.id)
    connection.execute(wanted.with_for_update()).all()
    mine = select(LEASE.c.name).where(LEASE.c.job_batch_id == batch)
    if not {row.name for row in expired}.issuperset(connection.execute(mine).scalars()):
        return BUSY
    for row in expired:
        freed(connection, row.name, row.job_batch_id, row.fencing_token, at_ns)
    return connection.execute(select(BATCH).where(BATCH.c.id == batch)).one_or_none()


def _fits(connection: Connection, wanted: Any, row: Any) -> bool:
    """Say whether the batch may run on the device: all rounds of a comparison run where the first one did."""
    if wanted.pool != row.pool or (wanted.device not in ("", row.name)) or (wanted.model not in ("", row.model)):
        return False
    if not wanted.comparison:
        return True
    begun = select(BATCH.c.held_by).where(
        BATCH.c.comparison == wanted.comparison, BATCH.c.held_by != "", BATCH.c.state != "queued"
    )
    return set(connection.execute(begun).scalars()) <= {row.name}


def start(store: Store, lease: Lease, preflight: Mapping[str, Any]) -> bool:
    """Mark the batch as running, record the preflight state of its device, and return whether the lease still lives."""
    with writing(store.engine, store.name) as connection:
        if not _live(connection, lease):
            return False
        connection.execute(
            update(ATTEMPT).where(ATTEMPT.c.id == lease.attempt).values(preflight=text_of(dict(preflight)))
        )
        set_state(connection, lease.batch, "running", now_ns(connection))
        return True


def renew(store: Store, lease: Lease) -> bool:
    """Prolong the lease by its life, counted from now; return whether it was still held, and the batch still wanted."""
    with writing(store.engine, store.name) as connection:
        if not _live(connection, lease):
            return False
        ends = now_ns(connection) + int(lease.ttl_s * NS)
        connection.execute(update(LEASE).where(LEASE.c.name == lease.device.name).values(expires_ns=ends))
        return True


def publish(
    store: Store, lease: Lease, outcomes: Sequence[Outcome], postflight: Mapping[str, Any] = {}, note: str = ""
) -> bool:
    """Make the results count and free the device, in one transaction; return whether they count.

    Without the lease nothing counts: the results are stored with the attempt, as evidence, and enter no history. Called
    again after they were accepted, as by a holder that did not hear of it, it says so and changes nothing.
    """
    with writing(store.engine, store.name) as connection:
        live, at_ns = _live(connection, lease), now_ns(connection)
        flight = {"postflight": text_of(dict(postflight)), "ended_ns": at_ns, "note": note}
        mine = update(ATTEMPT).where(ATTEMPT.c.id == lease.attempt)
        if not live and _is_accepted(connection, lease):
            return True
        if not live:
            evidence = f"[{','.join(outcome.text for outcome in outcomes)}]"[:_EVIDENCE_BYTES]
            connection.execute(mine.values(outcome="rejected", evidence=evidence, **flight))
            return False
        connection.execute(mine.values(outcome="accepted", **flight))
        both = list(zip(lease.jobs, outcomes, strict=True))
        rows = [
            (job.id, lease.attempt, outcome.time_s, outcome.text, zlib.crc32(outcome.text.encode()), at_ns)
            for job, outcome in both
        ]
        add_rows(connection, RESULT, rows)
        failed = [job.id for job, outcome in both if outcome.failed]
        if failed:
            connection.execute(update(JOB).where(JOB.c.id.in_(failed)).values(state="failed"))
        cost_s = sum(outcome.time_s for outcome in outcomes)
        state = "failed" if len(failed) == len(outcomes) else "done"
        set_state(connection, lease.batch, state, at_ns, cost_s=cost_s, note=note)
        _release(connection, lease)
        _into_history(connection, lease, outcomes)
        return True


def _into_history(connection: Connection, lease: Lease, outcomes: Sequence[Outcome]) -> None:
    """Write each measurement as a run whose identity follows from its job, so that it can stand there only once."""
    query = select(BATCH.c.run_trigger, ATTEMPT.c.begun_ns).join_from(ATTEMPT, BATCH)
    trigger, begun_ns = connection.execute(query.where(ATTEMPT.c.id == lease.attempt)).one().tuple()
    why = trigger if trigger in TRIGGERS else "manual"  # older queues took any word
    for job, outcome in zip(lease.jobs, outcomes, strict=True):
        if job.kind == "measure" and (result := json.loads(outcome.text)).get("measurement") is not None:
            _write_run(connection, lease, job.uid, (job.payload, result), (why, begun_ns))


def _write_run(
    connection: Connection, lease: Lease, uid: str, what: tuple[Mapping[str, Any], Any], begun: tuple[str, int]
) -> None:
    from nearpeak.core.history.stored_run import Device as Place
    from nearpeak.exchange.measurement_lines import environment_of, measurement_of
    from nearpeak.farm.kinds.measure import revision_in
    from nearpeak.store.importers import FileContext, file_digest
    from nearpeak.store.importers.nearpeak_results import runs_of_measurements

    payload, result = what
    environment = environment_of(result["environment"]) if result["environment"] else None
    known = {environment.digest: environment} if environment else {}
    measurement = measurement_of(result["measurement"], known, f"job {uid}")
    context = FileContext(
        name=f"farm job {uid}", digest=file_digest(uid.encode()), revision=revision_in(payload),
        branch=payload.get("branch") or "main", host=lease.device.host, started_ns=begun[1], trigger=begun[0],
        device=Place(name=measurement.target or lease.device.model or lease.device.name, host=lease.device.host),
    )  # fmt: skip
    for record in runs_of_measurements([measurement], context):
        ready = prepared(record)
        lock_runs(connection)
        if stored_run(connection, ready.uid) is None:
            add_run(connection, ready, {})


def give_back(
    store: Store, lease: Lease, note: str, *, outcome: str = "infra", is_unfit: bool = False, is_passing: bool = False
) -> bool:
    """Free the device and return the batch to the queue, later with each time; return whether the lease still lived.

    Args:
        outcome: `infra` counts towards the attempts that a batch has; `rejected` says that the lease ended, or nearly,
            while its holder worked on, and lengthens the next one; `lost` that the holder hung.
        is_unfit: the device does not answer; the second time in a row takes it out of service.
        is_passing: it will do later (hot, locked, others on it), which counts against neither batch nor device.
    """
    with writing(store.engine, store.name) as connection:
        live, at_ns = _live(connection, lease), now_ns(connection)
        if not live and _is_accepted(connection, lease):
            return False
        mine = update(ATTEMPT).where(ATTEMPT.c.id == lease.attempt)
        connection.execute(mine.values(outcome=outcome, ended_ns=at_ns, note=note))
        if not live:
            return False
        row = connection.execute(select(BATCH.c.infra_count).where(BATCH.c.id == lease.batch)).one()
        is_infra = outcome == "infra"
        count = row.infra_count + (is_infra and not is_passing)
        # The wait doubles with each unfit host or device that the batch has met.
        doublings = min(max(0, attempt_count(connection, lease.batch, "infra") - 1), _DOUBLINGS)
        wait_ns = int(BACK_OFF_S * 2**doublings * NS) if is_infra else 0
        why = f"failed: {count} times unfit: {note}" if count >= INFRA_COUNT else why_given_up(connection, lease.batch)
        state = "failed" if why else "queued"
        more = {"infra_count": count, "not_before_ns": at_ns + wait_ns, "note": why or note}
        set_state(connection, lease.batch, state, at_ns, **more)
        _release(connection, lease, failures=1 if is_unfit else None)
        return True


def _is_accepted(connection: Connection, lease: Lease) -> bool:
    """Say whether the results of this attempt count already."""
    query = select(ATTEMPT.c.outcome).where(ATTEMPT.c.id == lease.attempt)
    return bool(connection.execute(query).scalar() == "accepted")


def _release(connection: Connection, lease: Lease, failures: int | None = 0) -> None:
    """Free the device; its token stays, so that the next one is greater.

    Args:
        failures: 0 clears how often it did not answer, 1 adds one and takes the device out of service at two.
    """
    values: dict[str, Any] = {"job_batch_id": None, "holder": ""}
    if failures == 0:
        values["failure_count"] = 0
    elif failures:
        row = connection.execute(select(LEASE.c.failure_count).where(LEASE.c.name == lease.device.name)).one()
        values["failure_count"] = row.failure_count + 1
        if row.failure_count + 1 >= 2:
            values |= {"service": "quarantined", "note": "it did not answer twice in a row"}
    connection.execute(update(LEASE).where(LEASE.c.name == lease.device.name).values(values))


def _live(connection: Connection, lease: Lease) -> bool:
    """Say whether the lease is held, not expired, and its batch still this holder's; both rows are locked."""
    row = connection.execute(select(LEASE).where(LEASE.c.name == lease.device.name).with_for_update()).one_or_none()
    if row is None or row.fencing_token != lease.fencing_token or row.job_batch_id != lease.batch:
        return False
    batch = connection.execute(select(BATCH).where(BATCH.c.id == lease.batch).with_for_update()).one()
    if batch.held_by != lease.device.name or batch.fencing_token != lease.fencing_token:
        return False
    if batch.state in FINAL:  # it was cancelled: the device is free again
        connection.execute(update(LEASE).where(LEASE.c.name == lease.device.name).values(job_batch_id=None, holder=""))
        return False
    return bool(row.expires_ns > now_ns(connection))
