"""Clock of the kernels of a training step, what collectives take from them, and products in TF32."""

from collections.abc import Mapping

import pytest

from nearpeak.api.device_durations import kernel_durations, reduced_device, sustained_clock_ratio
from nearpeak.api.training.training_time import training_time, transfer_durations
from nearpeak.core.systems.duration import WHOLE, Taken
from nearpeak.core.systems.plan_words import training_plan_of
from nearpeak.core.systems.rank_program import Transfer
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.ops import case
from nearpeak.targets import target_of
from nearpeak.targets.clusters import cluster_of

PRODUCT = case("gemm", m=8192, n=8192, k=8192, dtype="bf16")
COPY = case("copy", elements=2**28, dtype="bf16")
B200 = target_of("b200_sxm")


def clock_of(counts: Mapping, idle_s: float = 0.0) -> float:
    return sustained_clock_ratio(B200, counts, idle_s)


def test_the_clock_falls_with_the_power_of_the_mix_and_rises_with_rest() -> None:
    product_s = kernel_durations(B200)(PRODUCT, WHOLE).time_s
    assert clock_of({PRODUCT: 1.0}) < clock_of({PRODUCT: 1.0}, product_s) <= clock_of({PRODUCT: 1.0}, 10 * product_s)
    assert clock_of({PRODUCT: 1.0}) == clock_of({PRODUCT: 7.0})
    assert clock_of({COPY: 1.0}) >= clock_of({PRODUCT: 1.0})


def test_kernels_that_follow_the_clock_are_slower_and_copies_are_not() -> None:
    burst, slow = (kernel_durations(B200, clock_ratio=clock) for clock in (1.0, 0.5))
    assert slow(PRODUCT, WHOLE).time_s > 1.2 * burst(PRODUCT, WHOLE).time_s
    assert slow(PRODUCT, WHOLE).bound_s == burst(PRODUCT, WHOLE).bound_s
    assert slow(COPY, WHOLE).time_s < 1.05 * burst(COPY, WHOLE).time_s


def test_a_step_is_sustained_unless_bursts_are_asked_for_and_its_parts_add_up() -> None:
    cluster = cluster_of("8xb200_sxm")
    plan = training_plan_of("tp=2,zero=1,sp", 8, sequence=4096)
    burst, usual = (
        training_time("llama-3-8b", plan, cluster, "megatron-lm", is_sustained=way) for way in (False, True)
    )
    assert usual.step_s >= burst.step_s
    assert sum(part.time_s for part in usual.parts) == pytest.approx(usual.step_s, rel=1e-9)
    assert any("of the highest clock" in note for note in usual.notes)
    assert not any("of the highest clock" in note for note in burst.notes)


def test_a_collective_takes_three_accesses_for_each_byte_received() -> None:
    cluster, plan = cluster_of("8xh100_sxm"), training_plan_of("dp=8", 8, sequence=4096)
    found = transfer_durations(plan, cluster)(Transfer(kind="all_gather", bytes=2**30, dim="dp"))
    rate = target_of("h100_sxm").dram.bandwidth_bytes_per_s
    assert found.taken.memory_ratio == pytest.approx(3 * 7 / 8 * 2**30 / found.time_s / rate)
    assert found.taken.sm_count == 16


def test_kernels_bound_by_memory_lose_what_the_collective_takes_and_no_more_than_that() -> None:
    times = kernel_durations(target_of("h100_sxm"))
    taken = Taken(memory_ratio=0.25)
    assert times(COPY, taken).time_s == pytest.approx(times(COPY, WHOLE).time_s / 0.75, rel=0.02)
    assert times(PRODUCT, WHOLE).time_s <= times(PRODUCT, taken).time_s < 1.1 * times(PRODUCT, WHOLE).time_s
    with pytest.raises(SpecError, match="100% of its memory rate cannot be taken away"):
        reduced_device(target_of("h100_sxm"), Taken(memory_ratio=1.0))


def test_products_in_tf32_are_between_those_of_bf16_and_fp32() -> None:
    device = target_of("a100_sxm_80gb")
    plain, rounded = (kernel_durations(device, has_tf32=way) for way in (False, True))
    wide = case("gemm", m=8192, n=8192, k=8192, dtype="fp32")
    times_s = [plain(PRODUCT, WHOLE).time_s, rounded(wide, WHOLE).time_s, plain(wide, WHOLE).time_s]
    assert 1.5 < times_s[1] / times_s[0] < 2.2  # half the rate; bf16 is held back by power
    assert times_s[1] < times_s[2] / 3
    assert rounded(wide, WHOLE).bound_s <= times_s[1]
    assert rounded(COPY, WHOLE) == plain(COPY, WHOLE)
    with pytest.raises(NotModelledError, match="v100_sxm_32gb: no document states a rate of TF32"):
        kernel_durations(target_of("v100_sxm_32gb"), has_tf32=True)
