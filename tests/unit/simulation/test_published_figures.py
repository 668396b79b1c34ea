"""Measured figures of other people's devices, listed with their source before the simulator was written for them."""

from dataclasses import replace
from typing import NamedTuple

import pytest

from nearpeak.ops import case
from nearpeak.simulation.engine.device_work import Kernel, Phase
from nearpeak.simulation.engine.event_loop import simulate
from nearpeak.simulation.lowering import kernels_of
from nearpeak.simulation.machine import LIMITS, Machine
from nearpeak.simulation.machine_from_target import machine_of
from nearpeak.simulation.step_simulation import simulate_case
from nearpeak.targets import target_of

US = 1e6
"""Picoseconds."""


class Row(NamedTuple):
    """What somebody measured or stated, and what the simulator says."""

    source: str
    value: float
    simulated: object
    tolerance: float = 0.15


def product_us(device, m, n, k):
    return lambda: simulate_case(case("gemm", m=m, n=n, k=k, dtype="bf16"), target_of(device)).end_ps / US


def kernel_of(count, length_us, **kwargs):
    phases = (Phase(fixed_ps=round(length_us * US)),)
    return Kernel(**{"name": "k", "cta_count": count, "phases": phases, "needs": LIMITS["hopper"]} | kwargs)


def decode_share():
    """Return the share of the pin rate that decoding 2 GB of keys and values reaches."""
    one = case("attention", batch=64, heads=32, kv_heads=8, q=1, kv=8192, dim=128, dtype="bf16")
    moved = 64 * 8 * 8192 * 128 * 2 * 2
    return moved / (simulate_case(one, target_of("h100_sxm")).end_ps * 1e-12) / 3.35e12


def short_decode_tb_per_s():
    """Return the rate of many sequences with few keys."""
    one = case("attention", batch=1024, heads=32, kv_heads=8, q=1, kv=16, dim=128, dtype="bf16")
    return 1024 * 8 * 16 * 128 * 4 / (simulate_case(one, target_of("h100_sxm")).end_ps * 1e-12) / 1e12


def cliff():
    after, before = (product_us("b200_sxm", m, 65536, 16384)() for m in (4353, 4352))
    return after / before


def waves(count, slots):
    def share():
        block = kernel_of(count, 0.001)
        end = simulate(Machine(name="m", gpc_sm_count=(slots,), limits=LIMITS["hopper"]), [block]).end_ps
        return count / (slots * end / 1000)

    return share


def three_streams_us():
    """Return the end of three products of 123 µs on a V100-sized device, each on a stream of its own."""
    (kernel,) = kernels_of(case("gemm", m=4096, n=4096, k=1024, dtype="fp16"), target_of("v100_sxm"))
    work = [replace(kernel, name=name, queue=name) for name in "abc"]
    machine = machine_of(target_of("v100_sxm"))
    return simulate(machine, work).end_ps / simulate(machine, work[:1]).end_ps


def slice_ratio(part, whole="h100_sxm"):
    """Return how much longer a memory-bound kernel takes on a slice."""

    def ratio():
        one = case("elementwise", elements=2**28, function="relu", dtype="bf16")
        return simulate_case(one, target_of(part)).end_ps / simulate_case(one, target_of(whole)).end_ps

    return ratio


def seen_by_a_waiting_host_us():
    """Return the end of a kernel of 24 µs on a B200 that a host submits and waits for."""
    work = kernel_of(148, 24, thread="host")
    return simulate(machine_of(target_of("b200_sxm")), [work]).end_ps / US


def preempted(policy, which):
    """Return the wait of an urgent short job behind a long product, over that product or in µs."""
    from nearpeak.simulation.scenario import Stream, share

    long = Stream(name="long", cases=(case("gemm", m=16384, n=16384, k=16384, dtype="bf16"),))
    short = Stream(name="short", cases=(case("gemm", m=256, n=256, k=256, dtype="bf16"),), start_s=1e-3, priority=1)

    def wait():
        found = share([short, long], target_of(which), policy).streams[0]
        return (found.p99_s - found.alone_s) * 1e6

    return wait


def first_slot():
    """Return how long an urgent kernel waits for the first of 132 slots, over the length of the blocks there."""
    length, waits = 10.0, []
    for turn in range(40):
        phases = [(place * 7919 + turn * 104729) % 132 / 132 for place in range(132)]
        work = [kernel_of(1, length * (1 - left) + 1e-6, name=f"b{i}", queue=f"b{i}") for i, left in enumerate(phases)]
        work.append(kernel_of(1, 1, name="u", queue="u", priority=1, not_before_ps=1))
        machine = Machine(name="m", gpc_sm_count=(132,), limits=LIMITS["hopper"], grid_count=200)
        waits.append(simulate(machine, work).span("u").start_ps / US / length)
    return sum(waits) / len(waits)


AIC = "public AIConfigurator tables 0.12 (Apache-2.0), least of all software"
GPU = "gpu_facts.md"
ROWS = {
    "H100 4353x8192x8192": Row(f"{AIC}; bf16", 735.0, product_us("h100_sxm", 4353, 8192, 8192)),
    "H100 4096x8192x4096": Row(f"{AIC}; bf16", 330.5, product_us("h100_sxm", 4096, 8192, 4096)),
    "H100 4353x16384x4096": Row(f"{AIC}; bf16", 743.3, product_us("h100_sxm", 4353, 16384, 4096)),
    "H100 4097x16384x8192": Row(f"{AIC}; bf16", 1342.7, product_us("h100_sxm", 4097, 16384, 8192)),
    "B200 4353x8192x8192": Row(f"{AIC}; bf16", 380.2, product_us("b200_sxm", 4353, 8192, 8192)),
    "B200 4097x16384x8192": Row(f"{AIC}; bf16", 738.3, product_us("b200_sxm", 4097, 16384, 8192)),
    "B200 4353x16384x4096": Row(f"{AIC}; bf16", 373.6, product_us("b200_sxm", 4353, 16384, 4096)),
    "B200 one row more than 4352": Row(f"{AIC}; bf16", 1.12, cliff),
    "H100 decode of 2 GB": Row(f"{GPU}, attention: 79 to 88 % of the pin rate", 0.835, decode_share, 0.1),
    "H100 decode of few keys": Row(f"{GPU}, attention: 0.1 to 1.2 TB/s", 0.65, short_decode_tb_per_s, 0.85),
    "three streams whose products fill the device": Row(
        "findings.md, overlap: 3 products of 369 µs in all on 3 streams do not overlap", 3.0, three_streams_us, 0.02
    ),
    "an urgent job behind a product on an H100": Row(
        f"{GPU}, context switching: state saved, µs", 23.4, preempted("preempts", "h100_sxm")
    ),
    "an urgent job behind a product on an A100": Row(
        f"{GPU}, context switching: state saved, µs", 28.2, preempted("preempts", "a100_sxm_80gb")
    ),
    "first of 132 slots for an urgent kernel": Row(
        "simulator.md, preemption: d / (S + 1) for uniform phases", 0.0075, first_slot, 0.15
    ),
    "H100 3g.40gb, memory-bound": Row(f"{GPU}, MIG: half of the memory slices", 2.0, slice_ratio("h100_sxm:3g.40gb")),
    "H100 1g.10gb, memory-bound": Row(f"{GPU}, MIG: one of eight slices", 8.0, slice_ratio("h100_sxm:1g.10gb")),
    "1000 blocks on 148": Row("simulator.md, waves", 0.965, waves(1000, 148), 0.001),
    "4096 blocks on 132": Row("simulator.md, waves", 0.970, waves(4096, 132), 0.001),
    "B200 kernel of 24 µs, launched": Row(
        f"{GPU}, launch floors: driver launch, µs", 28.3, seen_by_a_waiting_host_us, 0.05
    ),
}  # fmt: skip
"""Figures by name. None is a parameter of the simulator that comes back; slices read the shares of their profiles,
which device files take from the same listings, and saved state the sizes of registers and shared memory."""


@pytest.mark.parametrize("name", ROWS)
def test_a_published_figure_is_met(name):
    row = ROWS[name]
    assert row.simulated() == pytest.approx(row.value, rel=row.tolerance), row.source
