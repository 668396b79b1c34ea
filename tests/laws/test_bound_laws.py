"""Bounds behave like bounds: between the largest and the sum of the parts, never slower on a faster device."""

import dataclasses

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearpeak.core.bound import PROVED, Policy
from nearpeak.core.work import Work
from nearpeak.errors import NotModelledError
from nearpeak.ops import case, work_of
from nearpeak.targets import target_of
from nearpeak.theory.case_bound import case_bound, work_bound

DEVICE = target_of("h100_sxm")
SIZES = st.one_of(st.sampled_from([1, 2, 127, 128, 129, 4095, 4096, 4097]), st.integers(1, 20_000))
BYTES = st.one_of(st.sampled_from([0, 1, DEVICE.l2.capacity_bytes]), st.integers(0, 2**40))
WORK = st.builds(
    Work, flop=st.dictionaries(st.sampled_from(["matrix.bf16", "matrix.fp32"]), st.integers(0, 2**60)),
    read_bytes=BYTES, write_bytes=BYTES,
)  # fmt: skip
POLICIES = st.builds(
    Policy, dtype=st.sampled_from(["strict", "tf32", "hard"]), output_credit=st.booleans(), cold_inputs=st.booleans()
)


@given(WORK, WORK)
def test_bound_of_a_sum_without_credit_lies_between_maximum_and_sum(left, right):
    policy = Policy(output_credit=False)
    alone = [work_bound(work, DEVICE, policy).time_s for work in (left, right)]
    both = work_bound(left + right, DEVICE, policy).time_s
    assert max(alone) <= both * (1 + 1e-12)
    assert both <= sum(alone) * (1 + 1e-12)


@given(WORK, POLICIES)
def test_limiter_is_the_largest_proved_term(work, policy):
    bound = work_bound(work, DEVICE, policy)
    proved = {term.name: term.time_s for term in bound.terms if term.status == PROVED}
    assert bound.time_s == max(proved.values()) == proved[bound.limiter]
    assert min(term.time_s for term in bound.terms) >= 0


@given(SIZES, SIZES, SIZES, st.sampled_from(["m", "n", "k"]))
def test_more_extent_is_never_less_work_and_never_less_time(m, n, k, axis):
    small = {"m": m, "n": n, "k": k}
    less, more = (work_of(case("gemm", **axes, dtype="bf16")) for axes in (small, {**small, axis: small[axis] + 1}))
    assert more.total_flop >= less.total_flop
    assert more.read_bytes + more.write_bytes >= less.read_bytes + less.write_bytes
    assert work_bound(more, DEVICE).time_s >= work_bound(less, DEVICE).time_s


@given(SIZES, SIZES, SIZES, st.sampled_from(["dram.bandwidth", "peak.tensor.bf16.rate", "l2.capacity"]))
@settings(deadline=None)
def test_a_faster_or_larger_device_is_never_slower(m, n, k, entry):
    better = {"dram.bandwidth": "8 TB/s", "peak.tensor.bf16.rate": "2000 TFLOP/s", "l2.capacity": "100 MB"}
    one = case("gemm", m=m, n=n, k=k, dtype="bf16")
    assert (
        case_bound(one, target_of("h100_sxm", [f'{entry}="{better[entry]}"'])).time_s <= case_bound(one, DEVICE).time_s
    )


@given(WORK)
def test_a_wider_policy_never_raises_the_bound(work):
    strict, tf32, hard = (work_bound(work, DEVICE, Policy(dtype=name)).time_s for name in ("strict", "tf32", "hard"))
    assert hard <= tf32 <= strict
    assert work_bound(work, DEVICE).time_s <= work_bound(work, DEVICE, Policy(output_credit=False)).time_s
    assert work_bound(work, DEVICE, Policy(cold_inputs=False)).time_s <= work_bound(work, DEVICE).time_s


def test_accurate_fp32_products_cost_three_tf32_products_where_that_is_fastest():
    flop = {"matrix.fp32": 2**50}
    strict, tf32 = (work_bound(Work(flop=flop), DEVICE, Policy(dtype=name)).time_s for name in ("strict", "tf32"))
    assert strict == pytest.approx(3 * tf32)


def test_one_flop_more_than_balance_is_limited_by_arithmetic_and_one_byte_more_by_memory():
    # Figures whose quotients are exact, so that one unit decides.
    device = dataclasses.replace(
        DEVICE, clock_hz=1.0, dram=dataclasses.replace(DEVICE.dram, bandwidth_bytes_per_s=2.0**40),
        peaks={"tensor.bf16": dataclasses.replace(DEVICE.peaks["tensor.bf16"], flop_per_s=2.0**50)},
    )  # fmt: skip
    assert work_bound(Work(flop={"matrix.bf16": 2**40 + 1}, read_bytes=2**30), device).limiter == "matrix"
    assert work_bound(Work(flop={"matrix.bf16": 2**40}, read_bytes=2**30 + 1), device).limiter == "dram"


def test_outputs_are_credited_up_to_the_cache_and_not_a_byte_further():
    cache, rate = DEVICE.l2.capacity_bytes, DEVICE.dram.bandwidth_bytes_per_s
    assert work_bound(Work(write_bytes=cache), DEVICE).terms_s["dram"] == 0
    assert work_bound(Work(write_bytes=cache + 1), DEVICE).terms_s["dram"] == 1 / rate
    assert work_bound(Work(write_bytes=cache), DEVICE, Policy(output_credit=False)).terms_s["dram"] == cache / rate


def test_missing_peak_is_refused_not_answered():
    device = dataclasses.replace(DEVICE, peaks={"vector.fp64": DEVICE.peaks["vector.fp64"]})
    with pytest.raises(NotModelledError, match="no peak"):
        DEVICE.flop_per_s("tensor.fp4")
    with pytest.raises(NotModelledError, match="no peak"):
        work_bound(Work(flop={"matrix.int8": 8}), device)


def test_missing_bandwidth_is_refused_not_answered():
    device = dataclasses.replace(DEVICE, dram=dataclasses.replace(DEVICE.dram, bandwidth_bytes_per_s=None))
    with pytest.raises(NotModelledError, match="bandwidth"):
        work_bound(Work(read_bytes=8), device)
