"""Attribution: each question answered alone, final answers end it, and planted effects come apart."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import hypergeom

from nearpeak.analyze.attribution import attributed, co_moved, factorial, hypergeometric_tail
from nearpeak.analyze.launches import judged_launches
from nearpeak.core.attribution import Side
from nearpeak.core.launches import Launch
from nearpeak.errors import SpecError

STACK = (("torch", "2.8"), ("driver", "550"))
CHANGED = (("driver", "550", "570"),)
CELLS = [(False, False), (True, False), (True, True), (False, True)]


def launches(code, stack, both, noise=0.0003):
    rng = np.random.default_rng(0)
    rows = [*CELLS, *CELLS[::-1]] * 3
    return [(c, s, math.exp(code * c + stack * s + both * (c and s) + rng.normal(0, noise))) for c, s in rows]


def test_a_machine_that_was_not_well_ends_the_questions():
    (one,) = attributed(Side(), Side(faults=("throttled", "foreign process")), CHANGED)
    assert (one.step, one.final) == ("infra", True)
    assert "bad: throttled" in one.text


def test_the_same_code_launch_and_stack_is_not_the_code():
    side = Side(code_digest="ab", configuration={"grid": "8"}, stack=STACK)
    (one,) = attributed(side, Side(code_digest="ab", configuration={"grid": "8"}, stack=STACK[::-1]), ())
    assert (one.step, one.final) == ("not-code", True)
    other = Side(code_digest="ab", configuration={"grid": "16"}, stack=STACK)
    assert attributed(side, other, ())[0].step == "stack"
    assert attributed(Side(stack=STACK), Side(stack=STACK), ())[0].step == "stack"


def test_components_that_differ_are_candidates_and_without_any_only_the_code_is_left():
    (one,) = attributed(Side(), Side(), CHANGED)
    assert (one.axis, one.key) == ("driver", "driver")
    (one,) = attributed(Side(), Side(), (("torch", "", "2.9"),))
    assert (one.axis, one.text) == ("component", "torch changed from none to 2.9")
    (one,) = attributed(Side(), Side(), ())
    assert one.axis == "commit"


@given(st.integers(1, 30), st.integers(0, 30), st.integers(0, 30), st.integers(0, 30))
def test_the_chance_of_coming_together_is_the_hypergeometric_tail(total, marked, drawn, least):
    marked, drawn = min(marked, total), min(drawn, total)
    assert hypergeometric_tail(total, marked, drawn, least) == pytest.approx(
        float(hypergeom.sf(least - 1, total, marked, drawn)), abs=1e-9
    )


def test_what_shifted_series_share_is_ranked_and_what_all_share_is_not_told():
    axes = {f"s{i}": {"host": f"h{i % 4}", "model": "h100", "driver": "570" if i % 2 else "550"} for i in range(40)}
    found = co_moved(axes, [f"s{i}" for i in range(1, 40, 4)])
    assert [(one.axis, one.key) for one in found] == [("host", "h1"), ("driver", "570")]
    assert co_moved(axes, []) == ()
    with pytest.raises(SpecError, match="s99"):
        co_moved(axes, ["s99"])


@pytest.mark.parametrize(
    ("planted", "verdicts"),
    [
        ((0.05, 0.0, 0.0), ("regression", "invariant", "invariant")),
        ((0.0, 0.05, 0.0), ("invariant", "regression", "invariant")),
        ((0.0, -0.05, 0.0), ("invariant", "improvement", "invariant")),
        ((0.0, 0.0, 0.06), ("regression", "regression", "regression")),
    ],
)
def test_planted_effects_of_code_stack_and_both_come_apart(planted, verdicts):
    found = factorial(launches(*planted))
    assert (found.code.verdict, found.stack.verdict, found.interaction.verdict) == verdicts
    code, stack, both = planted
    effects = [math.log(one.time_ratio) for one in (found.code, found.stack, found.interaction)]
    assert effects == pytest.approx([code + both / 2, stack + both / 2, both], abs=0.001)


def test_a_combination_without_launches_is_refused_by_name():
    rows = [row for row in launches(0, 0, 0) if row[:2] != (True, False)]
    with pytest.raises(SpecError, match="0 launches of the new code on the old stack"):
        factorial(rows)
    with pytest.raises(SpecError, match="positive"):
        factorial([*launches(0, 0, 0), (False, False, -1.0)])


def test_a_second_device_tells_general_from_its_own():
    arms = ("baseline", "candidate", "candidate", "baseline") * 3
    same = judged_launches([Launch(arm=arm, time_s=1.0) for arm in arms]).judgement
    slow = judged_launches([Launch(arm=arm, time_s=1.05 if arm == "candidate" else 1.0) for arm in arms]).judgement
    assert attributed(Side(), Side(), (), elsewhere=same)[-1].axis == "device"
    assert attributed(Side(), Side(), (), elsewhere=slow)[-1].key == "general"
    effects = factorial(launches(0.05, 0, 0))
    assert [one.axis for one in attributed(Side(), Side(), CHANGED, effects=effects)] == ["driver", "code"]
