"""Counts of queued jobs whose device the farm lacks or has out of service, and requests that no device fits."""

from collections.abc import Sequence

from sqlalchemy import func, select

from nearpeak.farm.device_registry import DeviceState, devices
from nearpeak.farm.job_queue import BATCH, JOB
from nearpeak.farm.jobs import BatchRequest
from nearpeak.store import Store
from nearpeak.store.sql_dialect import reading


def stranded(store: Store) -> list[dict[str, object]]:
    """Return how many queued jobs wait for a device that is not there, or not in service, and for which.

    None while the farm has no devices at all.
    """
    if not (known := devices(store)):
        return []
    query = (
        select(BATCH.c.pool, BATCH.c.device, BATCH.c.model, func.count().label("job_count"))
        .join_from(BATCH, JOB, JOB.c.job_batch_id == BATCH.c.id)
        .where(BATCH.c.state == "queued")
        .group_by(BATCH.c.pool, BATCH.c.device, BATCH.c.model)
        .order_by(BATCH.c.pool, BATCH.c.device, BATCH.c.model)
    )
    with reading(store.engine, store.name) as connection:
        rows = connection.execute(query).all()
    waits = []
    for row in rows:
        fit = fitting(known, row.pool, row.device, row.model)
        if not any(state.service == "open" for state in fit):
            waits.append({"job_count": int(row.job_count), "wanted": wanted(row.pool, row.device, row.model),
                          "is_known": bool(fit)})  # fmt: skip
    return waits


def untaken(store: Store, requests: Sequence[BatchRequest]) -> list[str]:
    """Return descriptions of requested devices that the farm lacks; none while it has no devices at all."""
    known = devices(store)
    requirements = {
        (request.pool, request.device, request.model) for request in requests if request.device or request.model
    }
    return sorted(wanted(*request) for request in requirements if not fitting(known, *request)) if known else []


def fitting(known: Sequence[DeviceState], pool: str, device: str, model: str) -> list[DeviceState]:
    """Return the matching devices, in service or not."""
    return [
        state for state in known
        if state.device.pool == pool and device in ("", state.device.name) and model in ("", state.device.model)
    ]  # fmt: skip


def wanted(pool: str, device: str = "", model: str = "") -> str:
    """Return a description of the device that a batch needs.

    >>> wanted("slot"), wanted("device"), wanted("device", "cpu@a"), wanted("device", model="NVIDIA H200")
    ('a slot', 'a device', "device 'cpu@a'", "a device of model 'NVIDIA H200'")
    """
    if pool == "slot":
        return "a slot"
    of = f" of model {model!r}" if model else ""
    return f"device {device!r}{of}" if device else f"a device{of}"
