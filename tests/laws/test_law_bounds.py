"""Laws of bounds, on random work aimed at ties and powers of two."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from nearpeak.bounds.case_bound import work_bound
from nearpeak.core.answers.bound import Policy
from nearpeak.core.work.work import NO_WORK, Work
from nearpeak.targets import target_of

H100 = target_of("h100_sxm")
CHARGED = Policy(output_credit=False)
SIZES = st.one_of(st.sampled_from([0, 1, 2**20 - 1, 2**20, 2**20 + 1, 50_000_000, 50_000_001]), st.integers(0, 10**12))
WORKS = st.builds(
    lambda flop, read, write: Work(flop={"matrix.bf16": flop}, read_bytes=read, write_bytes=write), SIZES, SIZES, SIZES
)


@given(WORKS, WORKS, WORKS)
def test_work_adds_up_in_any_order(a, b, c):
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + NO_WORK == a


@given(WORKS, WORKS)
def test_the_bound_of_both_lies_between_the_larger_and_the_sum(a, b):
    times = [work_bound(work, H100, CHARGED).time_s for work in (a, b, a + b)]
    assert max(times[:2]) <= times[2] * (1 + 1e-12)
    assert times[2] <= sum(times[:2]) * (1 + 1e-12)


@given(WORKS, st.integers(1, 1000))
def test_repetition_scales_the_bound(work, count):
    assert abs(work_bound(work * count, H100, CHARGED).time_s - count * work_bound(work, H100, CHARGED).time_s) <= (
        1e-12 * count * work_bound(work, H100, CHARGED).time_s
    )


@given(WORKS, st.floats(1.0, 16.0))
def test_more_bandwidth_is_never_slower(work, factor):
    faster = dataclasses.replace(H100.dram, bandwidth_bytes_per_s=H100.dram.bandwidth_bytes_per_s * factor)
    assert work_bound(work, dataclasses.replace(H100, dram=faster)).time_s <= work_bound(work, H100).time_s


@given(WORKS)
def test_the_credit_and_higher_clock_never_exceed_the_plain_roofline(work):
    bound = work_bound(work, H100)
    assert bound.time_s <= bound.roofline_s
