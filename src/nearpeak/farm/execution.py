"""Execution of a batch: takes the lease, checks the device, runs each job alone, publishes all results or none."""

import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from sqlalchemy import select

from nearpeak.errors import MeasureError, NearpeakError, SpecError, StoreError, UnfitError
from nearpeak.farm import device_health, leases
from nearpeak.farm.core_slots import run_on_slot
from nearpeak.farm.device_registry import placed
from nearpeak.farm.host_lock import held
from nearpeak.farm.job_queue import ATTEMPT, BATCH
from nearpeak.farm.jobs import Lease, LeasedJob, Outcome, text_of
from nearpeak.farm.kinds import KINDS, case_in
from nearpeak.farm.lease_keeper import Keeper
from nearpeak.farm.process_watchdog import GRACE_S, Watched, environment_for, watched
from nearpeak.farm.result_handover import read_result
from nearpeak.store import Store, open_store
from nearpeak.store.sql_dialect import now_ns, reading

WAIT_S = 300.0
"""Longest wait for another measurement on the host to end."""
START_S = 10.0
"""Longest time to start and end a process, in addition to its own limit."""
_POLL_S, _RETRY_S = 0.1, 1.0
_TAIL = 300


@cache
def opened(place: str) -> Store:
    """Return the store at `place`, opened once in this process."""
    return open_store(place)


def execute(errand: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Run a batch if its lease is to be had, and return how that ended; results go to the store alone.

    A second execution of the same errand, which engines start on their own, waits until the first lease has ended,
    and finds the batch finished, or gets a greater token.

    Args:
        errand: JSON: `batch`, `devices` that will do, `ttl_s` of the lease, `wait_s` for one, `limits` of health.
    """
    store = opened(place)
    until_s = time.monotonic() + float(errand["wait_s"])
    while isinstance(lease := leases.take(store, errand["devices"], errand["batch"], errand["ttl_s"]), str):
        if lease != leases.BUSY or time.monotonic() > until_s:
            return {"batch": errand["batch"], "status": lease}
        time.sleep(_POLL_S)
    limits = device_health.Limits(**errand.get("limits", {}))
    status = _run(store, lease, limits, float(errand.get("grace_s", GRACE_S)))
    return {"batch": errand["batch"], "status": status, "device": lease.device.name}


def _run(store: Store, lease: Lease, limits: device_health.Limits, grace_s: float) -> str:
    """Return `published`, `rejected`, `infra` or `lost`."""
    limits_s = [KINDS[job.kind].limit_s(job.payload) + grace_s for job in lease.jobs]
    # An execution that takes longer hangs in something that has no limit of its own.
    longest_s = WAIT_S + 2 * device_health.PROBE_S + START_S * len(limits_s) + sum(limits_s)
    with Keeper(store, lease, longest_s) as keeper:
        try:
            with held(placed(lease.device), WAIT_S, lambda: keeper.is_lost) as (files, names):
                before = _fit(store, lease, limits)
                if not leases.start(store, lease, before.record()):
                    leases.give_back(store, lease, "its lease ended before it began", outcome="rejected")
                    return "lost"
                if lease.device.pool == "slot":
                    outcomes = run_on_slot(lease.device.name, lease.jobs, lambda: keeper.is_lost)
                else:
                    outcomes = [_alone(lease, job, keeper, (files, names), grace_s) for job in lease.jobs]
                after, flags = _after(store, lease, before, limits)
        except (NearpeakError, OSError) as error:
            is_dead, is_lost = isinstance(error, device_health.DeadDeviceError), keeper.is_lost
            passing = isinstance(error, (UnfitError, StoreError)) and not is_dead
            outcome = ("lost" if keeper.is_hung else "rejected") if is_lost else "infra"
            leases.give_back(store, lease, str(error), outcome=outcome, is_unfit=is_dead, is_passing=passing)
            return "lost" if is_lost else "infra"
        return "published" if _published(store, lease, keeper, outcomes, (after, "; ".join(flags))) else "rejected"


def _published(
    store: Store, lease: Lease, keeper: Keeper, outcomes: list[Outcome], flight: tuple[dict[str, Any], str]
) -> bool:
    """Publish as long as the lease lives: a store that is locked, full or away for a while takes it later.

    What the history refuses is a failure of the job, with the reason.
    """
    while True:
        try:
            return leases.publish(store, lease, outcomes, *flight)
        except SpecError as error:
            text = text_of({"outcome": "failed", "message": f"the history does not take it: {error}"})
            outcomes = [Outcome(text=text, time_s=outcome.time_s, failed=True) for outcome in outcomes]
        except StoreError:
            if keeper.is_lost:
                raise
            time.sleep(_RETRY_S)


def _fit(store: Store, lease: Lease, limits: device_health.Limits) -> device_health.Health:
    """Return the state of the device.

    Raises:
        UnfitError: it is not to be measured on now, or does not answer.
    """
    with reading(store.engine, store.name) as connection:
        database_ns = now_ns(connection)
        health = device_health.look(placed(lease.device), database_ns)
        before = _facts_before(connection, lease)
    if lease.device.pool == "device" and (why := device_health.refusals(health, limits, before)):
        raise UnfitError("; ".join(why))
    return health


def _facts_before(connection: Any, lease: Lease) -> Mapping[str, str] | None:
    """Return the facts of the device in the last accepted round of the same comparison; none where there is none."""
    comparison = connection.execute(select(BATCH.c.comparison).where(BATCH.c.id == lease.batch)).scalar()
    if not comparison:
        return None
    query = (
        select(ATTEMPT.c.preflight)
        .join_from(ATTEMPT, BATCH, ATTEMPT.c.job_batch_id == BATCH.c.id)
        .where(BATCH.c.comparison == comparison, ATTEMPT.c.outcome == "accepted")
        .order_by(ATTEMPT.c.id.desc())
        .limit(1)
    )
    text = connection.execute(query).scalar()
    facts: Mapping[str, str] | None = json.loads(text)["facts"] if text else None
    return facts


def _after(
    store: Store, lease: Lease, before: device_health.Health, limits: device_health.Limits
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the state of the device after the batch, and what of it flags the results."""
    if lease.device.pool == "slot":
        return {}, ()
    with reading(store.engine, store.name) as connection:
        database_ns = now_ns(connection)
    health = device_health.look(placed(lease.device), database_ns)
    return health.record(), device_health.changes(before, health, limits)


def _alone(
    lease: Lease, job: LeasedJob, keeper: Keeper, locks: tuple[tuple[int, ...], tuple[str, ...]], grace_s: float
) -> Outcome:
    """Return the outcome of a job in a fresh process, which inherits the lock of the device.

    Raises:
        UnfitError: the process could not measure, through no fault of what it measured.
        MeasureError: the lease was lost.
    """
    kind, payload = KINDS[job.kind], job.payload
    limit_s, memory_bytes = kind.limit_s(payload), kind.memory_bytes(payload)
    request = {
        "kind": job.kind, "payload": payload, "memory_bytes": memory_bytes, "parent": os.getpid(),
        "held": list(locks[1]), "files": list(locks[0]), "cpu_s": limit_s * (os.cpu_count() or 1) + 60,
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="nearpeak-farm-") as name:
        file = Path(name) / "request"
        file.write_text(json.dumps(request), encoding="utf-8")
        from nearpeak.measurement.isolated_measurement import thread_variables

        timing = job.payload.get("timing")
        threads = thread_variables(timing.get("thread_count", 1) if isinstance(timing, dict) else 1)
        more = {**threads, "NEARPEAK_FARM_DEVICE": lease.device.name}
        ended = watched(
            [sys.executable, "-P", "-m", "nearpeak.farm.job_process", str(file)], limit_s=limit_s,
            memory_bytes=memory_bytes,
            environment=environment_for(placed(lease.device).name, more), keep=locks[0], grace_s=grace_s,
            is_stopped=lambda: keeper.is_lost, folder=Path(name),
        )  # fmt: skip
        answer = read_result(file.with_name("result"))
    if ended.verdict == "stopped":
        raise MeasureError("the lease was lost while it ran")
    return _outcome(lease, job, ended, answer)


def _outcome(lease: Lease, job: LeasedJob, ended: Watched, answer: Any) -> Outcome:
    """Return the result of a process, or the way in which it failed: a failure of the program is a result, too."""
    if isinstance(answer, dict) and "result" in answer and ended.verdict == "ended":
        try:
            return Outcome(text=text_of(answer["result"]), time_s=ended.time_s)
        except SpecError as error:  # not a number: a result that says nothing, and no fault of the host
            answer = {"error": "SpecError", "message": str(error)}
    if isinstance(answer, dict) and answer.get("is_unfit"):
        raise UnfitError(str(answer["message"]))
    device = placed(lease.device)
    if (ended.forced or device.name.startswith(device_health.GPUS)) and not device_health.probe(device):
        raise device_health.DeadDeviceError(f"{lease.device.name}: does not answer after a job on it failed")
    word = {"timeout": "timeout", "memory": "oom"}.get(ended.verdict, "failed" if ended.code == 0 else "crash")
    result = {"outcome": word, "message": _why(ended, answer), "output": ended.output[-_TAIL:]}
    if job.kind == "measure":
        result |= _row(job, ended, answer)
    return Outcome(text=text_of(result), time_s=ended.time_s, failed=True)


def _why(ended: Watched, answer: Any) -> str:
    if ended.verdict == "timeout":
        return f"it did not end in time, and was ended after {ended.time_s:.1f} s"
    if ended.verdict == "memory":
        return "it took more memory than it may, and was ended"
    if isinstance(answer, dict) and "error" in answer:
        return f"{answer['error']}: {answer['message']}"
    return f"it ended with code {ended.code} and left no whole result"


def _row(job: LeasedJob, ended: Watched, answer: Any) -> dict[str, Any]:
    """Return the record of a failed measurement, as `nearpeak measure` writes it."""
    from nearpeak.base.isolation import Ending
    from nearpeak.exchange.measurement_lines import measurement_record
    from nearpeak.farm.kinds.measure import timing_in
    from nearpeak.measurement.isolated_measurement import measurement_from

    if isinstance(answer, dict) and "error" in answer:
        ending = Ending(verdict="raised", value=(answer["error"], answer["message"]))
    elif ended.verdict == "timeout":
        ending = Ending(verdict="timeout", value=None)
    else:
        verdict = "memory" if ended.verdict == "memory" else "died"
        ending = Ending(verdict=verdict, value=ended.code, output=ended.output)
    payload = job.payload
    measurement = measurement_from(ending, case_in(payload, "measure"), payload["runner"], timing_in(payload))
    return {"measurement": measurement_record(measurement, ""), "environment": None}
