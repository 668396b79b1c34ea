"""Bounds react as bounds must: the largest proved term, never less for more work, never more on a better device."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearpeak.bounds.case_bound import case_bound, work_bound
from nearpeak.core.answers.bound import PROVED, Policy
from nearpeak.core.work.work import Work
from nearpeak.errors import NotModelledError
from nearpeak.ops import case, work_of
from nearpeak.targets import target_of

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
def test_a_faster_or_larger_device_is_never_slower(m, n, k, entry):
    better = {"dram.bandwidth": "8 TB/s", "peak.tensor.bf16.rate": "2000 TFLOP/s", "l2.capacity": "100 MB"}
    one = case("gemm", m=m, n=n, k=k, dtype="bf16")
    improved = target_of("h100_sxm", [f'{entry}="{better[entry]}"'])
    assert case_bound(one, improved).time_s <= case_bound(one, DEVICE).time_s


@given(WORK)
def test_a_wider_policy_never_raises_the_bound(work):
    strict, tf32, hard = (work_bound(work, DEVICE, Policy(dtype=name)).time_s for name in ("strict", "tf32", "hard"))
    assert hard <= tf32 <= strict
    assert work_bound(work, DEVICE).time_s <= work_bound(work, DEVICE, Policy(output_credit=False)).time_s
    assert work_bound(work, DEVICE, Policy(cold_inputs=False)).time_s <= work_bound(work, DEVICE).time_s


def test_accurate_fp32_products_cost_three_half_precision_products():
    wide, half = (work_bound(Work(flop={f"matrix.{name}": 2**50}), DEVICE).time_s for name in ("fp32", "fp16"))
    assert wide == pytest.approx(3 * half)


def test_missing_peak_is_refused_not_answered():
    device = dataclasses.replace(DEVICE, peaks={"vector.fp64": DEVICE.peaks["vector.fp64"]})
    with pytest.raises(NotModelledError, match="no peak"):
        DEVICE.flop_per_s("tensor.fp4")
    with pytest.raises(NotModelledError, match="no peak"):
        work_bound(Work(flop={"matrix.int8": 8}), device)
