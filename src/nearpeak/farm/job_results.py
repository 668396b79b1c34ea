"""Results of many jobs: complete as published, or as table rows, one per job."""

import json
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import select

from nearpeak.errors import NotFoundError
from nearpeak.farm.farm_status import whole_result
from nearpeak.farm.job_queue import BATCH, JOB, RESULT
from nearpeak.store import Store
from nearpeak.store.page_queries import in_parts
from nearpeak.store.sql_dialect import reading


def results(store: Store, *, kind: str = "", uids: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """Return the accepted results of jobs with their payloads, in the order of submission.

    A job that was given up has none; it is there with the reason, as other failures are.

    Args:
        kind: only those of this kind; empty for all.
        uids: only these jobs, in this order; those that have no result yet are left out.

    Raises:
        NotFoundError: a job is not in the queue.
        StoreError: a result was changed on disk.
    """
    query = (
        select(JOB.c.uid, JOB.c.kind, JOB.c.state, JOB.c.payload, RESULT.c.result, RESULT.c.crc32, RESULT.c.time_s,
               BATCH.c.note)
        .join_from(JOB, BATCH, JOB.c.job_batch_id == BATCH.c.id).outerjoin(RESULT, RESULT.c.job_id == JOB.c.id)
        .order_by(JOB.c.id)
    )  # fmt: skip
    query = query.where(JOB.c.kind == kind) if kind else query
    parts = [query] if uids is None else [query.where(JOB.c.uid.in_(part)) for part in in_parts(list(uids))]
    with reading(store.engine, store.name) as connection:
        rows = [row for part in parts for row in connection.execute(part)]
    if uids is not None and (missing := set(uids) - {row.uid for row in rows}) and not kind:
        raise NotFoundError(f"job {min(missing)}: is not in the queue; 'nearpeak farm status --jobs' lists what is")
    places = {uid: place for place, uid in enumerate(uids or ())}
    rows.sort(key=lambda row: places.get(row.uid, 0))
    return [
        {"job": row.uid, "kind": row.kind, "state": row.state, "payload": json.loads(row.payload),
         "time_s": row.time_s,
         "result": whole_result(row.uid, row.result, row.crc32) if row.result is not None
         else {"outcome": "failed", "message": row.note}}
        for row in rows
        if row.result is not None or row.state == "failed"
    ]  # fmt: skip


def row_of(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return a result as a table row: axes of the case, fields of the payload, and fields of the result.

    Lists and objects have no place in a table; the samples of a measurement become their median.

    >>> row_of({"job": "1", "kind": "predict", "state": "done", "time_s": 0.1, "result": {"time_s": 2e-6},
    ...         "payload": {"case": {"op": "gemm", "m": 8}, "target": "h100_sxm"}})
    {'job': '1', 'kind': 'predict', 'state': 'done', 'op': 'gemm', 'm': 8, 'target': 'h100_sxm', 'time_s': 2e-06}
    """
    row = {name: entry[name] for name in ("job", "kind", "state")}
    payload = dict(entry["payload"])
    case = payload.pop("case", None)
    result = dict(entry["result"])
    measured = result.pop("measurement", None)
    if isinstance(measured, dict):
        samples = measured.get("samples_s") or []
        row |= {"outcome": measured.get("outcome"), "note": measured.get("note")}
        result |= {"time_s": statistics.median(samples) if samples else None}
    if "words" in payload:
        payload["words"] = " ".join(map(str, payload["words"]))
    for part in (case if isinstance(case, dict) else {}, payload, result):
        row |= {name: value for name, value in part.items() if not isinstance(value, (list, dict))}
    return row
