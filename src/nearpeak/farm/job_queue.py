"""Job queue in the store: idempotent submission, cancellation, and requeueing of jobs whose lease expired."""

import statistics
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Connection, delete, func, insert, select, update

from nearpeak.core.history.stored_run import TRIGGERS
from nearpeak.errors import NotFoundError, SpecError
from nearpeak.farm.batch_priority import STEP_S
from nearpeak.farm.jobs import FINAL, BatchRequest, WaitingBatch, text_of
from nearpeak.farm.kinds import KINDS
from nearpeak.store import Store
from nearpeak.store.page_queries import in_parts
from nearpeak.store.sql_dialect import claim, now_ns, reading, writing
from nearpeak.store.table_schema import TABLES

BATCH, JOB, ATTEMPT = TABLES["job_batch"], TABLES["job"], TABLES["job_attempt"]
LEASE, RESULT, BUDGET = TABLES["device_lease"], TABLES["job_result"], TABLES["farm_budget"]
LeaseEnd = tuple[str, int, int]
"""A lease until it is renewed: device, fencing token, end by the clock of the database in ns."""
NS = 1_000_000_000
DAY_S = 86400.0
LEAST_LETTERS = 8
"""Letters of an identity by which a job may be cancelled."""
LOST_COUNT = 20
"""Holders that a batch may lose before it counts as what ends them."""
LATE_COUNT = 20
"""Executions of a batch that may outlive their lease, each longer than the one before, before it is given up."""
MOST_WAITING = 5000
"""Batches that are looked at together; the less urgent ones have to wait in any case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """What became of requests."""

    new_count: int
    """Jobs that were not there before."""
    known_count: int
    """Jobs that were in the queue already, in any state."""
    refused: tuple[tuple[str, str], ...]
    """First job of each batch that is over its budget, and why."""
    uids: tuple[str, ...]
    """Identities of all submitted jobs, in order."""


def submit(store: Store, requests: Sequence[BatchRequest]) -> Submitted:
    """Put batches into the queue, all in one transaction; what is there already is left as it is.

    A batch that would spend more than its trigger has for the day is kept as `rejected`, with the number; asked for
    again it is looked at again.

    Raises:
        SpecError: a payload cannot run, or the same job occurs twice.
    """
    check(requests)
    uids = [job.uid for request in requests for job in request.jobs]
    with writing(store.engine, store.name) as connection:
        claim(connection, "farm submit")
        return _submitted(connection, requests, uids)


def check(requests: Sequence[BatchRequest]) -> None:
    """Refuse jobs that cannot run, belong to another pool, or occur twice.

    Raises:
        SpecError: says which and why.
    """
    seen: set[str] = set()
    for request in requests:
        for job in request.jobs:
            kind = KINDS[job.kind]
            if request.pool != kind.pool:
                raise SpecError(f"submit: a job of kind {job.kind} runs in pool {kind.pool}, not in {request.pool}")
            kind.check(job.payload)
            if job.uid in seen:
                raise SpecError(f"submit: the same job stands twice ({job.uid}); give one of them another key")
            seen.add(job.uid)


def _submitted(connection: Connection, requests: Sequence[BatchRequest], uids: list[str]) -> Submitted:
    # Batches that a budget refused never ran: they are deleted, so that they can be submitted again.
    rejected = select(JOB.c.job_batch_id).where(JOB.c.state == "rejected")
    for part in in_parts(sorted(set(_looked_up(connection, rejected, JOB.c.uid, uids)))):
        connection.execute(delete(JOB).where(JOB.c.job_batch_id.in_(part)))
        connection.execute(delete(BATCH).where(BATCH.c.id.in_(part)))
    known = set(_looked_up(connection, select(JOB.c.uid), JOB.c.uid, uids))
    costs = _past_s(connection, [job.what for request in requests for job in request.jobs])
    at_ns, spent, refused, rows = now_ns(connection), dict[str, float](), list[tuple[str, str]](), []
    for whole_request in requests:
        request = _new_part(whole_request, known)
        if request is None:
            continue
        cost_s = sum(costs.get(job.what, KINDS[job.kind].cost_s(job.payload)) for job in request.jobs)
        note = _over_budget(connection, request.trigger, cost_s, spent, at_ns)
        if note:
            refused.append((request.jobs[0].uid, note))
        batch = connection.execute(
            insert(BATCH).values(_row(request, cost_s, at_ns, note)).returning(BATCH.c.id)
        ).scalar_one()
        state = "rejected" if note else "queued"
        rows += [
            {"uid": job.uid, "job_batch_id": batch, "place": place, "kind": job.kind, "subject": job.what,
             "payload": text_of(dict(job.payload)), "state": state}
            for place, job in enumerate(request.jobs)
        ]  # fmt: skip
    if rows:
        connection.execute(insert(JOB), rows)
    return Submitted(new_count=len(rows), known_count=len(known), refused=tuple(refused), uids=tuple(uids))


def _new_part(request: BatchRequest, known: Collection[str]) -> BatchRequest | None:
    """Return what of a batch is not in the queue yet; none where all is.

    Raises:
        SpecError: it is a part of a round, which is whole or none.
    """
    new = tuple(job for job in request.jobs if job.uid not in known)
    if not new or len(new) == len(request.jobs):
        return request if new else None
    if request.pool != "slot":
        raise SpecError(f"submit: some jobs of batch {request.uid} are in the queue as part of another; give new keys")
    return replace(request, jobs=new)


def _row(request: BatchRequest, cost_s: float, at_ns: int, note: str) -> dict[str, Any]:
    return {
        "uid": request.uid, "comparison": request.comparison, "round": request.round, "pool": request.pool,
        "device": request.device, "model": request.model, "priority": request.priority, "cost_s": cost_s,
        "owner": request.owner, "run_trigger": request.trigger, "state": "rejected" if note else "queued",
        "attempt_count": 0, "infra_count": 0, "not_before_ns": 0,
        "created_ns": at_ns, "ended_ns": at_ns if note else None, "held_by": "", "fencing_token": 0, "note": note,
    }  # fmt: skip


def _looked_up(connection: Connection, query: Any, column: Any, values: Sequence[str]) -> Iterable[Any]:
    for part in in_parts(values):
        yield from connection.execute(query.where(column.in_(part))).scalars()


def _past_s(connection: Connection, subjects: Sequence[str]) -> dict[str, float]:
    """Return the median past duration of each subject that has one."""
    if connection.execute(select(RESULT.c.job_id).limit(1)).first() is None:
        return {}
    times_s: dict[str, list[float]] = {}
    wanted = list(dict.fromkeys(subjects))
    query = select(JOB.c.subject, RESULT.c.time_s).join_from(JOB, RESULT, JOB.c.id == RESULT.c.job_id)
    for part in in_parts(wanted):
        for row in connection.execute(query.where(JOB.c.subject.in_(part))):
            times_s.setdefault(row.subject, []).append(row.time_s)
    return {subject: statistics.median(times) for subject, times in times_s.items()}


def _over_budget(connection: Connection, trigger: str, cost_s: float, spent: dict[str, float], at_ns: int) -> str:
    """Return why a batch is refused, empty where it is not; what is not is counted in `spent`."""
    day_s = connection.execute(select(BUDGET.c.day_s).where(BUDGET.c.run_trigger == trigger)).scalar()
    if day_s is None:
        return ""
    if trigger not in spent:
        spent[trigger] = _requested_s(connection, trigger, at_ns)
    if spent[trigger] + cost_s > day_s:
        return (
            f"budget of trigger {trigger!r}: {spent[trigger]:.0f} s of {day_s:.0f} s a day are spent, "
            f"and this needs {cost_s:.0f} s"
        )
    spent[trigger] += cost_s
    return ""


def set_budget(store: Store, trigger: str, day_s: float | None) -> None:
    """Say how much device time a trigger may ask for in a day; none for as much as it likes.

    Raises:
        SpecError: there is no such trigger.
    """
    if trigger not in TRIGGERS:
        raise SpecError(f"budget: trigger {trigger!r} is not known; there are {', '.join(TRIGGERS)}")
    with writing(store.engine, store.name) as connection:
        claim(connection, "farm submit")
        connection.execute(delete(BUDGET).where(BUDGET.c.run_trigger == trigger))
        if day_s is not None:
            connection.execute(insert(BUDGET).values(run_trigger=trigger, day_s=day_s))


def budgets(store: Store) -> dict[str, tuple[float, float]]:
    """Return, for each trigger with a budget, the device time per day and the time requested in the last day."""
    with reading(store.engine, store.name) as connection:
        at_ns = now_ns(connection)
        rows = connection.execute(select(BUDGET.c.run_trigger, BUDGET.c.day_s).order_by(BUDGET.c.run_trigger)).all()
        return {row.run_trigger: (row.day_s, _requested_s(connection, row.run_trigger, at_ns)) for row in rows}


def _requested_s(connection: Connection, trigger: str, at_ns: int) -> float:
    """Return the device time that a trigger requested in the last day."""
    query = select(func.coalesce(func.sum(BATCH.c.cost_s), 0.0)).where(
        BATCH.c.run_trigger == trigger, BATCH.c.created_ns > at_ns - int(DAY_S * NS),
        BATCH.c.state.not_in(("rejected", "cancelled")),
    )  # fmt: skip
    return float(connection.execute(query).scalar_one())


def waiting(store: Store) -> list[WaitingBatch]:
    """Return the batches that may begin now: queued, not delayed, and without an unfinished earlier round."""
    earlier = BATCH.alias()
    unfinished = (
        select(earlier.c.id)
        .where(
            earlier.c.comparison == BATCH.c.comparison, earlier.c.round < BATCH.c.round, earlier.c.state.not_in(FINAL)
        )
        .exists()
    )
    begun = select(earlier.c.id).where(
        earlier.c.comparison == BATCH.c.comparison, earlier.c.round < BATCH.c.round, earlier.c.state == "done"
    )
    with reading(store.engine, store.name) as connection:
        at_ns = now_ns(connection)
        query = select(BATCH, begun.exists().label("started")).where(
            BATCH.c.state == "queued", BATCH.c.not_before_ns <= at_ns, (BATCH.c.comparison == "") | ~unfinished
        )
        urgent = (
            BATCH.c.priority * int(STEP_S * NS) + BATCH.c.created_ns
        )  # as `schedule.rank`, but for rounds that have begun
        rows = connection.execute(query.order_by(urgent, BATCH.c.id).limit(MOST_WAITING)).all()
        pins = _pins(connection, [row.comparison for row in rows if row.comparison])
        dead = _dead(connection, [row.id for row in rows if row.infra_count])
    names = ("id", "uid", "pool", "model", "comparison", "round", "priority", "owner", "cost_s", "attempt_count")
    return [
        WaitingBatch(
            **{name: getattr(row, name) for name in names}, device=row.device or pins.get(row.comparison, ""),
            waited_s=max(0.0, (at_ns - row.created_ns) / NS), begun=row.attempt_count > 0,
            started=bool(row.comparison and row.started), dead=dead.get(row.id, frozenset()),
        )
        for row in rows
    ]  # fmt: skip


def _pins(connection: Connection, comparisons: Sequence[str]) -> dict[str, str]:
    """Return the device that each comparison has begun on."""
    query = select(BATCH.c.comparison, BATCH.c.held_by).where(BATCH.c.held_by != "", BATCH.c.state != "queued")
    wanted = list(dict.fromkeys(comparisons))
    pins: dict[str, str] = {}
    for part in in_parts(wanted):
        rows = connection.execute(query.where(BATCH.c.comparison.in_(part)).order_by(BATCH.c.round.desc()))
        pins |= {row.comparison: row.held_by for row in rows}
    return pins


def _dead(connection: Connection, batches: Sequence[int]) -> dict[int, frozenset[str]]:
    """Return the devices that did not answer when they last had to, and on which each batch was tried."""
    query = (
        select(ATTEMPT.c.job_batch_id, ATTEMPT.c.device)
        .join(LEASE, LEASE.c.name == ATTEMPT.c.device)
        .where(LEASE.c.failure_count > 0, ATTEMPT.c.outcome == "infra")
    )
    devices: dict[int, frozenset[str]] = {}
    for part in in_parts(batches):
        for batch, device in connection.execute(query.where(ATTEMPT.c.job_batch_id.in_(part))):
            devices[batch] = devices.get(batch, frozenset()) | {device}
    return devices


def used_s(store: Store) -> dict[str, float]:
    """Return the device time of each owner's finished batches in the last day."""
    with reading(store.engine, store.name) as connection:
        since = now_ns(connection) - int(DAY_S * NS)
        query = (
            select(BATCH.c.owner, func.sum(BATCH.c.cost_s))
            .where(BATCH.c.ended_ns > since, BATCH.c.state.in_(("done", "failed")))
            .group_by(BATCH.c.owner)
        )
        return {owner: float(total) for owner, total in connection.execute(query)}


def reclaim(store: Store, overdue: Collection[LeaseEnd] = ()) -> int:
    """Return batches whose holder let the lease expire to the queue, and how many they are.

    Args:
        overdue: leases that have expired whatever the clock of the database says now; a renewal since then counts.
    """
    late = LEASE.c.name.in_([name for name, _, _ in overdue])
    held = select(LEASE.c.name, LEASE.c.job_batch_id, LEASE.c.fencing_token, LEASE.c.expires_ns).where(
        LEASE.c.job_batch_id.is_not(None)
    )
    with reading(store.engine, store.name) as connection:
        if connection.execute(held.where((LEASE.c.expires_ns <= now_ns(connection)) | late).limit(1)).first() is None:
            return 0
    with writing(store.engine, store.name) as connection:
        at_ns = now_ns(connection)
        query = held.where((LEASE.c.expires_ns <= at_ns) | late).with_for_update(skip_locked=True)
        rows = [
            row for row in connection.execute(query).all()
            if row.expires_ns <= at_ns or (row.name, row.fencing_token, row.expires_ns) in overdue
        ]  # fmt: skip
        for row in sorted(rows, key=lambda entry: entry.job_batch_id):
            freed(connection, row.name, row.job_batch_id, row.fencing_token, at_ns)
    return len(rows)


def freed(connection: Connection, device: str, batch: int, fencing_token: int, at_ns: int) -> None:
    """Free a device whose lease expired, and return its batch to the queue; both rows are held by the caller."""
    connection.execute(update(LEASE).where(LEASE.c.name == device).values(job_batch_id=None, holder=""))
    attempts = update(ATTEMPT).where(
        ATTEMPT.c.device == device, ATTEMPT.c.fencing_token == fencing_token, ATTEMPT.c.outcome == "running"
    )
    connection.execute(attempts.values(outcome="lost", ended_ns=at_ns, note="its lease expired"))
    mine = (BATCH.c.id == batch, BATCH.c.held_by == device, BATCH.c.fencing_token == fencing_token)
    row = connection.execute(select(BATCH.c.state).where(*mine).with_for_update()).first()
    if row is None or row.state in FINAL:
        return
    why = why_given_up(connection, batch)
    set_state(connection, batch, "failed" if why else "queued", at_ns, note=why or "a holder was lost")


def why_given_up(connection: Connection, batch: int) -> str:
    """Return why a batch is not tried again; empty where it is.

    A holder that is gone may have been ended by the batch. One that came back after its lease had expired was not: the
    host is slow, or was paused.
    """
    lost, late = attempt_count(connection, batch, "lost"), attempt_count(connection, batch, "rejected")
    if lost >= LOST_COUNT:
        return f"failed: {lost} holders were lost while they ran it"
    return f"failed: {late} executions outlived their lease; 'farm up --ttl' lengthens it" if late >= LATE_COUNT else ""


def attempt_count(connection: Connection, batch: int, outcome: str) -> int:
    """Return how many attempts of a batch ended in this way."""
    query = select(func.count()).where(ATTEMPT.c.job_batch_id == batch, ATTEMPT.c.outcome == outcome)
    return int(connection.execute(query).scalar_one())


def set_state(connection: Connection, batch: int, state: str, at_ns: int, **more: object) -> None:
    """Set the state of a batch; its jobs share it until it is final, which is written with each of them."""
    ended = at_ns if state in FINAL else None
    connection.execute(update(BATCH).where(BATCH.c.id == batch).values(state=state, ended_ns=ended, **more))
    if state in FINAL:
        jobs = update(JOB).where(JOB.c.job_batch_id == batch, JOB.c.state.not_in(FINAL))
        connection.execute(jobs.values(state=state))


def cancel(store: Store, uids: Sequence[str]) -> int:
    """Cancel batches, named by themselves or by one of their jobs, and return how many were not over yet.

    A measurement that runs is ended at the next renewal of its lease; its result could not be published any more.

    Args:
        uids: identities, or at least eight letters that begin only one.

    Raises:
        NotFoundError: there is no such job, or several begin so.
    """
    with writing(store.engine, store.name) as connection:
        at_ns = now_ns(connection)
        ids = sorted({_batch_of(connection, uid) for uid in uids})  # in this order, as whoever frees several does
        states = {
            number: connection.execute(select(BATCH.c.state).where(BATCH.c.id == number).with_for_update()).scalar_one()
            for number in ids
        }
        live = [number for number, state in states.items() if state not in FINAL]
        for number in live:
            set_state(connection, number, "cancelled", at_ns, note="cancelled")
    return len(live)


def _batch_of(connection: Connection, uid: str) -> int:
    if len(uid) < LEAST_LETTERS:
        raise SpecError(f"job {uid!r}: is too short to name one; give at least {LEAST_LETTERS} of its letters")
    named = select(BATCH.c.id).where(BATCH.c.uid.startswith(uid, autoescape=True))
    owners = select(JOB.c.job_batch_id).where(JOB.c.uid.startswith(uid, autoescape=True))
    batches = {*connection.execute(named.limit(2)).scalars(), *connection.execute(owners.limit(2)).scalars()}
    if len(batches) != 1:
        why = "begins several identities" if batches else "is not in the queue"
        raise NotFoundError(f"job {uid}: {why}; 'nearpeak farm status --jobs' lists what is")
    return int(batches.pop())
