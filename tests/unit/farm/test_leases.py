"""Leases on both engines: one holder at a time, tokens that only rise, and results that count once."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import select, update
from tests.unit.farm.conftest import program, queued

from nearpeak.farm import job_queue, leases
from nearpeak.farm.device_registry import devices, set_service
from nearpeak.farm.jobs import BatchRequest, Outcome
from nearpeak.farm.leases import BUSY, DRAINING, ELSEWHERE, OVER
from nearpeak.store.sql_dialect import now_ns, reading, writing

DONE = Outcome(text=json.dumps({"time_s": 1.0}), time_s=1.0)


def states(store):
    with reading(store.engine, store.name) as connection:
        return [row.state for row in connection.execute(select(job_queue.BATCH.c.state).order_by(job_queue.BATCH.c.id))]


def attempts(store):
    with reading(store.engine, store.name) as connection:
        return list(connection.execute(select(job_queue.ATTEMPT.c.outcome).order_by(job_queue.ATTEMPT.c.id)).scalars())


def results(store):
    with reading(store.engine, store.name) as connection:
        return connection.execute(select(job_queue.RESULT.c.job_id, job_queue.RESULT.c.result)).all()


def expire(store, lease):
    with writing(store.engine, store.name) as connection:
        late = now_ns(connection) - 1
        connection.execute(
            update(job_queue.LEASE).where(job_queue.LEASE.c.name == lease.device.name).values(expires_ns=late)
        )


def test_a_device_is_leased_once_until_its_result_is_published(farm, names):
    first, second = queued(farm, program("1"), program("2"))
    lease = leases.take(farm, names[:1], first)
    assert (leases.take(farm, names[:1], second), leases.take(farm, names[1:], first)) == (BUSY, BUSY)
    assert leases.start(farm, lease, {})
    assert leases.renew(farm, lease)
    assert leases.publish(farm, lease, [DONE])
    assert states(farm) == ["done", "queued"]
    later = leases.take(farm, names[:1], second)
    assert later.fencing_token == lease.fencing_token + 1
    assert leases.take(farm, names[1:], first) == OVER


def test_what_is_published_under_an_old_token_is_evidence_and_never_counts(farm, names):
    (batch,) = queued(farm, program("1"))
    old = leases.take(farm, names[:1], batch)
    expire(farm, old)
    new = leases.take(farm, names, batch)
    assert new.fencing_token > old.fencing_token or new.device.name != old.device.name
    assert not leases.renew(farm, old)
    assert not leases.publish(farm, old, [Outcome(text=json.dumps({"time_s": 9.0}), time_s=9.0)])
    assert leases.publish(farm, new, [DONE])
    assert leases.publish(farm, new, [Outcome(text="{}", time_s=9.0)])  # it counts already: nothing changes
    assert [row.result for row in results(farm)] == ['{"time_s": 1.0}']
    assert attempts(farm)[0] == "rejected"


def test_an_expired_lease_does_not_publish_even_when_nobody_else_came(farm, names):
    (batch,) = queued(farm, program("1"))
    lease = leases.take(farm, names, batch)
    expire(farm, lease)
    assert not leases.publish(farm, lease, [DONE])
    assert results(farm) == []
    assert job_queue.reclaim(farm) == 1
    assert states(farm) == ["queued"]


def test_a_lost_batch_returns_to_the_queue_and_the_token_of_its_device_stays(farm, names):
    (batch,) = queued(farm, program("1"))
    lease = leases.take(farm, names[:1], batch)
    assert job_queue.reclaim(farm) == 0
    expire(farm, lease)
    assert job_queue.reclaim(farm) == 1
    found = devices(farm)
    assert {one.device.name: (one.batch, one.fencing_token) for one in found}[names[0]] == (None, 1)
    assert attempts(farm) == ["lost"]
    assert leases.take(farm, names[:1], batch).fencing_token == 2


def test_an_unfit_host_is_tried_three_times_and_waits_longer_each_time(farm, names, monkeypatch):
    monkeypatch.setattr(leases, "BACK_OFF_S", 0.0)
    (batch,) = queued(farm, program("1"))
    for count in range(3):
        assert states(farm) == ["queued"]
        assert leases.give_back(farm, leases.take(farm, names, batch), f"unfit {count}")
    assert states(farm) == ["failed"]
    assert attempts(farm) == ["infra"] * 3
    assert leases.take(farm, names, batch) == OVER


def test_a_device_that_fails_its_probe_twice_takes_nothing_more(farm, names, monkeypatch):
    monkeypatch.setattr(leases, "BACK_OFF_S", 0.0)
    (batch,) = queued(farm, program("1"))
    for _ in range(2):
        leases.give_back(farm, leases.take(farm, names[:1], batch), "dead", is_unfit=True)
    assert leases.take(farm, names[:1], batch) == DRAINING
    assert next(one.service for one in devices(farm) if one.device.name == names[0]) == "quarantined"
    set_service(farm, "open", device=names[0])
    assert leases.take(farm, names[:1], batch).fencing_token == 3


def test_what_passes_by_counts_against_neither_batch_nor_device(farm, names, monkeypatch):
    monkeypatch.setattr(leases, "BACK_OFF_S", 0.0)
    (batch,) = queued(farm, program("1"))
    for _ in range(4):
        leases.give_back(farm, leases.take(farm, names[:1], batch), "hot", is_passing=True)
    assert states(farm) == ["queued"]
    assert leases.take(farm, names, batch).device.name == names[1]


def test_a_batch_that_failed_on_a_dead_device_is_tried_on_another(farm, names, monkeypatch):
    monkeypatch.setattr(leases, "BACK_OFF_S", 0.0)
    (batch,) = queued(farm, program("1"))
    first = leases.take(farm, names, batch)
    leases.give_back(farm, first, "dead", is_unfit=True)
    (waiting,) = job_queue.waiting(farm)
    assert waiting.dead == {first.device.name}
    assert leases.take(farm, names, batch).device.name != first.device.name


def test_a_batch_that_is_given_up_while_its_lease_is_taken_over_is_not_leased(farm, names, monkeypatch):
    monkeypatch.setattr(job_queue, "LOST_COUNT", 1)
    (batch,) = queued(farm, program("1"))
    expire(farm, leases.take(farm, names[:1], batch))
    assert leases.take(farm, names[1:], batch) == OVER
    assert states(farm) == ["failed"]
    assert all(one.batch is None for one in devices(farm))


def test_two_who_take_over_each_others_expired_leases_do_not_wait_for_each_other(farm, names, monkeypatch):
    for _ in range(5):
        batches = queued(farm, *(program(str(number), str(time.monotonic())) for number in range(2)))
        for name, batch in zip(names, batches, strict=True):
            expire(farm, leases.take(farm, [name], batch))
        with ThreadPoolExecutor(2) as threads:
            asked = [
                threads.submit(leases.take, farm, [name], batch)
                for name, batch in zip(names[::-1], batches, strict=True)
            ]
            found = [one.result(timeout=30) for one in asked]
        assert all(one == BUSY or isinstance(one, leases.Lease) for one in found)
        job_queue.cancel(farm, [one.uid for one in found if isinstance(one, leases.Lease)])
        for one in found:
            if isinstance(one, leases.Lease):
                assert not leases.renew(farm, one)
        job_queue.reclaim(farm)


def test_a_drained_device_finishes_what_it_runs_and_takes_nothing_new(farm, names):
    first, second = queued(farm, program("1"), program("2"))
    lease = leases.take(farm, names[:1], first)
    assert set_service(farm, "draining", device=names[0]) == (names[0],)
    assert leases.renew(farm, lease)
    assert leases.publish(farm, lease, [DONE])
    assert leases.take(farm, names[:1], second) == DRAINING
    assert leases.take(farm, names, second).device.name == names[1]


def test_a_cancelled_batch_loses_its_lease_and_its_result_does_not_count(farm, names):
    request = program("1")
    (batch,) = queued(farm, request)
    lease = leases.take(farm, names[:1], batch)
    assert job_queue.cancel(farm, [request.jobs[0].uid]) == 1
    assert not leases.renew(farm, lease)
    assert not leases.publish(farm, lease, [DONE])
    assert (states(farm), results(farm), job_queue.cancel(farm, [request.uid])) == (["cancelled"], [], 0)
    assert isinstance(leases.take(farm, names[:1], *queued(farm, program("2"))), leases.Lease)


def test_all_rounds_of_a_comparison_run_on_the_device_of_the_first(farm, names):
    rounds = [program("1", str(number), comparison="c", round=number) for number in range(2)]
    job_queue.submit(farm, rounds)
    (first,) = job_queue.waiting(farm)
    lease = leases.take(farm, names[1:], first.id)
    assert job_queue.waiting(farm) == []
    leases.publish(farm, lease, [DONE])
    (second,) = job_queue.waiting(farm)
    assert (second.device, second.started) == (names[1], True)
    assert leases.take(farm, names[:1], second.id) == ELSEWHERE
    assert leases.take(farm, names[1:], second.id).device.name == names[1]


def test_eight_holders_who_ask_at_once_never_hold_one_device_together(farm, names):
    batches = queued(farm, *(program(str(number)) for number in range(40)))
    held, faults, accepted = {name: threading.Lock() for name in names}, [], []

    def work(mine):
        for batch in mine:
            while isinstance(lease := leases.take(farm, names, batch), str):
                time.sleep(0.002)
            if not held[lease.device.name].acquire(blocking=False):
                faults.append(lease)
            time.sleep(0.001)
            held[lease.device.name].release()
            accepted.append(leases.publish(farm, lease, [DONE]))

    threads = [threading.Thread(target=work, args=(batches[number::8],)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert accepted == [True] * 40
    assert sum(one.fencing_token for one in devices(farm)) == 40


def test_two_who_ask_for_one_batch_at_once_get_one_lease(farm, names):
    batches = queued(farm, *(program(str(number)) for number in range(10)))
    for batch in batches:
        with ThreadPoolExecutor(4) as threads:
            found = list(threads.map(lambda number: leases.take(farm, names, number), [batch] * 4))
        won = [one for one in found if not isinstance(one, str)]
        assert len(won) == 1
        leases.publish(farm, won[0], [DONE])


def test_clocks_of_hosts_do_not_matter(farm, names, monkeypatch):
    first, second = queued(farm, program("1"), program("2"))
    real = time.time_ns
    monkeypatch.setattr(time, "time", lambda: real() / 1e9 + 3600)
    monkeypatch.setattr(time, "time_ns", lambda: real() + 3600 * 10**9)
    lease = leases.take(farm, names[:1], first, ttl_s=60)
    assert job_queue.reclaim(farm) == 0
    monkeypatch.setattr(time, "time", lambda: real() / 1e9 - 3600)
    monkeypatch.setattr(time, "time_ns", lambda: real() - 3600 * 10**9)
    assert leases.take(farm, names[:1], second) == BUSY
    assert leases.renew(farm, lease)
    assert leases.publish(farm, lease, [DONE])


def test_a_failed_program_is_a_result_and_is_not_tried_again(farm, names):
    (batch,) = queued(farm, program("1"))
    lease = leases.take(farm, names, batch)
    failed = Outcome(text=json.dumps({"outcome": "crash"}), time_s=0.1, failed=True)
    assert leases.publish(farm, lease, [failed])
    assert states(farm) == ["failed"]
    assert len(results(farm)) == 1


@pytest.mark.parametrize(("field", "value"), [("pool", "gpu"), ("priority", 8), ("jobs", ())])
def test_a_batch_of_what_does_not_exist_is_refused(field, value):
    known = {"jobs": program("1").jobs, "pool": "device"}
    with pytest.raises(ValueError, match=r"batch: "):
        BatchRequest(**{**known, field: value})
