"""What holds of every run, drawn at random: bounds, owners of slots, conservation, and anomalies that are legal."""

from collections import defaultdict
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearpeak.simulation.engine.device_work import Kernel, Phase
from nearpeak.simulation.engine.event_loop import simulate
from nearpeak.simulation.engine.partition import Context
from nearpeak.simulation.machine import LIMITS, Limits, Machine
from nearpeak.simulation.power_governor import Power

WHOLE = Limits(ctas_count=1, threads_count=1024, registers_count=65536, shared_bytes=200 * 1024)
HALF = replace(WHOLE, registers_count=32768, shared_bytes=100 * 1024)
SMALL = replace(WHOLE, threads_count=128, registers_count=8192, shared_bytes=20 * 1024)
RATES = {"dram": 1e12, "l2": 3e12}
DRAWN = settings(deadline=None, max_examples=40)


def device(sizes=(4, 3), **kwargs):
    return Machine(
        **{"name": "toy", "gpc_sm_count": sizes, "limits": LIMITS["hopper"], "pool_bytes_per_s": RATES} | kwargs
    )


phases = st.builds(
    lambda fixed, tensor, dram, l2: Phase(
        fixed_ps=fixed, pipe_s={"tensor": tensor * 1e-12}, pool_bytes={"dram": float(dram), "l2": float(l2)}
    ),
    st.integers(0, 900), st.integers(0, 900), st.integers(0, 400), st.integers(0, 900),
)  # fmt: skip
grids = st.tuples(st.integers(1, 40), st.lists(phases, min_size=1, max_size=3), st.sampled_from([WHOLE, HALF, SMALL]))


def kernels_of(drawn, **kwargs):
    return [
        Kernel(
            **{"name": f"k{i}", "cta_count": count, "phases": tuple(parts), "needs": needs, "queue": f"q{i}"} | kwargs
        )
        for i, (count, parts, needs) in enumerate(drawn)
    ]


works = st.lists(grids, min_size=1, max_size=4).map(kernels_of)
sizes = st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple)


def alone_ps(machine, kernel):
    return simulate(machine, [replace(kernel, after=())]).end_ps


@DRAWN
@given(works, sizes)
def test_the_same_input_leaves_the_same_record(work, shape):
    first, second = (simulate(device(shape), work, records=True) for _ in range(2))
    assert repr(first) == repr(second)


@DRAWN
@given(works, sizes, st.randoms(use_true_random=False))
def test_no_run_beats_its_resources_nor_its_longest_chain(work, shape, random):
    machine = device(shape)
    chained = [
        replace(one, after=tuple(f"k{j}" for j in range(i) if random.random() < 0.3)) for i, one in enumerate(work)
    ]
    run = simulate(machine, chained)
    for pool, rate in RATES.items():
        moved = sum(one.cta_count * phase.pool_bytes[pool] for one in work for phase in one.phases)
        assert run.end_ps >= moved / rate * 1e12 * (1 - 1e-9)
    busy = sum(one.cta_count * phase.pipe_s["tensor"] for one in work for phase in one.phases)
    assert run.end_ps >= busy * 1e12 / machine.sm_count * (1 - 1e-9)
    path: dict[str, int] = {}
    for one in chained:  # what single blocks take, which no sharing shortens
        block_ps = sum(max(phase.fixed_ps, 1) for phase in one.phases)
        path[one.name] = block_ps + max((path[name] for name in one.after), default=0)
    assert run.end_ps >= max(path.values())


filling = st.lists(grids, min_size=1, max_size=4).map(lambda drawn: kernels_of([(*one[:2], WHOLE) for one in drawn]))


@DRAWN
@given(filling, sizes)
def test_sharing_without_costs_is_never_slower_than_one_after_the_other(work, shape):
    machine = device(shape)
    serial = sum(alone_ps(machine, one) for one in work)
    slack = len(work) * sum(len(one.phases) * one.cta_count for one in work)  # phases end on whole picoseconds
    assert simulate(machine, work).end_ps <= serial + slack


@DRAWN
@given(filling, sizes, st.integers(50, 2000))
def test_turns_without_costs_are_never_slower_than_one_after_the_other(work, shape, slice_ps):
    machine = device(shape)
    own = [replace(one, context=one.name) for one in work]
    contexts = [Context(name=one.name, slice_ps=slice_ps) for one in work]
    serial = sum(alone_ps(machine, one) for one in work)
    slack = 4 * len(work) * sum(len(one.phases) * one.cta_count for one in work)  # and each turn cuts a phase in two
    assert simulate(machine, own, contexts=contexts).end_ps <= serial + slack


@DRAWN
@given(works, sizes, st.booleans())
def test_no_slot_of_a_multiprocessor_has_two_owners(work, shape, packs):
    machine = device(shape)
    needs = {one.name: one.needs.vector() for one in work}
    changes = defaultdict(list)
    run = simulate(machine, work, records=True, packs=packs)
    for batch in run.batches:
        for turn in range(batch.repeat_count):
            shift = turn * batch.period_ps
            held = [batch.each_count * need for need in needs[batch.name]]
            for sm in (bit for bit in range(machine.sm_count) if batch.sms >> bit & 1):
                changes[sm] += [(batch.start_ps + shift, 1, held), (batch.end_ps + shift, 0, [-x for x in held])]
    for events in changes.values():
        free = list(machine.limits.vector())
        for _, _, held in sorted(events, key=lambda one: one[:2]):
            free = [room - taken for room, taken in zip(free, held, strict=True)]
            assert min(free) >= 0
        assert free == list(machine.limits.vector())
    assert sum(one.cta_count for one in work) == run.cta_count


@DRAWN
@given(grids.map(lambda one: kernels_of([one])[0]), sizes, st.integers(0, 2), st.floats(1, 3))
def test_more_multiprocessors_or_bandwidth_never_slow_a_kernel(kernel, shape, at, faster):
    base = alone_ps(device(shape), kernel)
    wider = [size + 1 if place == at % len(shape) else size for place, size in enumerate(shape)]
    slack = 2 * len(kernel.phases) * kernel.cta_count  # phases end on whole picoseconds
    plain = replace(kernel, phases=tuple(replace(phase, pool_bytes={}) for phase in kernel.phases))
    assert alone_ps(device(tuple(wider)), plain) <= alone_ps(device(shape), plain)
    for pool, rate in RATES.items():
        assert alone_ps(device(shape, pool_bytes_per_s=RATES | {pool: rate * faster}), kernel) <= base + slack


@DRAWN
@given(works, sizes)
def test_work_is_conserved(work, shape):
    run = simulate(device(shape), work, records=True)
    for one in work:
        span = run.span(one.name)
        for pool in RATES:
            wanted = one.cta_count * sum(phase.pool_bytes[pool] for phase in one.phases)
            assert span.pool_bytes[pool] == pytest.approx(wanted, rel=1e-12)
        resident = sum(
            (batch.end_ps - batch.start_ps) * batch.each_count * batch.sms.bit_count() * batch.repeat_count
            for batch in run.batches if batch.name == one.name
        )  # fmt: skip
        assert span.slot_ps == resident


def board(limit_w, **kwargs):
    return Power(idle_w=20.0, limit_w=limit_w, pipe_w={"tensor": 7.0}, byte_j={"dram": 2e-11, "l2": 3e-12}, **kwargs)


def spent_j(work):
    """Return what work draws beyond rest at the highest clock."""
    tensor = sum(one.cta_count * phase.pipe_s["tensor"] for one in work for phase in one.phases)
    moved = {
        pool: sum(one.cta_count * phase.pool_bytes[pool] for one in work for phase in one.phases) for pool in RATES
    }
    return 7.0 * tensor + 2e-11 * moved["dram"] + 3e-12 * moved["l2"]


@DRAWN
@given(works, sizes, st.booleans())
def test_energy_is_that_of_rest_and_of_all_work_whoever_shares_with_whom(work, shape, compresses):
    run = simulate(device(shape, power=board(float("inf"))), work, compresses=compresses)
    rounding = 1e-12 * sum(len(one.phases) * one.cta_count for one in work) * (20.0 + 7.0 * sum(shape) + 20.0 + 9.0)
    assert run.energy_j == pytest.approx(20.0 * run.end_ps * 1e-12 + spent_j(work), rel=1e-6, abs=rounding)


@DRAWN
@given(st.integers(1, 30), st.integers(1, 5), st.floats(45, 60))
def test_energy_under_a_limit_lies_between_the_lowest_and_the_highest_voltage(count, length, limit_w):
    work = kernels_of([(count, [Phase(pipe_s={"tensor": 0.01 * length}, pool_bytes={"dram": 1e6, "l2": 0.0})], WHOLE)])
    power = board(limit_w, average_ps=2_000_000_000)
    run = simulate(device((7,), power=power), work)
    dynamic = run.energy_j - 20.0 * run.end_ps * 1e-12
    lowest = min(clock for _, _, clock in run.governed)
    assert spent_j(work) * power.voltage_ratio(lowest) ** 2 * (1 - 1e-9) <= dynamic <= spent_j(work) * (1 + 1e-9)
    ends = [0, *(end for end, _, _ in run.governed)]
    told = sum(watt * (end - start) * 1e-12 for start, (end, watt, _) in zip(ends, run.governed, strict=False))
    assert told <= run.energy_j * (1 + 1e-9)
    assert told == pytest.approx(run.energy_j, abs=(20 + 49) * 1.01e-3)


# Legal anomalies, see docs/guide/simulation.md: each is a theorem about list schedules or a coupling of the device.

GRAHAM = (3, 2, 2, 2, 4, 4, 4, 4, 9)
AFTER = {8: ("k0",), 4: ("k3",), 5: ("k3",), 6: ("k3",), 7: ("k3",)}


def graham_ps(sms, lengths=GRAHAM, after=AFTER):
    """Return the end of the nine tasks of Graham 1969 (doi:10.1137/0117039), one block each."""
    work = [
        Kernel(name=f"k{i}", cta_count=1, phases=(Phase(fixed_ps=1000 * length),), needs=WHOLE, queue=f"q{i}",
               after=after.get(i, ()))
        for i, length in enumerate(lengths)
    ]  # fmt: skip
    return simulate(device((sms,)), work).end_ps // 1000


def test_with_dependencies_another_multiprocessor_may_slow_a_run():
    assert (graham_ps(3), graham_ps(4)) == (12, 15)


def test_with_dependencies_shorter_blocks_may_slow_a_run():
    assert (graham_ps(3), graham_ps(3, [length - 1 for length in GRAHAM])) == (12, 13)


def test_fewer_dependencies_may_slow_a_run():
    fewer = {8: ("k0",), 6: ("k3",), 7: ("k3",)}
    assert (graham_ps(3), graham_ps(3, after=fewer)) == (12, 16)


def test_a_neighbour_that_shares_nothing_but_the_board_slows_through_the_clock():
    products = Kernel(name="p", cta_count=2, phases=(Phase(pipe_s={"tensor": 0.1}),), needs=WHOLE, sms=(0, 1))
    memory = Kernel(
        name="m", cta_count=2, phases=(Phase(pool_bytes={"dram": 2e11}),), needs=WHOLE, queue="1", sms=(2, 3)
    )
    machine = device((4,), power=Power(idle_w=20.0, limit_w=38.0, pipe_w={"tensor": 7.0}, byte_j={"dram": 2e-11}))
    assert simulate(machine, [products, memory]).span("p").end_ps > 1.02 * simulate(machine, [products]).end_ps
    free = replace(machine, power=None)
    assert simulate(free, [products, memory]).span("p").end_ps == simulate(free, [products]).end_ps


def test_two_kernels_may_take_longer_than_one_after_the_other_where_blocks_meet_on_a_multiprocessor():
    """Blocks take the free half of the device at once, two to a multiprocessor, and stay when the rest falls free."""
    short = Kernel(name="s", cta_count=1, phases=(Phase(fixed_ps=10),), needs=WHOLE)
    pair = Kernel(name="p", cta_count=2, phases=(Phase(pipe_s={"tensor": 1e-9}),), needs=HALF, queue="1")
    machine = device((2,))
    assert simulate(machine, [short, pair]).end_ps == 2000
    assert alone_ps(machine, short) + alone_ps(machine, pair) == 1010


def test_more_multiprocessors_in_smaller_clusters_may_hold_fewer_clusters_of_blocks():
    def end(shape):
        work = Kernel(name="c", cta_count=8, phases=(Phase(fixed_ps=1000),), needs=WHOLE, cluster_count=4)
        return simulate(device(shape), [work]).end_ps

    assert end((4, 4)) == 1000
    assert end((3, 3, 4)) == 2000  # ten in all, but one cluster of four at a time
