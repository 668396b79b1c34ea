"""Holders that are late: what a slow host, a renewal that is answered late or a clock that is set back must not do."""

from dataclasses import replace

import pytest
from sqlalchemy import select
from tests.unit.farm.conftest import errand, program, queued
from tests.unit.farm.test_leases import DONE, attempts, expire, states

from nearpeak.farm import execution, job_queue, lease_keeper, leases
from nearpeak.farm.farm_status import jobs
from nearpeak.farm.process_watchdog import Watched
from nearpeak.store.sql_dialect import now_ns, reading


@pytest.fixture
def steady(monkeypatch):
    """The steady clock of holders, which the test moves."""
    now_s = [1000.0]
    for module in (leases, lease_keeper):
        monkeypatch.setattr(module, "steady_s", lambda: now_s[0])
    return now_s


def test_a_renewal_that_is_answered_late_does_not_bring_back_work_that_was_stopped(farm, names, monkeypatch, steady):
    (batch,) = queued(farm, program("1"))
    lease = replace(leases.take(farm, names, batch), ttl_s=0.04)
    seen = []

    def late(*_):
        steady[0] += 0.015  # beyond the margin: whoever watches the job stops it now
        seen.append(keeper.is_lost)
        return True

    monkeypatch.setattr(lease_keeper, "renew", late)
    steady[0] += 0.02
    keeper = lease_keeper.Keeper(farm, lease)
    keeper._thread.join(10.0)
    assert (seen, keeper.is_lost, keeper.is_hung) == ([True], True, False)


def test_work_that_is_stopped_as_its_lease_nearly_ended_counts_against_neither_batch_nor_host(
    farm, names, monkeypatch, steady
):
    """Three such ends failed a batch as three unfit hosts do, although its host was only slow."""
    (batch,) = queued(farm, program("1"))

    def watched(*_, is_stopped, **__):
        steady[0] += 3600.0
        assert is_stopped()
        steady[0] -= 3600.0  # as the answer of a renewal under way does to what is left
        return Watched(verdict="stopped", code=-15, output="", time_s=1.0, left_count=0, forced=False)

    monkeypatch.setattr(execution, "watched", watched)
    for _ in range(4):
        assert execution.execute(errand(farm, names[:1], batch), farm.name)["status"] == "lost"
    with reading(farm.engine, farm.name) as connection:
        row = connection.execute(select(job_queue.BATCH.c.state, job_queue.BATCH.c.infra_count)).one()
    assert (tuple(row), attempts(farm)) == (("queued", 0), ["rejected"] * 4)


def test_a_lease_that_ends_before_its_batch_begins_is_late_and_no_lost_holder(farm, names, monkeypatch):
    (batch,) = queued(farm, program("1"))
    looked = execution._fit

    def slow(store, lease, limits):
        health = looked(store, lease, limits)
        expire(store, lease)
        return health

    monkeypatch.setattr(execution, "_fit", slow)
    assert execution.execute(errand(farm, names[:1], batch), farm.name)["status"] == "lost"
    assert (job_queue.reclaim(farm), states(farm), attempts(farm)) == (1, ["queued"], ["rejected"])


def test_a_slow_host_loses_no_batch_and_gets_longer_leases_until_it_is_done(farm, names, monkeypatch):
    monkeypatch.setattr(job_queue, "LOST_COUNT", 2)
    (number,) = queued(farm, program("1"))
    lives_s = []
    for _ in range(6):
        lease = leases.take(farm, names[:1], number, ttl_s=1.0)
        expire(farm, lease)
        lives_s.append(lease.ttl_s)
        assert (job_queue.reclaim(farm), states(farm)) == (1, ["queued"])
        assert not leases.publish(farm, lease, [DONE])  # its holder lives, and is late
    assert lives_s == [1.0, 2.0, 4.0, 8.0, 16.0, 16.0]
    assert leases.publish(farm, leases.take(farm, names[:1], number), [DONE])
    assert states(farm) == ["done"]


def test_a_batch_that_always_outlives_its_lease_is_given_up_with_the_reason(farm, names, monkeypatch):
    monkeypatch.setattr(job_queue, "LATE_COUNT", 3)
    (number,) = queued(farm, program("1"))
    for _ in range(3):
        assert states(farm) == ["queued"]
        lease = leases.take(farm, names[:1], number)
        assert leases.give_back(farm, lease, "the lease was lost while it ran", outcome="rejected")
    (entry,) = jobs(farm, state="failed")
    assert "3 executions outlived their lease" in entry["note"]


def test_a_dead_holders_lease_ends_on_time_though_the_database_clock_was_set_back(farm, names, monkeypatch, steady):
    back = [0]
    for module in (leases, job_queue, lease_keeper):
        monkeypatch.setattr(module, "now_ns", lambda connection: now_ns(connection) - back[0])
    dead, lives = queued(farm, program("1"), program("2"))
    leases.take(farm, names[:1], dead, ttl_s=60.0)
    alive = leases.take(farm, names[1:], lives, ttl_s=60.0)
    ends = lease_keeper.Deadlines()
    assert ends.overdue(farm) == frozenset()
    back[0] = 3600 * job_queue.NS
    assert leases.renew(farm, alive)
    steady[0] += 30.0
    assert job_queue.reclaim(farm, ends.overdue(farm)) == 0
    steady[0] += 31.0
    overdue = ends.overdue(farm)
    assert job_queue.reclaim(farm, overdue | {(names[1], alive.fencing_token, 0)}) == 1  # of an end that was moved
    assert (states(farm), job_queue.reclaim(farm, overdue)) == (["queued", "leased"], 0)
    assert leases.publish(farm, alive, [DONE])
