"""Executions on one host: what runs, what a program's failure is, and what pauses, rivals and kills cannot do."""

import json
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace

import pytest
from sqlalchemy import select, update
from tests.unit.farm.conftest import errand, program, queued
from tests.unit.farm.test_leases import attempts, results, states
from tests.unit.farm.test_watchdog import alive

from nearpeak.errors import UnfitError
from nearpeak.farm import device_health, execution, job_process, job_queue, leases
from nearpeak.farm.device_registry import devices, register, slots_of
from nearpeak.farm.farm_status import job
from nearpeak.farm.host_lock import held, lock_file
from nearpeak.farm.jobs import BatchRequest, Device, JobRequest
from nearpeak.ops import case
from nearpeak.store import open_store
from nearpeak.store.sql_dialect import writing

GEMM = case("gemm", m=32, n=32, k=32, dtype="fp32")


@pytest.fixture
def make_place(tmp_path):
    """Processes are the same on both engines; leases are tested on each."""
    return lambda: str(tmp_path / "store.db")


def run(farm, names, batch, **more):
    return execution.execute(errand(farm, names, batch, **more), farm.name)["status"]


def test_a_program_runs_once_and_its_time_counts(farm, names):
    request = program("print('2.5 ms')")
    (batch,) = queued(farm, request)
    assert [run(farm, names, batch), run(farm, names, batch)] == ["published", "over"]
    found = job(farm, request.jobs[0].uid)
    assert (found["state"], found["result"]["time_s"]) == ("done", 0.0025)


@pytest.mark.parametrize(
    ("code", "limit_s", "outcome"),
    [
        ("import sys; sys.exit(3)", 20.0, "failed"),
        ("import os, signal; os.kill(os.getppid(), signal.SIGKILL)", 20.0, "crash"),
        ("import time; time.sleep(60)", 1.5, "timeout"),
    ],
)
def test_a_failure_of_the_program_is_a_result(farm, names, code, limit_s, outcome):
    (batch,) = queued(farm, program(code, limit_s=limit_s))
    assert run(farm, names, batch) == "published"
    assert (states(farm), json.loads(results(farm)[0].result)["outcome"]) == (["failed"], outcome)


def test_a_measurement_enters_the_history_once(farm, names):
    payload = {"case": GEMM.record(), "runner": "numpy", "timing": {"budget_s": 0.01, "validate": False}}
    request = BatchRequest(jobs=(JobRequest(kind="measure", payload=payload),), pool="device", trigger="nightly")
    (batch,) = queued(farm, request)
    assert run(farm, names, batch, ttl_s=30.0) == "published"
    assert len(farm.runs()) == 1
    run_ = farm.runs()[0]
    assert (run_.trigger, run_.started_ns) == ("nightly", _attempt_rows(farm)[0].begun_ns)
    (series,) = [one for one in farm.series() if one.metric.name == "time"]
    assert farm.samples(farm.runs()[0].id, series.id).size >= 5


def test_a_round_runs_under_one_lease_in_its_order(farm, names):
    from nearpeak.farm.comparison_rounds import launches_of, rounds, verdict

    arms = [{"words": [sys.executable, "-c", f"print('{time_ms} ms')"]} for time_ms in (10.0, 12.0)]
    requests = rounds("command", (arms[0], arms[1]), 3)
    job_queue.submit(farm, requests)
    for _ in range(3):
        (waiting,) = job_queue.waiting(farm)
        assert run(farm, names, waiting.id) == "published"
    found = launches_of(farm, requests[0].comparison)
    assert [one.arm for one in found[0]] == ["baseline", "candidate", "candidate", "baseline"]
    assert verdict(farm, requests[0].comparison).judgement.verdict == "regression"
    assert len({one.device for one in _attempt_rows(farm)}) == 1


def _attempt_rows(farm):
    with farm.engine.connect() as connection:
        return connection.execute(select(job_queue.ATTEMPT)).all()


def test_small_jobs_share_a_lease_and_one_that_crashes_takes_no_other_with_it(farm):
    register(farm, slots_of(1, "here"))
    jobs = [
        JobRequest(kind="predict", payload={"case": GEMM.record(), "target": "h100_sxm"}, key=str(number))
        for number in range(5)
    ]
    (batch,) = queued(farm, BatchRequest(jobs=tuple(jobs), pool="slot"))
    with writing(farm.engine, farm.name) as connection:  # what a later version could do no more: a target that is gone
        gone = json.dumps({"case": GEMM.record(), "target": "none"})
        connection.execute(update(job_queue.JOB).where(job_queue.JOB.c.uid == jobs[2].uid).values(payload=gone))
    assert run(farm, ["here/0"], batch, ttl_s=60.0) == "published"
    with farm.engine.connect() as connection:
        found = connection.execute(select(job_queue.JOB.c.state).order_by(job_queue.JOB.c.place)).scalars().all()
    assert found == ["done", "done", "failed", "done", "done"]


def test_foreign_processes_send_a_batch_back_and_leave_the_device_open(farm, names, monkeypatch):
    (batch,) = queued(farm, program("1"))
    busy = device_health.Health(offset_s=0.0, load_ratio=0.0, foreign_pids=(4711,))
    monkeypatch.setattr(device_health, "look", lambda device, database_ns: busy)
    assert run(farm, names, batch) == "infra"
    assert (states(farm), attempts(farm)) == (["queued"], ["infra"])
    assert "4711" in _attempt_rows(farm)[0].note


def test_a_device_that_does_not_answer_is_taken_out_of_service_and_the_queue_goes_on(farm, names, monkeypatch):
    monkeypatch.setattr(leases, "BACK_OFF_S", 0.0)
    fine, dead = device_health.Health(offset_s=0.0, load_ratio=0.0), min(names)

    def look(device, database_ns):
        if device.name == dead:
            raise device_health.DeadDeviceError(f"{device.name}: does not answer")
        return fine

    monkeypatch.setattr(device_health, "look", look)
    batches = queued(farm, *(program(f"print('{number} ms')") for number in (1, 2, 3)))
    found = [[run(farm, names, batch) for _ in range(2)] for batch in batches]
    assert found == [["infra", "published"], ["infra", "published"], ["published", "over"]]
    assert {one.device.name: one.service for one in devices(farm)} == {dead: "quarantined", max(names): "open"}


def test_a_command_of_a_bisection_that_prints_no_time_is_a_result_once(farm, names, tmp_path):
    payload = {"repository": str(tmp_path), "run": "echo nothing", "build": "", "baseline": {"part": "1"},
               "candidate": {"part": "2"}, "limit_s": 20.0}  # fmt: skip
    (batch,) = queued(farm, BatchRequest(jobs=(JobRequest(kind="launches", payload=payload),), pool="device"))
    assert run(farm, names, batch) == "published"
    assert (states(farm), attempts(farm)) == (["failed"], ["accepted"])
    assert "is no time" in json.loads(results(farm)[0].result)["message"]


def test_a_job_whose_device_was_locked_says_that_it_was_not_its_fault(monkeypatch):
    def locked(_):
        raise UnfitError("held by another")

    monkeypatch.setattr(job_process, "KINDS", {"command": SimpleNamespace(run=locked)})
    assert job_process.answer("command", {}) == {"error": "UnfitError", "message": "held by another", "is_unfit": True}


@pytest.mark.parametrize("value", [8, 7])
def test_a_probe_computes_on_a_gpu(monkeypatch, value):
    torch = ModuleType("torch")
    torch.version = SimpleNamespace(cuda="12")
    torch.ones = lambda *_, **__: SimpleNamespace(sum=lambda: SimpleNamespace(item=lambda: value))
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(device_health, "look", lambda device, database_ns: None)
    expected = nullcontext() if value == 8 else pytest.raises(UnfitError, match="computes wrongly")
    with expected:
        device_health.answer(Device(name="GPU-1"))


def test_a_device_that_changed_between_rounds_is_refused(farm, names, monkeypatch):
    job_queue.submit(farm, [program("1", str(number), comparison="c", round=number) for number in range(2)])
    drivers = iter(["1", "1", "2"])
    monkeypatch.setattr(
        device_health, "look",
        lambda device, database_ns: device_health.Health(offset_s=0.0, load_ratio=0.0, facts={"driver": next(drivers)}),
    )  # fmt: skip
    found = [run(farm, names, job_queue.waiting(farm)[0].id) for _ in range(2)]
    assert found == ["published", "infra"]
    assert "driver is 2, was 1 before" in _attempt_rows(farm)[1].note


def test_a_wrong_clock_heat_load_and_too_little_memory_are_refused():
    limits = device_health.Limits(load_ratio=1.0, free_bytes=2 << 30)
    found = device_health.Health(offset_s=-3.0, load_ratio=1.5, temperature_celsius=90.0, free_bytes=1 << 30)
    said = device_health.refusals(found, limits)
    assert [word in text for word, text in zip(("clock", "load", "warm", "MiB"), said, strict=True)] == [True] * 4
    assert device_health.refusals(device_health.Health(offset_s=0.0, load_ratio=0.5), limits) == ()


def test_a_measurement_outside_the_farm_keeps_the_device_for_itself(names):
    device = Device(name=names[0])
    with held(device, 1.0), pytest.raises(Exception, match="held by another"), held(device, 0.1):
        pass
    whole, part = Device(name=names[1]), Device(name=names[0], parent=names[1])
    other, refused = Device(name=f"{names[0]}-b", parent=names[1]), pytest.raises(Exception, match="held by another")
    with held(part, 1.0), held(other, 1.0), refused, held(whole, 0.1):
        pass
    for name in (*names, f"{names[0]}-b"):
        lock_file(name).unlink()


HOLDER = """
import json, sys
from nearpeak.farm.execution import execute
print("begun", flush=True)
print(json.dumps(execute(json.loads(sys.argv[1]), sys.argv[2])), flush=True)
"""


def holder(farm, told):
    words = [sys.executable, "-c", HOLDER, json.dumps(told), farm.name]
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def until(condition, limit_s=30.0):
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.05)


def test_a_paused_holder_whose_lease_ran_out_publishes_nothing(farm, names, tmp_path):
    log = tmp_path / "log"
    code = (
        f"import time; file = open({str(log)!r}, 'a'); file.write(f'in {{time.monotonic()}}\\n'); file.flush(); "
        f"time.sleep(4); file.write(f'out {{time.monotonic()}}\\n'); print('1 ms')"
    )
    (batch,) = queued(farm, program(code))
    told = errand(farm, names[:1], batch, ttl_s=1.5)
    paused = holder(farm, told)
    try:
        until(lambda: states(farm) == ["running"] and log.exists())
        paused.send_signal(signal.SIGSTOP)
        time.sleep(1.7)
        other = threading.Thread(target=lambda: run(farm, names[:1], batch, ttl_s=3.0, wait_s=10.0))
        other.start()
        until(lambda: _attempt_rows(farm)[-1].fencing_token == 2)
        time.sleep(0.3)
        paused.send_signal(signal.SIGCONT)
        assert json.loads(paused.communicate(timeout=30)[0].splitlines()[-1])["status"] in ("lost", "rejected")
        other.join(timeout=60)
    finally:
        paused.kill()
        paused.wait()
    assert (states(farm), len(results(farm))) == (["done"], 1)
    assert attempts(farm)[1:] == ["accepted"]
    events = sorted((float(line.split()[1]), line.split()[0]) for line in log.read_text().splitlines())
    assert [word for _, word in events][-2:] == ["in", "out"]  # the second began when nothing of the first was left


def test_a_holder_that_is_killed_takes_its_process_with_it_and_the_job_runs_again(farm, names, tmp_path):
    file = tmp_path / "pid"
    code = f"import os,time; open({str(file)!r},'a').write(f'{{os.getppid()}}\\n'); time.sleep(1.5); print('1 ms')"
    (batch,) = queued(farm, program(code))
    killed = holder(farm, errand(farm, names[:1], batch, ttl_s=2.0))
    until(lambda: file.exists() and file.read_text().endswith("\n"))
    killed.kill()
    killed.wait()
    job_process = int(file.read_text())
    until(lambda: not alive(job_process))
    assert run(farm, names[:1], batch, ttl_s=4.0, wait_s=10.0) == "published"
    assert (attempts(farm), len(results(farm))) == (["lost", "accepted"], 1)


def test_a_store_that_is_gone_stops_the_work_before_the_lease_could_end(farm, names, monkeypatch):
    from nearpeak.errors import StoreError
    from nearpeak.farm import lease_keeper, leases

    (batch,) = queued(farm, program("1"))
    lease = leases.take(farm, names, batch, ttl_s=1.2)

    def gone(*_):
        raise StoreError("gone")

    monkeypatch.setattr(lease_keeper, "renew", gone)
    with lease_keeper.Keeper(farm, lease) as kept:
        assert not kept.is_lost
        time.sleep(1.1)
        assert kept.is_lost
    assert isinstance(open_store(farm.name).info(), dict)
