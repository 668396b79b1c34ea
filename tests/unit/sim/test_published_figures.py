"""Measured figures of other people's devices, listed with their source before the simulator was written for them."""

from dataclasses import replace
from typing import NamedTuple

import pytest

from nearpeak.ops import case
from nearpeak.sim.device import machine_of
from nearpeak.sim.engine import simulate
from nearpeak.sim.lowering import kernels_of
from nearpeak.sim.machine import LIMITS, Machine
from nearpeak.sim.partition import Context, green, save_ps
from nearpeak.sim.simulation import simulate_case
from nearpeak.sim.work import Kernel, Phase
from nearpeak.targets import target_of

US = 1e6
"""Picoseconds."""
TMEM_BYTES = 256 * 1024


class Row(NamedTuple):
    """What somebody measured or stated, and what the simulator says."""

    source: str
    value: float
    simulated: object
    tolerance: float = 0.15


def product_us(device, m, n, k):
    return lambda: simulate_case(case("gemm", m=m, n=n, k=k, dtype="bf16"), target_of(device)).end_ps / US


def saved_us(device, **kwargs):
    return lambda: save_ps(machine_of(target_of(device)), **kwargs) / US


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


def graph_us(gap_us):
    """Return the end of a kernel of 24 µs that is submitted with some cost."""

    def end():
        kernel = kernel_of(148, 24, not_before_ps=round(gap_us * US))
        return simulate(machine_of(target_of("b200_sxm")), [kernel]).end_ps / US

    return end


def turns_latency_us():
    """Return how long a short kernel waits behind a busy context with slices of 2 ms."""
    machine = Machine(name="m", gpc_sm_count=(8,), limits=LIMITS["hopper"])
    long = kernel_of(8, 20_000, name="l", context="a")
    short = kernel_of(1, 1, name="s", context="b", queue="b")
    return simulate(machine, [long, short], contexts=[Context(name="a"), Context(name="b")]).span("s").start_ps / US


AIC = "public AIConfigurator tables 0.12 (Apache-2.0), least of all software"
ROWS = {
    "H100 4353x8192x8192": Row(AIC, 735.0, product_us("h100_sxm", 4353, 8192, 8192)),
    "H100 4096x8192x4096": Row(AIC, 330.5, product_us("h100_sxm", 4096, 8192, 4096)),
    "H100 4353x16384x4096": Row(AIC, 743.3, product_us("h100_sxm", 4353, 16384, 4096)),
    "H100 4097x16384x8192": Row(AIC, 1342.7, product_us("h100_sxm", 4097, 16384, 8192)),
    "B200 4353x8192x8192": Row(AIC, 380.2, product_us("b200_sxm", 4353, 8192, 8192)),
    "B200 4097x16384x8192": Row(AIC, 738.3, product_us("b200_sxm", 4097, 16384, 8192)),
    "B200 4353x16384x4096": Row(AIC, 373.6, product_us("b200_sxm", 4353, 16384, 4096)),
    "B200 one row more than 4352": Row(AIC, 1.12, cliff),
    "H100 decode of 2 GB": Row("same tables, 79 to 88 % of the pin rate", 0.835, decode_share, 0.1),
    "H100 decode of few keys": Row("same tables, 0.1 to 1.2 TB/s", 0.65, short_decode_tb_per_s, 0.85),
    "H100 state of all multiprocessors": Row("derived from sizes, 65.4 MB at 2.8 TB/s", 23.4, saved_us("h100_sxm")),
    "A100 state": Row("derived from sizes", 28.2, saved_us("a100_sxm_80gb")),
    "B200 state": Row("derived from sizes", 11.5, saved_us("b200_sxm")),
    "B200 state with tensor memory": Row(
        "derived from sizes", 17.5, saved_us("b200_sxm", tensor_memory_bytes=TMEM_BYTES)
    ),
    "three streams whose products fill the device": Row(
        "multi_stream_event_sync trace of HTA: 3 products of 369 µs in all do not overlap", 3.0, three_streams_us, 0.02
    ),
    "H100 3g.40gb, memory-bound": Row("MIG user guide: half", 2.0, slice_ratio("h100_sxm:3g.40gb")),
    "H100 1g.10gb, memory-bound": Row("MIG user guide: an eighth", 8.0, slice_ratio("h100_sxm:1g.10gb")),
    "133 blocks on 132": Row("closed form", 0.504, waves(133, 132), 0.001),
    "1000 blocks on 148": Row("closed form", 0.965, waves(1000, 148), 0.001),
    "green context of 20": Row("CUDA driver API: multiples of 8", 24, lambda: green(132, 20), 0.0),
    "kernel of 24 µs in a graph": Row("published B200 measurement", 25.8, graph_us(1.75)),
    "wait behind slices": Row("LithOS (SOSP'25): slices of up to 2 ms", 2000, turns_latency_us, 0.01),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_a_published_figure_is_met(name):
    row = ROWS[name]
    assert row.simulated() == pytest.approx(row.value, rel=row.tolerance), row.source
