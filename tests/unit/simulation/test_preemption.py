"""What it costs when contexts take turns: saved state, drained blocks, priorities."""

from dataclasses import replace

import pytest

from nearpeak.simulation.engine.device_work import Kernel, Phase
from nearpeak.simulation.engine.event_loop import simulate
from nearpeak.simulation.engine.partition import Context
from nearpeak.simulation.machine import LIMITS, Costs, Limits, Machine

BLOCK = Limits(ctas_count=1, threads_count=256, registers_count=20_000, shared_bytes=20_000)
STATE = 4 * 20_000 + 20_000
"""Bytes of registers and shared memory of one block."""


def device(**kwargs):
    costs = Costs(state_bytes_per_s=1e12, **kwargs)
    return Machine(name="toy", gpc_sm_count=(4,), limits=LIMITS["hopper"], costs=costs)


def kernel(name, length_ps, context, count=4, **kwargs):
    phases = (Phase(fixed_ps=length_ps),)
    return Kernel(name=name, cta_count=count, phases=phases, needs=BLOCK, context=context, queue=context, **kwargs)


LOW, HIGH = Context(name="low", slice_ps=10**9), Context(name="high", priority=1, slice_ps=10**9)


def test_an_urgent_context_waits_for_the_state_to_be_saved():
    work = [kernel("long", 10**7, "low"), kernel("short", 10**5, "high", not_before_ps=10**6)]
    run = simulate(device(switch_ps=50), work, contexts=[LOW, HIGH])
    saved = 4 * STATE  # at a byte per picosecond
    assert run.span("short").start_ps == 10**6 + saved + 50
    assert run.span("long").end_ps == 10**7 + saved + 50 + 10**5 + saved
    first, second = run.switches
    assert (first.saved_bytes, first.restored_bytes) == (saved, 0)
    assert (second.saved_bytes, second.restored_bytes) == (0, saved)
    assert run.span("long").held_ps == {"evicted": 2 * saved + 50 + 10**5}


def test_only_what_is_resident_is_saved():
    work = [kernel("long", 10**7, "low", count=1), kernel("short", 10**5, "high", not_before_ps=10**6)]
    run = simulate(device(), work, contexts=[LOW, HIGH])
    assert run.span("short").start_ps == 10**6 + STATE


def test_a_context_that_drains_saves_nothing_and_is_waited_for():
    work = [kernel("long", 10**7, "low"), kernel("short", 10**5, "high", not_before_ps=10**6)]
    run = simulate(device(), work, contexts=[replace(LOW, drains=True), HIGH])
    assert run.span("short").start_ps == 10**7
    assert run.switches == ()
    assert run.span("short").held_ps == {"turn": 10**7 - 10**6}


def test_a_drained_context_goes_on_with_its_next_blocks_afterwards():
    work = [kernel("long", 10**6, "low", count=40), kernel("short", 10**5, "high", not_before_ps=1500)]
    run = simulate(device(), work, contexts=[replace(LOW, drains=True), HIGH])
    assert run.span("short").start_ps == 10**6
    assert run.span("long").end_ps == -(-40 // 12) * 10**6 + 10**5


def test_a_lower_context_gets_no_turn_while_a_higher_one_works():
    work = [kernel("urgent", 10**7, "high"), kernel("long", 10**5, "low")]
    run = simulate(device(), work, contexts=[replace(LOW, slice_ps=1000), replace(HIGH, slice_ps=1000)])
    assert run.span("urgent").end_ps <= 10**7 + 2 * 4 * STATE
    assert run.span("long").end_ps >= run.span("urgent").end_ps


@pytest.mark.parametrize("count", [2, 3])
def test_turns_that_cost_nothing_take_as_long_as_one_after_the_other(count):
    machine = replace(device(), costs=Costs())
    work = [kernel(f"k{i}", 12_000, f"c{i}") for i in range(count)]
    contexts = [Context(name=f"c{i}", slice_ps=1000) for i in range(count)]
    assert simulate(machine, work, contexts=contexts).end_ps == count * 12_000
    dear = simulate(device(), work, contexts=contexts)
    assert dear.end_ps == count * 12_000 + sum(one.end_ps - one.start_ps for one in dear.switches)


def test_no_multiprocessor_has_two_owners():
    work = [kernel("a", 30_000, "c0"), kernel("b", 30_000, "c1"), kernel("c", 7000, "c1", not_before_ps=5000)]
    contexts = [Context(name="c0", slice_ps=4000), Context(name="c1", slice_ps=9000)]
    run = simulate(device(), work, contexts=contexts, records=True)
    context_of = {"a": "c0", "b": "c1", "c": "c1"}
    for one in run.batches:
        for other in run.batches:
            apart = one.end_ps <= other.start_ps or other.end_ps <= one.start_ps
            assert apart or not one.sms & other.sms or context_of[one.name] == context_of[other.name]
    assert sum((b.end_ps - b.start_ps) * b.each_count * b.sms.bit_count() for b in run.batches) == sum(
        span.slot_ps for span in run.spans
    )
