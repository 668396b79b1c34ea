"""Status of the farm: devices, hosts, the queue, and single jobs with attempts and results."""

import json
import shlex
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, case, func, select

from nearpeak.errors import NotFoundError, SpecError, StoreError
from nearpeak.farm.device_registry import SILENT_S, devices, hosts
from nearpeak.farm.job_queue import ATTEMPT, BATCH, JOB, NS, RESULT, budgets
from nearpeak.farm.jobs import FINAL, STATES, Device
from nearpeak.farm.kinds import case_in
from nearpeak.farm.unplaceable_jobs import stranded
from nearpeak.ops import label_of
from nearpeak.store import Store
from nearpeak.store.sql_dialect import now_ns, reading

_STATE_KEYS = ("service", "note", "noise_ratio", "batch", "fencing_token", "left_s")
"""Fields of a device's state in the overview."""
STATE: ColumnElement[str] = case((JOB.c.state.in_(FINAL), JOB.c.state), else_=BATCH.c.state)
"""State of a job: its own once it is final, that of its batch before."""


def overview(store: Store) -> dict[str, Any]:
    """Return devices, hosts, and how many jobs are in each state, as plain data."""
    with reading(store.engine, store.name) as connection:
        states = select(STATE.label("state"), func.count()).join_from(JOB, BATCH, JOB.c.job_batch_id == BATCH.c.id)
        counted = connection.execute(states.group_by(STATE)).all()
        ended = connection.execute(select(ATTEMPT.c.outcome, func.count()).group_by(ATTEMPT.c.outcome)).all()
        waiting_s = connection.execute(
            select(func.coalesce(func.sum(BATCH.c.cost_s), 0.0)).where(BATCH.c.state == "queued")
        ).scalar_one()
    jobs = {str(state): int(count) for state, count in counted}
    allowed, heard = budgets(store), hosts(store)
    return {
        "devices": [
            {name: getattr(state.device, name) for name in ("name", "pool", "host", "model")}
            | {name: getattr(state, name) for name in _STATE_KEYS}
            | {"is_away": is_away(state.device, heard)}
            for state in devices(store)
        ],
        "hosts": [{"name": name, "executor": executor, "seen_s": seen_s} for name, executor, seen_s in heard],
        "stranded": stranded(store),
        "jobs": {state: jobs.get(state, 0) for state in STATES},
        "attempts": {str(outcome): int(count) for outcome, count in ended},
        "queued_s": float(waiting_s),
        "budgets": {trigger: day_s for trigger, (day_s, _) in allowed.items()},
        "asked_s": {trigger: asked_s for trigger, (_, asked_s) in allowed.items()},
    }  # fmt: skip


def is_away(device: Device, heard: Sequence[tuple[str, str, float]]) -> bool:
    """Say whether nobody lends a device now: its host, or the dispatcher of a Slurm node, was not heard of for long.

    >>> is_away(Device(name="GPU-1", host="a"), [("a", "dask", 3.0)]), is_away(Device(name="GPU-1", host="b"), [])
    (False, True)
    """
    ours = device.name.startswith("slurm@")
    return not any(
        (executor == "slurm" if ours else name == device.host) and seen_s < SILENT_S for name, executor, seen_s in heard
    )


def jobs(store: Store, *, state: str = "", limit: int = 50) -> list[dict[str, Any]]:
    """Return the newest jobs, or those in a state, as plain data; one that failed with its reason."""
    query = (
        select(JOB.c.uid, JOB.c.kind, STATE.label("state"), BATCH.c.uid.label("batch"), BATCH.c.comparison,
               BATCH.c.round, BATCH.c.priority, BATCH.c.owner, BATCH.c.run_trigger.label("trigger"),
               BATCH.c.held_by.label("device"), BATCH.c.attempt_count, BATCH.c.note, BATCH.c.created_ns,
               JOB.c.payload, case((JOB.c.state == "failed", RESULT.c.result)).label("result"))
        .join_from(JOB, BATCH, JOB.c.job_batch_id == BATCH.c.id)
        .outerjoin(RESULT, RESULT.c.job_id == JOB.c.id)
        .order_by(JOB.c.id.desc())
        .limit(limit)
    )  # fmt: skip
    with reading(store.engine, store.name) as connection:
        at_ns = now_ns(connection)
        rows = connection.execute(query.where(STATE.in_([state])) if state else query).mappings().all()
    return [_listed(dict(row), at_ns) for row in rows]


def job_count(store: Store, *, state: str = "") -> int:
    """Return how many jobs there are, or how many in a state."""
    query = select(func.count()).select_from(JOB).join(BATCH, JOB.c.job_batch_id == BATCH.c.id)
    with reading(store.engine, store.name) as connection:
        return int(connection.execute(query.where(STATE.in_([state])) if state else query).scalar_one())


def _listed(row: dict[str, Any], at_ns: int) -> dict[str, Any]:
    """Return a job of a list: what it is in words, and the reason of its failure as its note."""
    payload, result = json.loads(row.pop("payload")), row.pop("result")
    age_s = max(0.0, (at_ns - row.pop("created_ns")) / NS)
    note = row["note"] if result is None else reason_of(result) or row["note"]
    return row | {"note": note, "what": title_of(row["kind"], payload), "age_s": age_s}


def reason_of(text: str) -> str:
    """Return why a job failed, by the text of its result; empty where that does not say.

    >>> reason_of('{"outcome": "crash", "message": "it ended with code 3"}')
    'it ended with code 3'
    """
    try:
        result = json.loads(text)
    except ValueError:
        return "its result is damaged on disk"
    if not isinstance(result, dict):
        return ""
    measured = result.get("measurement")
    note = measured.get("note") if isinstance(measured, dict) else None
    return str(note or result.get("message") or result.get("outcome") or "")


def title_of(kind: str, payload: Mapping[str, Any]) -> str:
    """Return what a job does, in a few words.

    >>> title_of("command", {"words": ["./bench", "--quick"]}), title_of("capture", {"source": "hf:bert", "batch": 8})
    ('./bench --quick', 'hf:bert batch=8')
    >>> case = {"op": "softmax", "phase": "forward", "rows": 8, "columns": 9, "dtype": "bf16"}
    >>> title_of("predict", {"case": case, "target": "h100_sxm"})
    'softmax rows=8 columns=9 bf16 on h100_sxm'
    """
    if "words" in payload:
        return shlex.join(map(str, payload["words"]))
    if not isinstance(payload.get("case"), dict):
        options = [f"{name}={value}" for name, value in payload.items() if isinstance(value, (str, int))]
        source = f"source={payload.get('source')}"
        return " ".join([str(payload.get("source") or kind), *(option for option in options if option != source)])
    try:
        label = label_of(case_in(payload, kind))
    except (SpecError, TypeError, KeyError):  # what a later version may know no more
        label = str(payload["case"].get("op"))
    where = [f"{word} {payload[name]}" for word, name in (("on", "target"), ("by", "runner")) if name in payload]
    return " ".join([label, *where])


def job(store: Store, uid: str) -> dict[str, Any]:
    """Return all of one job: payload, attempts and result.

    Raises:
        NotFoundError: there is none, or several whose identity begins so.
        StoreError: its result is damaged on disk.
    """
    with reading(store.engine, store.name) as connection:
        rows = connection.execute(select(JOB).where(JOB.c.uid.startswith(uid, autoescape=True)).limit(2)).all()
        if len(rows) != 1:
            why = "is not in the queue" if not rows else "begins several identities"
            raise NotFoundError(f"job {uid}: {why}; 'nearpeak farm status --jobs' lists what is there")
        row = rows[0]
        batch = connection.execute(select(BATCH).where(BATCH.c.id == row.job_batch_id)).mappings().one()
        tried = select(ATTEMPT).where(ATTEMPT.c.job_batch_id == row.job_batch_id).order_by(ATTEMPT.c.id)
        attempts = connection.execute(tried).mappings().all()
        result = connection.execute(select(RESULT).where(RESULT.c.job_id == row.id)).one_or_none()
    return {
        "uid": row.uid, "kind": row.kind, "state": row.state if row.state in FINAL else batch["state"],
        "payload": json.loads(row.payload),
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
