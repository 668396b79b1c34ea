"""Queue overview of the farm: holder of each device; waiting, running and failed jobs."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select

from nearpeak.farm.farm_status import STATE
from nearpeak.farm.job_queue import ATTEMPT, BATCH, JOB, LEASE, RESULT
from nearpeak.store import Store
from nearpeak.store.sql_dialect import reading


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """The lease of a device."""

    batch: int
    """Batch that holds it."""
    job: str
    """Identity of the first of its jobs."""
    kind: str
    """Kind of that job."""
    job_count: int
    """Jobs of the batch."""
    since_ns: int | None
    """When its attempt began, by the clock of the database."""
    expires_ns: int
    """When the lease ends unless it is renewed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job as lists show it."""

    uid: str
    """Identity."""
    kind: str
    """Kind."""
    subject: str
    """Subject."""
    state: str
    """State."""
    priority: int
    """1 is first."""
    owner: str
    """Owner."""
    trigger: str
    """Reason of the submission."""
    device: str
    """Current or last device."""
    attempt_count: int
    """Number of attempts."""
    note: str
    """Note."""
    created_ns: int
    """Time of submission by the database clock."""
    result: str
    """Result as JSON; empty while there is none."""


def holdings(store: Store) -> dict[str, Holding]:
    """Return what each device that is leased is held by."""
    leased = select(LEASE.c.job_batch_id).where(LEASE.c.job_batch_id.is_not(None))
    batches = (
        select(JOB.c.job_batch_id, func.min(JOB.c.id).label("first"), func.count().label("job_count"))
        .where(JOB.c.job_batch_id.in_(leased)).group_by(JOB.c.job_batch_id).subquery()
    )  # fmt: skip
    tried = (ATTEMPT.c.device == LEASE.c.name) & (ATTEMPT.c.fencing_token == LEASE.c.fencing_token)
    query = (
        select(LEASE.c.name, LEASE.c.job_batch_id, LEASE.c.expires_ns, ATTEMPT.c.begun_ns, JOB.c.uid, JOB.c.kind,
               batches.c.job_count)
        .join_from(LEASE, batches, batches.c.job_batch_id == LEASE.c.job_batch_id)
        .join(JOB, JOB.c.id == batches.c.first).outerjoin(ATTEMPT, tried)
    )  # fmt: skip
    with reading(store.engine, store.name) as connection:
        rows = connection.execute(query).all()
    return {
        row.name: Holding(batch=row.job_batch_id, job=row.uid, kind=row.kind, job_count=row.job_count,
                          since_ns=row.begun_ns, expires_ns=row.expires_ns)
        for row in rows
    }  # fmt: skip


def job_rows(
    store: Store, *, states: Sequence[str] = (), subjects: Sequence[str] = (), limit: int = 50
) -> tuple[JobRow, ...]:
    """Return the newest jobs, of some states or about some subjects.

    Args:
        states: none for all; so with subjects.
    """
    query = (
        select(JOB.c.uid, JOB.c.kind, JOB.c.subject, STATE.label("state"), BATCH.c.priority, BATCH.c.owner,
               BATCH.c.run_trigger.label("trigger"), BATCH.c.held_by.label("device"), BATCH.c.attempt_count,
               BATCH.c.note, BATCH.c.created_ns, func.coalesce(RESULT.c.result, "").label("result"))
        .join_from(JOB, BATCH, JOB.c.job_batch_id == BATCH.c.id).outerjoin(RESULT, RESULT.c.job_id == JOB.c.id)
        .order_by(JOB.c.id.desc()).limit(limit)
    )  # fmt: skip
    query = query.where(STATE.in_(states)) if states else query
    query = query.where(JOB.c.subject.in_(subjects)) if subjects else query
    with reading(store.engine, store.name) as connection:
        return tuple(JobRow(**row) for row in connection.execute(query).mappings())


def outcome_of(row: JobRow) -> str:
    """Return what came of a job, in a few words; empty while nothing did."""
    result = json.loads(row.result) if row.result else {}
    if row.kind == "bisect" and "culprits" in result:
        named = ", ".join(f"{each['after'][:12]} ({each['probability_ratio']:.0%})" for each in result["culprits"])
        return named or str(result.get("outcome", ""))
    return str(result.get("message", "")) or row.note
