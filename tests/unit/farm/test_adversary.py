"""What tries to lose a result or count it twice: clocks, locks, full disks, late or repeated words, two dispatchers."""

import json
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from sqlalchemy import event, select, update
from tests.unit.farm.conftest import errand, program, queued
from tests.unit.farm.test_leases import DONE, attempts, results, states

from nearpeak.errors import SpecError, StoreError
from nearpeak.farm import device_health, execution, job_queue, lease_keeper, leases
from nearpeak.farm.dispatcher import Dispatcher, Settings
from nearpeak.farm.executors.local import Local
from nearpeak.farm.farm_status import is_idle
from nearpeak.farm.jobs import BatchRequest, Device, JobRequest, Outcome
from nearpeak.farm.leases import BUSY, Lease
from nearpeak.farm.process_watchdog import Watched
from nearpeak.ops import case
from nearpeak.store import open_store
from nearpeak.store.sql_dialect import now_ns
from nearpeak.store.sqlite_connection import PAGE_BYTES

GEMM = case("gemm", m=32, n=32, k=32, dtype="fp32").record()
HOUR_NS = 3600 * job_queue.NS


@pytest.fixture
def make_place(tmp_path):
    return lambda: str(tmp_path / "store.db")


@pytest.fixture
def clock(monkeypatch):
    """The database's clock, which the test moves."""
    moved = [0]
    for module in (leases, job_queue):
        monkeypatch.setattr(module, "now_ns", lambda connection: now_ns(connection) + moved[0])
    return moved


def test_a_database_clock_that_steps_lets_no_two_hold_a_device_and_loses_nothing(farm, names, clock):
    (batch,) = queued(farm, program("1"))
    first = leases.take(farm, names[:1], batch)
    clock[0] = HOUR_NS  # forward: the lease seems to have ended while its holder works
    assert job_queue.reclaim(farm) == 1
    second = leases.take(farm, names[:1], batch)
    assert second.fencing_token == first.fencing_token + 1
    assert (leases.renew(farm, first), leases.publish(farm, first, [DONE])) == (False, False)
    clock[0] = 0  # and back: what lives seems to live for an hour, and nobody else gets it
    assert leases.take(farm, names[:1], batch) == BUSY
    assert leases.renew(farm, second)
    assert leases.publish(farm, second, [DONE])
    assert (states(farm), len(results(farm)), attempts(farm)) == (["done"], 1, ["rejected", "accepted"])


def test_a_holder_that_did_not_hear_that_its_result_counts_says_it_again_and_nothing_changes(farm, names):
    (batch,) = queued(farm, program("1"))
    lease = leases.take(farm, names, batch)
    assert [leases.publish(farm, lease, [DONE]), leases.publish(farm, lease, [DONE])] == [True, True]
    assert not leases.give_back(farm, lease, "late words")
    assert (states(farm), len(results(farm)), attempts(farm)) == (["done"], 1, ["accepted"])


def test_an_old_holders_late_words_change_nothing_of_the_new_ones(farm, names, clock):
    (batch,) = queued(farm, program("1"))
    old = leases.take(farm, names[:1], batch)
    clock[0] = 2 * 60 * job_queue.NS
    new = leases.take(farm, names[:1], batch)
    assert not leases.give_back(farm, old, "late", is_unfit=True)
    assert not leases.start(farm, old, {})
    assert leases.publish(farm, new, [DONE])
    assert not leases.publish(farm, old, [Outcome(text="{}", time_s=9.0)])
    assert [row.result for row in results(farm)] == [DONE.text]


def test_clients_that_submit_the_same_at_once_put_it_in_once(farm):
    requests = [program(str(number)) for number in range(20)]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda _: job_queue.submit(farm, requests), range(4)))
    assert sum(one.new_count for one in found) == 20
    assert states(farm) == ["queued"] * 20


def test_tables_that_overlap_add_what_is_new_and_a_refused_part_is_looked_at_again(farm):
    def batch(first, last, **more):
        payloads = [{"case": GEMM | {"m": 32 + number}, "target": "h100_sxm"} for number in range(first, last)]
        return BatchRequest(
            jobs=tuple(JobRequest(kind="predict", payload=one) for one in payloads), pool="slot", **more
        )

    assert job_queue.submit(farm, [batch(0, 4)]).new_count == 4
    job_queue.set_budget(farm, "pr", 1e-3)
    wanted = [batch(2, 8, trigger="pr")]
    found = job_queue.submit(farm, wanted)
    assert (found.known_count, len(found.refused)) == (2, 1)
    job_queue.set_budget(farm, "pr", None)
    assert (job_queue.submit(farm, wanted).new_count, job_queue.submit(farm, wanted).new_count) == (4, 0)
    assert states(farm) == ["queued"] * 2


def run(farm, names, batch, **more):
    return execution.execute(errand(farm, names, batch, **more), farm.name)["status"]


def test_a_store_that_is_locked_when_the_result_is_there_takes_it_later(farm, names, monkeypatch):
    (batch,) = queued(farm, program("print('1 ms')"))
    published, tried = leases.publish, []

    def locked(*words):
        tried.append(words)
        if len(tried) < 3:
            raise StoreError("another process has been writing for more than 30 s")
        return published(*words)

    monkeypatch.setattr(leases, "publish", locked)
    monkeypatch.setattr(execution, "_RETRY_S", 0.01)
    assert run(farm, names, batch) == "published"
    assert (len(tried), states(farm), len(results(farm))) == (3, ["done"], 1)


def test_a_store_that_is_away_at_the_start_counts_against_neither_batch_nor_device(farm, names, monkeypatch):
    monkeypatch.setattr(leases, "BACK_OFF_S", 0.0)
    (batch,) = queued(farm, program("print('1 ms')"))
    started = leases.start

    def away(*_):
        raise StoreError("cannot be reached")

    monkeypatch.setattr(leases, "start", away)
    assert [run(farm, names, batch) for _ in range(4)] == ["infra"] * 4
    monkeypatch.setattr(leases, "start", started)
    assert run(farm, names, batch) == "published"


def test_a_full_disk_refuses_a_result_whole_and_takes_it_when_there_is_room(farm, names):
    (batch,) = queued(farm, program("1"))
    lease = leases.take(farm, names, batch)
    with sqlite3.connect(farm.name) as direct:
        direct.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        pages = direct.execute("PRAGMA page_count").fetchone()[0] + 1

    @event.listens_for(farm.engine, "checkout")
    def _narrow(connection, *_):
        connection.execute(f"PRAGMA max_page_count={pages}")

    large = Outcome(text=json.dumps({"output": "x" * 40 * PAGE_BYTES}), time_s=1.0)
    with pytest.raises(StoreError, match="no space left"):
        leases.publish(farm, lease, [large])
    assert (states(farm), results(farm), attempts(farm)) == (["leased"], [], ["running"])
    pages = 1 << 30
    assert leases.publish(farm, lease, [large])
    assert (states(farm), len(results(farm))) == (["done"], 1)


def test_a_lock_that_ends_before_the_lease_does_costs_no_measurement(farm, names, monkeypatch):
    (batch,) = queued(farm, program("1"))
    lease, asked = leases.take(farm, names, batch, ttl_s=2.0), []

    def locked(*words):  # each attempt waits, as for a writer's lock, and fails; the third is let in
        asked.append(words)
        if len(asked) < 3:
            time.sleep(0.25)
            raise StoreError("another process has been writing")
        return True

    monkeypatch.setattr(lease_keeper, "renew", locked)
    with lease_keeper.Keeper(farm, lease) as kept:
        time.sleep(1.5)
        assert (len(asked) >= 3, kept.is_lost) == (True, False)


def test_a_holder_that_hangs_lets_its_lease_go_and_the_batch_runs_elsewhere(farm, names, monkeypatch):
    (batch,) = queued(farm, program("print('1 ms')"))
    hangs, looked = threading.Event(), device_health.look

    def look(device, database_ns):
        if device.name == min(names):
            hangs.wait(30.0)  # as in a driver: no limit of time reaches it
        return looked(device, database_ns)

    monkeypatch.setattr(device_health, "look", look)
    monkeypatch.setattr(execution, "WAIT_S", -1e6)  # the time that an execution may take is over at once
    with ThreadPoolExecutor(1) as thread:
        hung = thread.submit(run, farm, [min(names)], batch, ttl_s=1.0)
        time.sleep(1.5)
        assert job_queue.reclaim(farm) == 1
        monkeypatch.setattr(execution, "WAIT_S", 300.0)
        assert run(farm, [max(names)], batch) == "published"
        hangs.set()
        assert hung.result(timeout=30) == "lost"
    # Whether the holder counts as gone or as late depends on which of two threads saw the end of the lease first.
    assert (states(farm), len(results(farm))) == (["done"], 1)
    assert attempts(farm) in (["lost", "accepted"], ["rejected", "accepted"])


def test_what_the_history_does_not_take_is_a_failure_once_with_the_reason(farm, names, monkeypatch):
    def refuses(*_):
        raise SpecError("metric time: has another unit in the store")

    monkeypatch.setattr(leases, "_into_history", lambda connection, lease, found: found[0].failed or refuses())
    (batch,) = queued(farm, program("print('1 ms')"))
    assert run(farm, names, batch) == "published"
    assert (states(farm), attempts(farm)) == (["failed"], ["accepted"])
    assert "has another unit" in json.loads(results(farm)[0].result)["message"]


def test_a_result_that_is_not_a_number_is_a_failure_and_not_the_hosts(farm, names):
    (batch,) = queued(farm, program("1"))
    lease = leases.take(farm, names, batch)
    ended = Watched(verdict="ended", code=0, output="", time_s=1.0, left_count=0, forced=False)
    found = execution._outcome(lease, lease.jobs[0], ended, {"result": {"time_s": float("nan")}})
    assert (found.failed, "is no JSON" in found.text) == (True, True)


def test_two_dispatchers_on_one_store_run_each_job_once_and_never_two_on_a_device(farm, names, tmp_path):
    log = tmp_path / "log"
    code = (
        "import os, time; file = os.open({log!r}, os.O_WRONLY | os.O_CREAT | os.O_APPEND); "
        "say = lambda what: os.write(file, (os.environ['NEARPEAK_FARM_DEVICE'] + ' ' + str(time.monotonic()) + ' ' + "
        "what + chr(10)).encode()); say('in'); time.sleep(0.1); say('out'); print('1 ms')  # {number}"
    )
    queued(farm, *(program(code.format(log=str(log), number=number)) for number in range(8)))

    def dispatch(_):
        with open_store(farm.name) as opened:
            engine = Local(farm.name, [Device(name=name) for name in names])
            Dispatcher(opened, engine, Settings(ttl_s=20.0, wait_s=20.0, poll_s=0.05)).run(lambda: is_idle(opened))
            engine.close()

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(dispatch, range(2)))
    assert (states(farm), len(results(farm)), attempts(farm)) == (["done"] * 8, 8, ["accepted"] * 8)
    events = sorted(line.split() for line in log.read_text().splitlines())
    assert len(events) == 16
    assert all({a[2], b[2]} == {"in", "out"} for a, b in pairwise(events) if a[0] == b[0])


def test_a_token_never_goes_down_whatever_becomes_of_the_device(farm, names):
    (batch, *_) = queued(farm, *(program(str(number)) for number in range(2)))
    seen = []
    for _ in range(3):
        lease = leases.take(farm, names[:1], batch)
        assert isinstance(lease, Lease)
        seen.append(lease.fencing_token)
        with farm.engine.begin() as connection:
            connection.execute(update(job_queue.LEASE).where(job_queue.LEASE.c.name == names[0]).values(expires_ns=0))
        job_queue.reclaim(farm)
        with farm.engine.connect() as connection:
            held = connection.execute(select(job_queue.LEASE.c.fencing_token).where(job_queue.LEASE.c.name == names[0]))
            seen.append(held.scalar_one())
    assert seen == sorted(seen)
