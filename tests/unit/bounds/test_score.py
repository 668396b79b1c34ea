"""The guarded speed-of-light score."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearpeak.bounds.speed_of_light_score import sol_score
from nearpeak.core.answers.bound import Bound
from nearpeak.errors import SpecError

BOUND = Bound(time_s=1.0, limiter="dram", terms=(), roofline_s=1.0, launch_floor_s=None, assumptions=("A1",))
PARTIAL = Bound(time_s=1.0, limiter="dram", terms=(), roofline_s=1.0, launch_floor_s=None, assumptions=(),
                uncovered={"aten.x": 1})  # fmt: skip


@pytest.mark.parametrize(
    ("time_s", "baseline_s", "bound", "kind", "value"),
    [(2.0, 2.0, BOUND, "score", 0.5), (1.0, 2.0, BOUND, "score", 1.0), (4.0, 2.0, BOUND, "score", 0.25),
     (0.5, 2.0, BOUND, "BELOW_BOUND", None), (0.4, 1.5, BOUND, "BELOW_BOUND", None),
     (0.5, 1.5, BOUND, "BELOW_BOUND", None), (2.0, 1.0, BOUND, "BASELINE_BELOW_BOUND", None),
     (2.0, 0.5, BOUND, "BASELINE_BELOW_BOUND", None), (2.0, 2.0, PARTIAL, "headroom", 0.5)],
)  # fmt: skip
def test_score_exists_only_where_it_means_something(time_s, baseline_s, bound, kind, value):
    found = sol_score(time_s, baseline_s, bound)
    assert (found.kind, found.score_ratio) == (kind, value)
    assert found.bound_ratio == bound.time_s / time_s


def test_clocks_that_differ_give_no_score():
    assert sol_score(2.0, 3.0, BOUND, clock_hz=1.5e9, bound_clock_hz=1.98e9).kind == "CLOCKS_DIFFER"
    assert sol_score(2.0, 3.0, BOUND, clock_hz=1.5e9, bound_clock_hz=1.5e9).kind == "score"


def test_time_that_is_none_is_refused():
    with pytest.raises(SpecError, match="time is 0"):
        sol_score(0.0, 1.0, BOUND)


@given(st.floats(1e-9, 1e3), st.floats(1e-9, 1e3))
def test_score_lies_in_its_range_or_is_a_finding(time_s, baseline_s):
    found = sol_score(time_s, baseline_s, BOUND)
    assert (found.score_ratio is None) == (found.kind != "score")
    assert found.score_ratio is None or 0 < found.score_ratio <= 1
