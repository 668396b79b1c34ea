"""What the farm is doing: devices, hosts, the queue, and single jobs with their attempts and results."""

import json
import zlib
from typing import Any

from sqlalchemy import ColumnElement, case, func, select

from nearpeak.errors import NotFoundError, StoreError
from nearpeak.farm.devices import devices, hosts
from nearpeak.farm.queue import ATTEMPT, BATCH, BUDGET, JOB, NS, RESULT
from nearpeak.farm.values import FINAL, STATES
from nearpeak.store import Store
from nearpeak.store.dialect import now_ns, reading

STATE: ColumnElement[str] = case((JOB.c.state.in_(FINAL), JOB.c.state), else_=BATCH.c.state)
"""State of a job: its own once it is final, that of its batch before."""


def overview(store: Store) -> dict[str, Any]:
    """Return devices, hosts, and how many jobs are in each state, as plain data."""
    with reading(store.engine, store.name) as connection:
        states = select(STATE.label("state"), func.count()).join_from(JOB, BATCH, JOB.c.job_batch_id == BATCH.c.id)
        counted = connection.execute(states.group_by(STATE)).all()
        ended = connection.execute(select(ATTEMPT.c.outcome, func.count()).group_by(ATTEMPT.c.outcome)).all()
        budgets = connection.execute(select(BUDGET.c.run_trigger, BUDGET.c.day_s)).all()
        waiting_s = connection.execute(
            select(func.coalesce(func.sum(BATCH.c.cost_s), 0.0)).where(BATCH.c.state == "queued")
        ).scalar_one()
    jobs = {str(state): int(count) for state, count in counted}
    return {
        "devices": [
            {"name": one.device.name, "pool": one.device.pool, "host": one.device.host, "model": one.device.model,
             "service": one.service, "note": one.note, "noise_ratio": one.noise_ratio, "batch": one.batch,
             "fencing_token": one.fencing_token, "left_s": one.left_s}
            for one in devices(store)
        ],
        "hosts": [{"name": name, "executor": executor, "seen_s": seen_s} for name, executor, seen_s in hosts(store)],
        "jobs": {state: jobs.get(state, 0) for state in STATES},
        "attempts": {str(outcome): int(count) for outcome, count in ended},
        "queued_s": float(waiting_s),
        "budgets": {str(trigger): float(day_s) for trigger, day_s in budgets},
    }  # fmt: skip


def jobs(store: Store, *, state: str = "", limit: int = 50) -> list[dict[str, Any]]:
    """Return the newest jobs, or those in a state, as plain data."""
    asked = (
        select(JOB.c.uid, JOB.c.kind, STATE.label("state"), BATCH.c.uid.label("batch"), BATCH.c.comparison,
               BATCH.c.round, BATCH.c.priority, BATCH.c.owner, BATCH.c.run_trigger.label("trigger"),
               BATCH.c.held_by.label("device"), BATCH.c.attempt_count, BATCH.c.note, BATCH.c.created_ns)
        .join_from(JOB, BATCH, JOB.c.job_batch_id == BATCH.c.id)
        .order_by(JOB.c.id.desc())
        .limit(limit)
    )  # fmt: skip
    with reading(store.engine, store.name) as connection:
        at_ns = now_ns(connection)
        rows = connection.execute(asked.where(STATE.in_([state])) if state else asked).mappings().all()
    found = [dict(row) for row in rows]
    return [{**one, "age_s": max(0.0, (at_ns - one.pop("created_ns")) / NS)} for one in found]


def job(store: Store, uid: str) -> dict[str, Any]:
    """Return all of one job: payload, attempts and result.

    Raises:
        NotFoundError: there is none, or several whose identity begins so.
        StoreError: its result is damaged on disk.
    """
    with reading(store.engine, store.name) as connection:
        found = connection.execute(select(JOB).where(JOB.c.uid.startswith(uid, autoescape=True)).limit(2)).all()
        if len(found) != 1:
            why = "is not in the queue" if not found else "begins several identities"
            raise NotFoundError(f"job {uid}: {why}; 'nearpeak farm status --jobs' lists what is there")
        one = found[0]
        batch = connection.execute(select(BATCH).where(BATCH.c.id == one.job_batch_id)).mappings().one()
        tried = select(ATTEMPT).where(ATTEMPT.c.job_batch_id == one.job_batch_id).order_by(ATTEMPT.c.id)
        attempts = connection.execute(tried).mappings().all()
        result = connection.execute(select(RESULT).where(RESULT.c.job_id == one.id)).one_or_none()
    return {
        "uid": one.uid, "kind": one.kind, "state": one.state if one.state in FINAL else batch["state"],
        "payload": json.loads(one.payload),
        "batch": {name: batch[name] for name in ("uid", "comparison", "round", "pool", "priority", "owner", "note")},
        "attempts": [
            {name: tried[name] for name in ("device", "fencing_token", "holder", "outcome", "note")}
            for tried in attempts
        ],
        "result": None if result is None else whole_result(uid, result.result, result.crc32),
    }  # fmt: skip


def whole_result(uid: str, text: str, crc32: int) -> Any:
    """Return a result, checked against its sum.

    Raises:
        StoreError: it was changed on disk.
    """
    if zlib.crc32(text.encode()) != crc32:
        raise StoreError(f"job {uid}: its result is damaged on disk; restore a backup, or submit the job anew")
    return json.loads(text)


def is_idle(store: Store) -> bool:
    """Say whether no job waits or runs."""
    with reading(store.engine, store.name) as connection:
        busy = select(BATCH.c.id).where(BATCH.c.state.in_(("queued", "leased", "running"))).limit(1)
        return connection.execute(busy).first() is None
