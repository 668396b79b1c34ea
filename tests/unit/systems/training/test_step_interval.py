"""Tests of the interval of a step."""

from nearpeak.systems.training.rank_lanes import FamilyTime, LaneTime
from nearpeak.systems.training.stack_files import stack_of
from nearpeak.systems.training.step_interval import step_interval


def _lane(ratio: float, count: int, launch_s: float = 0.0) -> LaneTime:
    families = {f"family {place}": FamilyTime(1.0, 1 / ratio, ratio) for place in range(count)}
    return LaneTime(time_s=float(count), launch_s=launch_s, families=families)


def test_interval_holds_the_step_and_is_reproducible():
    ends = step_interval(_lane(1.2, 3), 0.1, 5.0, 2.0)
    assert ends[0] < 5.0 < ends[1]
    assert ends == step_interval(_lane(1.2, 3), 0.1, 5.0, 2.0)


def test_independent_families_narrow_the_interval_but_the_device_remains():
    one, many = step_interval(_lane(1.2, 1), 0.0, 1.0, 1.0), step_interval(_lane(1.2, 16), 0.0, 1.0, 1.0)
    assert one[1] - one[0] > many[1] - many[0] > 0.5 * (one[1] - one[0])


def test_host_that_decides_brings_its_uncertainty():
    fast = step_interval(_lane(1.05, 2), 0.0, 2.0, 2.0)
    slow = step_interval(_lane(1.05, 2, launch_s=4.0), 0.0, 4.0, 2.0)
    assert slow[1] / slow[0] > 2 > fast[1] / fast[0]


def test_a_stack_that_no_measurement_confirms_widens_the_interval():
    confirmed = step_interval(_lane(1.05, 2), 0.0, 2.0, 1.0)
    low_s, high_s = step_interval(_lane(1.05, 2), 0.0, 2.0, 1.0, is_confirmed=False)
    assert low_s < confirmed[0] < confirmed[1] < high_s
    assert high_s / low_s > 2, "one of four public stacks was 1.7 times slower than predicted"
    assert stack_of("megatron-deepspeed-2022").is_confirmed
    assert not stack_of("torchtitan").is_confirmed


def test_nothing_has_no_width():
    assert step_interval(LaneTime(), 0.0, 1.0, 2.0) == (1.0, 1.0)
