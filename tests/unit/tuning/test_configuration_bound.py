"""Bounds of configurations: closed forms of traffic, arithmetic and blocks, against a schedule of the blocks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearpeak.core.tuning.space import Parameter, TuningSpace
from nearpeak.errors import SpecError
from nearpeak.targets import target_of
from nearpeak.tuning.configuration_bound import LeastWork, configuration_bound

H100 = target_of("h100_sxm")
SPACE = TuningSpace(name="s", parameters=(Parameter(name="block", settings=(16, 32, 64, 128, 100)),))


def bound_of(block, base_s=None, axes=(("m", 1024),), **work):
    return configuration_bound(LeastWork(**work), SPACE, dict(axes), H100, base_s)((block,))


def test_traffic_takes_its_bytes_over_the_bandwidth():
    assert bound_of(16, dram_bytes="m * m * 4 * block") == 1024**2 * 64 / H100.dram.bandwidth_bytes_per_s


def test_no_bound_lies_below_that_of_the_case_and_none_is_stated_where_nothing_is_known():
    assert bound_of(16, base_s=1.0, dram_bytes="m") == 1.0
    assert configuration_bound(LeastWork(dram_bytes="block"), SPACE, {}, None, None)((16,)) == 0.0


@given(st.integers(1, 2000), st.integers(1, 10**9))
def test_equal_blocks_take_no_less_than_the_fullest_multiprocessor_executes(blocks, flop):
    flop *= blocks
    bound_s = bound_of(16, axes=(("f", flop), ("b", blocks)), flop="f", unit="vector.fp32", blocks="b")
    rate = H100.highest_flop_per_s("vector.fp32") / H100.sm_count
    loads = [0.0] * H100.sm_count
    for number in range(blocks):  # the most even placement there is
        loads[number % H100.sm_count] += flop / blocks / rate
    assert bound_s == pytest.approx(max(loads), rel=1e-9)


def test_negative_work_and_texts_are_refused():
    with pytest.raises(SpecError, match="is -15 for a configuration"):
        bound_of(16, dram_bytes="1 - block")
    with pytest.raises(SpecError, match="'width'"):
        bound_of(16, dram_bytes="width")
