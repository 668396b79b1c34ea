"""The simulator against closed forms of queueing and scheduling that neither it nor predictions use."""

import itertools
import math

import pytest

from nearpeak.ops import case
from nearpeak.simulation.engine.device_work import Kernel, Phase
from nearpeak.simulation.engine.event_loop import simulate
from nearpeak.simulation.engine.partition import Context
from nearpeak.simulation.frame_work import Frame
from nearpeak.simulation.machine import LIMITS, Costs, Limits, Machine
from nearpeak.simulation.power_governor import Power
from nearpeak.simulation.scenario import Stream, share
from nearpeak.simulation.step_simulation import simulate_case
from nearpeak.targets import target_of

H100 = target_of("h100_sxm")
BLOCK = Limits(ctas_count=1, threads_count=256, registers_count=20_000, shared_bytes=20_000)
STATE_PS = 4 * (4 * 20_000 + 20_000)
"""Time to save or restore the blocks of four multiprocessors at a byte per picosecond."""


def device(**costs):
    return Machine(name="toy", gpc_sm_count=(4,), limits=LIMITS["hopper"], costs=Costs(**costs))


def kernel(name, length_ps, context="0", **more):
    phases = (Phase(fixed_ps=length_ps),)
    queue = name if context == "0" else context
    needs = BLOCK if context != "0" else LIMITS["hopper"]
    return Kernel(name=name, cta_count=4, phases=phases, needs=needs, context=context, queue=queue, **more)


def response_ps(own, period, urgent):
    """The least R with R = own + ⌈R / period⌉ · urgent (Joseph and Pandya 1986)."""
    response = own
    while (later := own + math.ceil(response / period) * urgent) != response:
        response = later
    return response


@pytest.mark.parametrize(("own", "period", "urgent"), [
    (5_000_000, 3_000_000, 100_000), (20_000_000, 2_500_000, 700_000), (9_000_000, 4_000_000, 1_000_000),
])  # fmt: skip
def test_a_preempted_job_ends_when_the_recurrence_of_response_times_says(own, period, urgent):
    jobs = range(40)
    work = [kernel("long", own, "low")]
    work += [kernel(f"u{i}", urgent, "high", not_before_ps=1 + i * period) for i in jobs]
    contexts = [Context(name="low", slice_ps=10**9), Context(name="high", priority=1, slice_ps=10**9)]
    run = simulate(device(state_bytes_per_s=1e12), work, contexts=contexts)
    assert run.span("long").end_ps == pytest.approx(response_ps(own, period, urgent + 2 * STATE_PS), abs=2)


@pytest.mark.parametrize(("jobs", "cost"), [(2, 50), (3, 50), (4, 700)])
def test_turns_cost_what_their_changes_cost(jobs, cost):
    """The last turn of each job but one ends with the job, and the next begins without a change of its own."""
    length, turn = 12_000, 1000
    work = [kernel(f"k{i}", length, f"c{i}") for i in range(jobs)]
    contexts = [Context(name=f"c{i}", slice_ps=turn) for i in range(jobs)]
    run = simulate(device(switch_ps=cost), work, contexts=contexts)
    assert run.end_ps == jobs * length + jobs * (length // turn - 1) * cost


@pytest.mark.parametrize("lengths", [(3000, 5000, 11_000), (7000, 7000, 1000), (2000, 2000, 9000)])
def test_whatever_the_order_of_service_work_times_waiting_is_the_same(lengths):
    """Kleinrock 1965: where service is neither interrupted nor idle, Σ work · wait does not depend on the order."""
    sums = set()
    for order in itertools.permutations(range(3)):
        work = [kernel(f"k{i}", lengths[i], priority=rank) for rank, i in enumerate(order)]
        run = simulate(device(), work)
        sums.add(sum(lengths[i] * run.span(f"k{i}").start_ps for i in range(3)))
    assert len(sums) == 1


def test_drawing_and_computing_on_one_unit_take_as_long_as_their_work():
    """Processor sharing: neither is done before its own share allows, and both when all work is done."""
    machine = Machine(name="toy", gpc_sm_count=(4,), limits=LIMITS["hopper"])
    half = Limits(ctas_count=1, threads_count=1024, registers_count=32_768, shared_bytes=100_000)

    def of(name, seconds):
        return Kernel(name=name, cta_count=4, phases=(Phase(pipe_s={"vector": seconds}),), needs=half, queue=name)

    run = simulate(machine, [of("draw", 1e-6), of("compute", 3e-6)])
    assert run.end_ps == pytest.approx(4e6, rel=1e-6)
    assert run.span("draw").end_ps == pytest.approx(2e6, rel=1e-6)


def test_compute_in_turns_with_frames_ends_later_by_what_was_drawn_and_switched():
    product = Stream(name="batch", cases=(case("gemm", m=8192, n=8192, k=8192, dtype="bf16"),), count=2)
    frame = Frame(pixels_count=8 * 1056 * 256, flop_count=2000, bytes_per_pixel_count=4)
    screen = Stream(name="screen", frame=frame, count=2, start_s=1e-4, period_s=5e-4, priority=1)
    found = share([product, screen], H100, "preempts", records=True)
    batch, drawn = found.streams
    switched_s = sum(one.end_ps - one.start_ps for one in found.run.switches) * 1e-12
    assert found.end_s == pytest.approx(2 * batch.alone_s + 2 * drawn.alone_s + switched_s, rel=0.02)


@pytest.mark.parametrize("limit_w", [25.0, 30.0, 40.0, 48.0])
def test_a_governed_clock_settles_where_the_limit_holds(limit_w):
    power = Power(idle_w=10.0, limit_w=limit_w, pipe_w={"tensor": 10.0})
    machine = Machine(name="toy", gpc_sm_count=(4,), limits=LIMITS["hopper"], power=power)
    block = Kernel(name="a", cta_count=4, phases=(Phase(pipe_s={"tensor": 2.0}),), needs=LIMITS["hopper"])
    run = simulate(machine, [block])
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if 10 + 40 * middle * (0.6 + 0.4 * middle) ** 2 < limit_w else (low, middle)
    clock = max(low, power.least_clock_ratio)
    assert run.governed[-2][2] == pytest.approx(clock, abs=1.5 * power.step_ratio)
    assert run.end_ps == pytest.approx(2e12 / clock, rel=0.03)


def settled_share(name, depths=(1_000_000, 2_000_000)):
    """Return the share of the documented rate at which products run that the limit has held for long."""
    target = target_of(name)
    runs = [simulate_case(case("gemm", m=8192, n=8192, k=k, dtype="bf16"), target, governed=True) for k in depths]
    flop, time_s = 2 * 8192**2 * (depths[1] - depths[0]), (runs[1].end_ps - runs[0].end_ps) * 1e-12
    return flop / time_s / target.peaks["tensor.bf16"].flop_per_s


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        ("h100_sxm", 0.74),
        ("h200_sxm", 0.70),
        ("b200_sxm", 0.60),
        ("gb200", 0.58),
        ("a100_sxm_80gb", 0.84),
        ("l40s", 0.66),
    ],
)
def test_products_beyond_ten_milliseconds_settle_where_public_tables_show_them(name, stated):
    """AIConfigurator's tables (guide); energies were read off all of them but the H200's."""
    assert settled_share(name) == pytest.approx(stated, abs=0.06)


def test_a_lower_limit_holds_products_further_back():
    shares = []
    for limit in ("700 W", "500 W", "350 W"):
        product = case("gemm", m=8192, n=8192, k=1_000_000, dtype="bf16")
        run = simulate_case(product, target_of("h100_sxm", [f'power.limit="{limit}"']), governed=True)
        shares.append(1 / run.end_ps)
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < 0.8 * shares[0]


def test_a_board_cuts_what_is_far_above_its_limit_within_a_decision():
    power = Power(idle_w=10.0, limit_w=20.0, pipe_w={"tensor": 10.0})
    machine = Machine(name="toy", gpc_sm_count=(4,), limits=LIMITS["hopper"], power=power)
    block = Kernel(name="a", cta_count=4, phases=(Phase(pipe_s={"tensor": 0.05}),), needs=LIMITS["hopper"])
    (_, first, _), *later = simulate(machine, [block]).governed
    assert first == pytest.approx(50.0)
    assert max(watt for _, watt, _ in later) <= 1.1 * 20.0 * (1 + 1e-6)
