"""Shares that software hands out: MPS percentages and green contexts."""

import pytest

from nearpeak.errors import SpecError
from nearpeak.targets import target_of


@pytest.mark.parametrize(
    ("name", "sm_count"),
    [("h100_sxm:mps=50", 66), ("h100_sxm:mps=1%", 2), ("h100_sxm:mps=100", 132), ("t4:mps=33", 14),
     ("h100_sxm:green=64", 64), ("h100_sxm:green=132", 132), ("a100_sxm_80gb:green=6", 6), ("p4:green=1", 1)],
)  # fmt: skip
def test_share_limits_multiprocessors_and_nothing_else(name, sm_count):
    share, whole = target_of(name), target_of(name.partition(":")[0])
    assert share.sm_count == sm_count
    assert (share.dram, share.l2, share.clock_hz, share.power_w) == (
        whole.dram, whole.l2, whole.clock_hz, whole.power_w)  # fmt: skip
    ratio = share.highest_flop_per_s("vector.fp32") / whole.highest_flop_per_s("vector.fp32")
    assert ratio == pytest.approx(sm_count / whole.sm_count, rel=0.01)


@pytest.mark.parametrize(
    ("name", "message"),
    [("h100_sxm:mps=0", "0 is not a percentage"), ("h100_sxm:mps=101", "101 is not a percentage"),
     ("h100_sxm:mps=half", "'half' is not a whole number"), ("h100_sxm:green=12", "in steps of 8"),
     ("h100_sxm:green=4", "has 8 to 132"), ("h100_sxm:green=136", "has 8 to 132"),
     ("a100_sxm_80gb:green=5", "steps of 2"), ("mi300x:mps=50", "documented for NVIDIA GPUs"),
     ("m40:green=2", "from Pascal on")],
)  # fmt: skip
def test_wrong_share_is_refused_with_what_would_be_right(name, message):
    with pytest.raises(SpecError, match=message) as caught:
        target_of(name)
    assert str(caught.value).startswith(f"target {name}: ")
    assert "\n" not in str(caught.value)


def test_share_of_an_edited_device_counts_the_documented_multiprocessors():
    assert target_of("h100_sxm:mps=50", ['dram.bandwidth="8 TB/s"']).sm_count == 66
