"""Host threads, graphs, hardware queues and grids that a device holds: closed forms of their times."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearpeak.errors import SpecError
from nearpeak.simulation.engine.device_work import Copy, Kernel, Phase
from nearpeak.simulation.engine.event_loop import simulate
from nearpeak.simulation.machine import LIMITS, Costs, Limits, Machine

SMALL = Limits(ctas_count=1, threads_count=32, registers_count=32, shared_bytes=16)
COSTS = Costs(launch_ps=100, submit_ps=30, graph_ps=500, graph_node_ps=7)


def device(sms=4, **kwargs):
    return Machine(**{"name": "toy", "gpc_sm_count": (sms,), "limits": LIMITS["hopper"], "costs": COSTS} | kwargs)


def kernel(name, length_ps=1000, **kwargs):
    return Kernel(**{"name": name, "cta_count": 1, "phases": (Phase(fixed_ps=length_ps),), "needs": SMALL} | kwargs)


def chain(count, length_ps, **kwargs):
    return [kernel(f"k{i}", length_ps, **kwargs) for i in range(count)]


@pytest.mark.parametrize("length", [10, 99, 101, 5000])
def test_a_stream_is_bound_by_its_host_or_by_its_device(length):
    end = simulate(device(), chain(50, length, thread="t")).end_ps
    assert end == 100 + 30 + max(49 * 100, 49 * length) + length


@given(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), min_size=1, max_size=20), st.integers(1, 5))
def test_launches_follow_the_queue_model_of_finite_depth(pairs, depth):
    work = [kernel(f"k{i}", d, thread="t", host_ps=h) for i, (h, d) in enumerate(pairs)]
    run = simulate(device(pending_count=depth), work)
    host, starts, end = 0, [], 0
    for i, (cost, length) in enumerate(pairs):
        host = max(host, starts[i - depth] if i >= depth else 0) + cost
        starts.append(max(end, host + 30))
        end = starts[-1] + length
    assert [span.start_ps for span in run.spans] == starts
    assert run.end_ps == end


def test_a_graph_is_submitted_once_and_its_branches_run_at_the_same_time():
    nodes = [
        kernel("a", thread="t", graph="g", queue="0"), kernel("b", thread="t", graph="g", queue="1", after=("a",)),
        kernel("c", thread="t", graph="g", queue="2", after=("a",)),
        kernel("d", thread="t", graph="g", queue="3", after=("b", "c")),
    ]  # fmt: skip
    assert simulate(device(), nodes).end_ps == 500 + 4 * 7 + 30 + 3 * 1000
    eager = [replace(node, graph="") for node in nodes]
    assert simulate(device(), eager).end_ps == 100 + 30 + 3 * 1000


def test_a_synchronisation_exposes_what_launching_costs():
    free = simulate(device(), chain(4, 50, thread="t")).end_ps
    waiting = [kernel(f"k{i}", 50, thread="t", host_after=(f"k{i - 1}",) if i else ()) for i in range(4)]
    assert simulate(device(), waiting).end_ps == 4 * (100 + 30 + 50) > free


def test_two_host_threads_submit_side_by_side():
    work = [*chain(10, 10, thread="t"), *(kernel(f"o{i}", 10, thread="u", queue="1") for i in range(10))]
    assert simulate(device(), work).end_ps == 10 * 100 + 30 + 10


@pytest.mark.parametrize(("queues", "start"), [(None, 0), (2, 0), (1, 2000)])
def test_streams_that_share_a_hardware_queue_wait_for_each_other(queues, start):
    work = [kernel("a1", queue="a"), kernel("a2", queue="a"), kernel("a3", queue="a"), kernel("b", queue="b")]
    run = simulate(device(queue_count=queues), work)
    assert run.span("b").start_ps == start
    assert run.span("b").held_ps == ({"queue": start} if start else {})


def test_no_more_kernels_are_resident_than_the_device_holds():
    work = [kernel(f"k{i}", queue=f"q{i}") for i in range(12)]
    run = simulate(device(grid_count=5), work)
    assert [span.start_ps for span in run.spans] == [0] * 5 + [1000] * 5 + [2000] * 2
    assert run.span("k5").held_ps == {"grids": 1000}


@pytest.mark.parametrize(("needs", "why"), [
    ({"ctas_count": 20}, "blocks"), ({"threads_count": 1200}, "threads"), ({"registers_count": 40_000}, "registers"),
    ({"shared_bytes": 120_000}, "shared"),
])  # fmt: skip
def test_what_a_kernel_lacks_is_named(needs, why):
    whole = replace(SMALL, **needs)
    run = simulate(device(1), [kernel("a", needs=whole), kernel("b", needs=whole, queue="1")])
    assert run.span("b").held_ps == {why: 1000}


def test_a_copy_waits_for_its_engine_and_a_later_kernel_for_its_rank():
    machine = device(1, pool_bytes_per_s={"host_in": 1e12})
    copies = [Copy(name=n, engine="in", pool_bytes={"host_in": 500.0}, queue=n) for n in "xy"]
    work = [*copies, kernel("a", cta_count=64), kernel("b", queue="1")]
    run = simulate(machine, work)
    assert run.span("y").held_ps == {"engine": 500}
    assert run.span("b").held_ps == {"rank": 1000, "blocks": 1000}


def test_only_the_next_kernel_of_a_chain_comes_early():
    phases = (Phase(fixed_ps=300), Phase(fixed_ps=1000, waits=True))
    run = simulate(device(), chain(5, 0, phases=phases, early=True))
    assert [span.start_ps for span in run.spans] == [0, 0, 1300, 2300, 3300]
    assert run.end_ps == 5 * 1300 - 4 * 300


def test_early_kernels_wait_for_their_submission():
    phases = (Phase(fixed_ps=300), Phase(fixed_ps=1000, waits=True))
    run = simulate(device(), chain(3, 0, phases=phases, early=True, thread="t", graph="g"))
    assert run.end_ps == 500 + 3 * 7 + 30 + 3 * 1300 - 2 * 300


@pytest.mark.parametrize(("work", "message"), [
    (lambda: [kernel("a", thread="t", host_after=("b",)), kernel("b", thread="t")], "have not ended: a, b"),
    (lambda: [kernel("a", thread="t", after=("c",), queue="1"), kernel("b", thread="t", after=("c",), queue="2"),
              kernel("c", thread="t", queue="3")], "have not ended: a, b, c"),
    (lambda: [kernel("a", thread="t", host_after=("z",))], "waits for z"),
])  # fmt: skip
def test_hosts_that_wait_for_each_other_are_reported(work, message):
    with pytest.raises(SpecError, match=message):
        simulate(device(pending_count=2), work())


@pytest.mark.parametrize("wrong", [{"grid_count": 0}, {"pending_count": 0}, {"queue_count": 0}])
def test_a_machine_without_room_for_launches_is_refused(wrong):
    with pytest.raises(SpecError, match="at least 1"):
        device(**wrong)


@pytest.mark.parametrize("wrong", [{"launch_ps": -1}, {"state_bytes_per_s": 0}, {"submit_ps": float("nan")}])
def test_costs_below_zero_are_refused(wrong):
    with pytest.raises(SpecError, match="costs"):
        Costs(**wrong)
