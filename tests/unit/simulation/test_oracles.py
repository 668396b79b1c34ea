"""Closed forms that the simulator must meet; numbers follow the list in docs/guide/simulation.md."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearpeak.errors import SpecError
from nearpeak.simulation.engine.device_work import Copy, Kernel, Phase
from nearpeak.simulation.engine.event_loop import simulate
from nearpeak.simulation.engine.fair_shares import max_min
from nearpeak.simulation.engine.partition import Context, green
from nearpeak.simulation.greedy_slots import makespan_ps
from nearpeak.simulation.machine import LIMITS, Costs, Limits, Machine
from nearpeak.simulation.power_governor import Power

WHOLE = Limits(ctas_count=1, threads_count=1024, registers_count=65536, shared_bytes=200 * 1024)
"""A block that fills a multiprocessor."""
HALF = replace(WHOLE, registers_count=32768, shared_bytes=100 * 1024)
H100 = Machine(
    name="h100",
    gpc_sm_count=(18, 18, 16, 16, 16, 16, 16, 16),
    limits=LIMITS["hopper"],
    pool_bytes_per_s={"dram": 3.35e12},
)


def device(sm_count, **kwargs):
    return Machine(name="toy", gpc_sm_count=(sm_count,), limits=LIMITS["hopper"], **kwargs)


def kernel(count, name="a", length_ps=1000, **kwargs):
    return Kernel(**{"name": name, "cta_count": count, "phases": (Phase(fixed_ps=length_ps),), "needs": WHOLE} | kwargs)


@pytest.mark.parametrize(("count", "needs", "waves"), [
    (1, WHOLE, 1), (132, WHOLE, 1), (133, WHOLE, 2), (1000, WHOLE, 8), (264, HALF, 1), (265, HALF, 2), (4096, HALF, 16),
])  # fmt: skip
def test_equal_blocks_take_whole_waves(count, needs, waves):
    run = simulate(H100, [kernel(count, needs=needs)])
    assert run.end_ps == waves * 1000
    assert run.spans[0].slot_ps == count * 1000


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=200), st.integers(1, 40))
def test_greedy_placement_keeps_to_graham_bounds(lengths, slots):
    end = makespan_ps(lengths, slots)
    mean, longest = Fraction(sum(lengths), slots), max(lengths)
    assert max(mean, longest) <= end <= mean + (1 - Fraction(1, slots)) * longest


def test_exponential_blocks_end_when_theory_expects():
    draws = np.random.default_rng(7).exponential(1e6, (4000, 1000)).astype(np.int64)
    mean = np.mean([makespan_ps(row, 132) for row in draws]) / 1e6
    expected = (1000 - 132) / 132 + sum(1 / i for i in range(1, 133))
    assert mean == pytest.approx(expected, rel=0.01)


@settings(deadline=None)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=6), st.integers(1, 4))
def test_longest_first_is_near_the_optimum(lengths, slots):
    best = min(_longest(lengths, places, slots) for places in itertools.product(range(slots), repeat=len(lengths)))
    end = makespan_ps(sorted(lengths, reverse=True), slots)
    assert end <= (Fraction(4, 3) - Fraction(1, 3 * slots)) * best


def _longest(lengths, places, slots):
    return max(sum(x for x, at in zip(lengths, places, strict=True) if at == slot) for slot in range(slots))


def test_a_later_kernel_gets_what_the_earlier_leaves():
    run = simulate(H100, [kernel(200, "first"), kernel(100, "second", queue="1")], records=True)
    assert run.span("second").start_ps == 1000
    starts = {b.start_ps: b.sms.bit_count() for b in run.batches if b.name == "second"}
    assert starts == {1000: 132 - 200 % 132, 2000: 100 - 64}


def test_a_kernel_of_higher_priority_waits_for_a_slot_and_evicts_nobody():
    busy = [kernel(1, f"b{i}", 10_000 + 7 * i, queue=f"q{i}") for i in range(4)]
    urgent = kernel(1, "urgent", 100, queue="u", priority=1, not_before_ps=500)
    waiting = kernel(4, "waiting", 100, queue="w", not_before_ps=400)
    run = simulate(device(4), [*busy, waiting, urgent])
    assert run.span("urgent").start_ps == 10_000
    assert run.span("waiting").start_ps > run.span("urgent").start_ps
    assert [run.span(f"b{i}").end_ps for i in range(4)] == [10_000 + 7 * i for i in range(4)]


@pytest.mark.parametrize(("capacity", "demands", "shares"), [
    (3.0, [0.5, 1.0, 2.5], [0.5, 1.0, 1.5]),
    (3.35, [0.2, 0.2, 2.0, 3.0], [0.2, 0.2, 1.475, 1.475]),
])  # fmt: skip
def test_shares_are_max_min_fair(capacity, demands, shares):
    assert max_min(demands, [1] * len(demands), capacity) == pytest.approx(shares, abs=1e-15)


def memory(name, amount, queue, **kwargs):
    return kernel(1, name, queue=queue, phases=(Phase(pool_bytes={"dram": amount}),), **kwargs)


def test_two_kernels_share_the_memory():
    run = simulate(device(2, pool_bytes_per_s={"dram": 2.0e12}), [memory("a", 1e3, "0"), memory("b", 3e3, "1")])
    assert [span.end_ps for span in run.spans] == [1000, 2000]


def test_products_and_memory_on_different_multiprocessors_do_not_meet():
    products = kernel(1, "p", phases=(Phase(pipe_s={"tensor": 3e-9}),))
    run = simulate(device(2, pool_bytes_per_s={"dram": 1e12}), [products, memory("m", 5000.0, "1")])
    assert (run.span("p").end_ps, run.span("m").end_ps) == (3000, 5000)


def test_blocks_of_one_multiprocessor_share_its_units():
    work = kernel(2, phases=(Phase(pipe_s={"tensor": 1e-9}),), needs=HALF)
    assert simulate(device(1), [work]).end_ps == 2000


def test_a_slice_has_its_own_multiprocessors_and_memory():
    machine = device(8, pool_bytes_per_s={"dram": 8e12})
    slices = [
        Context(name="s", sms=(0, 1), pool_bytes_per_s={"dram": 1e12}),
        Context(name="rest", sms=tuple(range(2, 8))),
    ]
    work = [kernel(5, "a", context="s"), memory("m", 4000.0, "1", context="s", after=("a",)),
            memory("big", 8e4, "2", context="rest")]  # fmt: skip
    run = simulate(machine, work, contexts=slices)
    assert run.span("a").end_ps == 3000
    assert run.span("m").end_ps == 7000
    assert run.span("big").end_ps == 10_000


@pytest.mark.parametrize(("asked", "granted"), [(1, 8), (8, 8), (9, 16), (20, 24), (132, 132)])
def test_green_contexts_get_multiples(asked, granted):
    assert green(132, asked) == granted


@pytest.mark.parametrize(("size", "slots", "usable"), [(2, 66, 132), (4, 32, 128), (8, 16, 128), (16, 8, 128)])
def test_clusters_stay_inside_their_multiprocessors(size, slots, usable):
    run = simulate(H100, [kernel(size * 200, cluster_count=size)], records=True)
    first = sum(batch.sms.bit_count() for batch in run.batches if batch.start_ps == 0)
    assert (first // size, first) == (slots, usable)


@pytest.mark.parametrize(("length", "floor"), [(500, 2000), (3000, 2000)])
def test_a_chain_of_kernels_takes_its_floors(length, floor):
    chain = [kernel(4, f"k{i}", length) for i in range(5)]
    assert simulate(device(4, costs=Costs(floor_ps=floor)), chain).end_ps == 5 * max(length, floor)


def test_early_kernels_overlap_their_start_with_the_tail_before():
    phases = (Phase(fixed_ps=300), Phase(fixed_ps=1000, waits=True))
    chain = [kernel(4, f"k{i}", phases=phases, early=True, needs=HALF) for i in range(3)]
    late = [replace(one, early=False) for one in chain]
    assert simulate(device(4), late).end_ps == 3 * 1300
    assert simulate(device(4), chain).end_ps == 3 * 1300 - 2 * 300


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.integers(0, 10_000))
def test_any_order_of_work_keeps_to_its_bounds(sms, seed):
    rng = np.random.default_rng(seed)
    work = []
    for i in range(12):
        after = tuple(f"k{j}" for j in range(i) if rng.random() < 0.2)
        work.append(kernel(1, f"k{i}", int(rng.integers(1, 100)), queue=f"q{i}", after=after))
    lengths = {one.name: one.phases[0].fixed_ps for one in work}
    path: dict[str, int] = {}
    for one in work:
        path[one.name] = lengths[one.name] + max((path[name] for name in one.after), default=0)
    critical, total = max(path.values()), sum(lengths.values())
    end = simulate(device(sms), work).end_ps
    assert max(critical, Fraction(total, sms)) <= end <= Fraction(total, sms) + (1 - Fraction(1, sms)) * critical


def test_two_copy_engines_overlap_and_one_does_not():
    machine = device(1, pool_bytes_per_s={"host_in": 64e9, "host_out": 64e9, "dram": 1e12})

    def copy(name, pool, engine):
        return Copy(name=name, engine=engine, pool_bytes={pool: 64_000.0, "dram": 64_000.0}, queue=name)

    apart = simulate(machine, [copy("in", "host_in", "0"), copy("out", "host_out", "1")]).end_ps
    one = simulate(machine, [copy("in", "host_in", "0"), copy("out", "host_out", "0")]).end_ps
    assert (apart, one) == (1_000_000, 2_000_000)


@pytest.mark.parametrize("count", [2, 3, 5])
def test_contexts_take_turns(count):
    jobs = [kernel(1, f"j{i}", 1200, context=f"c{i}", queue=f"{i}") for i in range(count)]
    contexts = [Context(name=f"c{i}", slice_ps=100) for i in range(count)]
    run = simulate(device(1), jobs, contexts=contexts)
    assert [span.end_ps for span in run.spans] == [count * 1200 - (count - i) * 100 for i in range(1, count + 1)]


def test_a_stalled_stream_stalls_no_other():
    work = [kernel(1, "slow", 9000, queue="0"), kernel(1, "waits", 10, queue="1", after=("slow",)),
            kernel(1, "free", 10, queue="2")]  # fmt: skip
    run = simulate(device(4), work)
    assert run.span("free").end_ps == 10
    assert run.span("waits").start_ps == 9000


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3000), st.integers(1, 900), st.integers(1, 5), st.integers(0, 3))
def test_repeated_states_may_be_counted_instead_of_simulated(count, other, length, memory_share):
    phases = (Phase(fixed_ps=100 * length), Phase(pool_bytes={"dram": 40.0 * memory_share}, fixed_ps=7))
    work = [kernel(count, "a", phases=phases, needs=HALF), kernel(other, "b", 130 * length, queue="1", needs=HALF)]
    machine = device(12, pool_bytes_per_s={"dram": 1e12})
    short, long = (simulate(machine, work, compresses=flag) for flag in (True, False))
    assert short.end_ps == long.end_ps
    assert [s.slot_ps for s in short.spans] == [s.slot_ps for s in long.spans]
    assert short.event_count <= long.event_count


def test_a_million_blocks_need_a_handful_of_states():
    run = simulate(H100, [kernel(10**6)])
    assert run.end_ps == -(-(10**6) // 132) * 1000
    assert run.cta_count == 10**6
    assert run.event_count < 10


@pytest.mark.parametrize(("work", "message"), [
    (lambda: [kernel(0)], "0 thread blocks"),
    (lambda: [kernel(2**31)], "a grid has 1 to 2147483647"),
    (lambda: [kernel(10, cluster_count=4)], "do not divide"),
    (lambda: [kernel(1, needs=replace(WHOLE, shared_bytes=10**6))], "a block needs"),
    (lambda: [kernel(64, cluster_count=64)], "at most 18 start together"),
    (lambda: [kernel(1, after=("a",))], "wait for each other"),
    (lambda: [kernel(1, "a", after=("b",)), kernel(1, "b")], "wait for each other"),
    (lambda: [kernel(1, after=("z",))], "waits for z"),
    (lambda: [kernel(1, phases=(Phase(pool_bytes={"l3": 1.0}),))], "has no l3"),
    (lambda: [kernel(1, context="c")], "no context c"),
    (lambda: [kernel(1), kernel(1)], "two pieces of work are called a"),
])  # fmt: skip
def test_impossible_work_is_refused(work, message):
    with pytest.raises(SpecError, match=message):
        simulate(H100, work())


@pytest.mark.parametrize("wrong", [
    {"gpc_sm_count": ()}, {"gpc_sm_count": (0,)},
    {"pool_bytes_per_s": {"dram": -1.0}}, {"pool_bytes_per_s": {"dram": float("inf")}},
])  # fmt: skip
def test_impossible_machines_are_refused(wrong):
    with pytest.raises(SpecError, match="toy"):
        Machine(**{"name": "toy", "gpc_sm_count": (1,), "limits": LIMITS["hopper"]} | wrong)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30), st.integers(1, 300), st.integers(1, 300), st.integers(1, 50))
def test_another_multiprocessor_or_a_shorter_block_never_slows_independent_blocks(sms, count, other, length):
    def end(sm_count, length_ps):
        return simulate(device(sm_count), [kernel(count, "a", length_ps), kernel(other, "b", 77, queue="1")]).end_ps

    assert end(sms + 1, length) <= end(sms, length)
    assert end(sms, length) <= end(sms, length + 1)


def test_the_same_input_gives_the_same_record():
    work = [kernel(1000, "a", needs=HALF), memory("m", 5e5, "1"), kernel(500, "b", 333, queue="2", needs=HALF)]
    assert simulate(H100, work, records=True) == simulate(H100, work, records=True)


def board(limit_w):
    power = Power(idle_w=10.0, limit_w=limit_w, pipe_w={"tensor": 10.0}, byte_j={"dram": 1e-11})
    return device(4, pool_bytes_per_s={"dram": 1e12}, power=power)


def products(seconds):
    return kernel(4, phases=(Phase(pipe_s={"tensor": seconds}),))


def test_an_infinite_limit_leaves_the_clock_and_a_low_one_lowers_it():
    free, capped = (simulate(board(limit), [products(0.2)]) for limit in (float("inf"), 35.0))
    assert free.end_ps == 200_000_000_000
    assert all(clock == 1.0 for _, _, clock in free.governed)
    assert free.energy_j == pytest.approx(50.0 * 0.2, rel=1e-9)
    _, watt, clock = capped.governed[-2]
    assert watt == pytest.approx(35.0, rel=0.03)
    volt = 0.6 + 0.4 * clock
    assert 10 + 40 * clock * volt * volt == pytest.approx(watt, rel=1e-6)
    assert capped.end_ps > free.end_ps


def test_memory_keeps_its_pace_when_the_clock_falls():
    copy = memory("m", 2e11, "1")
    alone = simulate(board(35.0), [copy])
    assert alone.end_ps == pytest.approx(0.2e12, rel=1e-9)


def test_a_board_that_may_draw_nothing_is_refused():
    with pytest.raises(SpecError, match="leaves nothing above 10 W"):
        board(10.0)
