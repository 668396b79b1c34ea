"""More of a resource never slows a lowered kernel: random cases, devices and steps of each family."""

import itertools
import random

import pytest

from nearpeak.ops import case
from nearpeak.simulation.step_simulation import simulate_case
from nearpeak.targets import target_of

DEVICES = ("h100_sxm", "a100_sxm_80gb", "b200_sxm", "l4", "mi300x", "rtx_4090")
RESOURCES = ("sm_count", "sm_count", "clock.max", "dram.bandwidth", "l2.capacity")
SLACK_RATIO = 1e-3
LAYER_NORM = case("layer_norm", rows=4096, hidden=4096, dtype="bf16")


def edit(target, resource, factor):
    if resource == "sm_count":
        return f"sm_count={max(1, round(target.sm_count * factor))}"
    if resource == "clock.max":
        return f'clock.max="{target.clock_hz * factor / 1e6:.6f} MHz"'
    if resource == "dram.bandwidth":
        return f'dram.bandwidth="{target.dram.bandwidth_bytes_per_s * factor / 1e9:.6f} GB/s"'
    return f'l2.capacity="{round(target.l2.capacity_bytes * factor / 2**10)} KiB"'


def size(rng, low, high):
    return round(2 ** rng.uniform(low, high))


def attention(rng):
    keys = size(rng, 5, 12)
    return case("attention", batch=size(rng, 0, 4), heads=size(rng, 2, 6), q=keys, kv=keys, dim=128, dtype="bf16")


def conv(rng):
    side = size(rng, 3, 6)
    extents = {"in_channels": 64, "out_channels": size(rng, 4, 9), "h": side, "w": side, "kh": 3, "kw": 3}
    return case("conv", batch=size(rng, 0, 7), **extents, dtype="fp16")


def grouped(rng, *phase):
    groups = size(rng, 2, 7)
    extents = {"m": max(groups, size(rng, 5, 13)), "n": size(rng, 8, 13), "k": size(rng, 8, 13), "groups": groups}
    return case("grouped_gemm", *phase, **extents, dtype="bf16", touched_groups=groups)


FAMILIES = {
    "gemm": lambda rng: case("gemm", m=size(rng, 0, 13), n=size(rng, 6, 13), k=size(rng, 6, 13), dtype="bf16"),
    "norm": lambda rng: case("layer_norm", rows=size(rng, 3, 15), hidden=size(rng, 8, 14), dtype="bf16"),
    "softmax": lambda rng: case("softmax", rows=size(rng, 3, 14), columns=size(rng, 6, 15), dtype="fp16"),
    "adamw": lambda rng: case("adamw", parameters=size(rng, 10, 27), dtype="fp32"),
    "attention": attention,
    "decode": lambda rng: case(
        "attention", batch=size(rng, 0, 8), heads=32, kv_heads=8, q=1, kv=size(rng, 6, 15), dim=128, dtype="bf16"
    ),
    "conv": conv,
    "collective": lambda rng: case("collective", elements=size(rng, 8, 27), ranks=8, dtype="fp16", kind="all_reduce"),
    "grouped": grouped,
    "grouped gradients": lambda rng: grouped(rng, "backward"),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_more_of_a_resource_never_slows_a_lowered_kernel(family):
    rng = random.Random(f"lowering {family}")
    for _ in range(8):
        drawn, device, resource = FAMILIES[family](rng), rng.choice(DEVICES), rng.choice(RESOURCES)
        less = 2 ** rng.uniform(-1, 1.3)
        more = less * 2 ** rng.uniform(0.02, 1.2)
        edits = [edit(target_of(device), resource, factor) for factor in (less, more)]
        before, after = (simulate_case(drawn, target_of(device, [each])).end_ps for each in edits)
        assert after <= before * (1 + SLACK_RATIO), (device, edits, drawn)


def test_rows_in_flight_beyond_what_the_cache_keeps_are_not_started():
    times, blocks = [], []
    for count in (66, 132, 200, 264, 400):
        run = simulate_case(LAYER_NORM, target_of("h100_sxm", [f"sm_count={count}"]))
        times.append(run.end_ps)
        blocks.append(run.cta_count)
    assert times == sorted(times, reverse=True)
    assert blocks[:2] == [8 * 66, 8 * 132]
    assert blocks[-2] == blocks[-1] < 8 * 264


def test_gradients_of_weights_take_the_tiles_that_are_done_first():
    gradients = case("grouped_gemm", "backward", m=101, n=1199, k=2898, groups=5, dtype="bf16", touched_groups=5)
    times = [simulate_case(gradients, target_of("rtx_4090", [f"sm_count={n}"])).end_ps for n in (280, 311, 360, 513)]
    assert all(after <= before * (1 + SLACK_RATIO) for before, after in itertools.pairwise(times))


def test_a_board_holds_a_lower_clock_rather_than_slow_a_faster_device():
    product = case("gemm", m=4096, n=4096, k=4096, dtype="bf16")
    times = [
        simulate_case(product, target_of("l4", [f'clock.max="{clock} MHz"'])).end_ps for clock in (2040, 3060, 4080)
    ]
    assert times == sorted(times, reverse=True)
