import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nearpeak
from nearpeak.errors import NotModelledError
from nearpeak.predict._conv_shapes import product_of, shape_of

SIZE = st.integers(1, 300)


@settings(max_examples=100, deadline=None)
@given(
    batch=st.integers(1, 256), inputs=SIZE, outputs=SIZE, w=st.integers(7, 128), kw=st.sampled_from((1, 3, 5, 7)),
    stride=st.integers(1, 2), groups=st.sampled_from((1, 4)), device=st.sampled_from(("h100_sxm", "mi100", "t4")),
    gradient=st.sampled_from(("", "grad_input", "grad_weight", "both")),
)  # fmt: skip
def test_parts_add_up_and_the_bound_the_interval_and_the_time_stand_in_order(
    batch, inputs, outputs, w, kw, stride, groups, device, gradient
):
    axes = {"in_channels": inputs * groups, "out_channels": outputs * groups, "w": w, "h": w, "kw": kw, "kh": kw}
    asked = {name: gradient in (name, "both") for name in ("grad_input", "grad_weight")} if gradient else {}
    case = nearpeak.case(
        "conv", "backward" if gradient else "forward", batch=batch, sw=stride, sh=stride, pw=kw // 2, ph=kw // 2,
        groups=groups, dtype="fp16", **axes, **asked,
    )  # fmt: skip
    found = nearpeak.predict(case, device)
    assert sum(term.time_s for term in found.terms) == pytest.approx(found.time_s, rel=1e-9)
    assert found.bound_s <= found.low_s <= found.time_s <= found.high_s


def test_a_table_gives_exactly_what_single_cases_give():
    channels = np.array([3, 16, 64, 64, 256, 512])
    cases = nearpeak.case_table({
        "op": "conv", "dtype": "fp16", "batch": 32, "in_channels": channels, "out_channels": channels[::-1].copy(),
        "w": 28, "h": 28, "kw": 3, "kh": 3, "pw": 1, "ph": 1,
    })  # fmt: skip
    table = nearpeak.predict(cases, "mi100")
    for row, case in enumerate(cases.cases()):
        assert nearpeak.predict(case, "mi100").time_s == pytest.approx(table.predicted_s[row], rel=1e-12)


def test_each_pass_has_the_same_arithmetic_without_strides():
    axes = {"batch": 4, "in_channels": 24, "out_channels": 16, "w": 14, "h": 14, "kw": 3, "kh": 3, "pw": 1, "ph": 1}
    shape = shape_of(axes)
    sizes = {
        part: float(np.prod([column[0] for column in product_of(shape, part)])) for part in ("fprop", "dgrad", "wgrad")
    }
    assert sizes == dict.fromkeys(sizes, 4 * 14 * 14 * 9 * 24 * 16)
    assert shape.flop[0] == 2 * 4 * 14 * 14 * 9 * 24 * 16


def test_both_gradients_together_take_as_long_as_one_after_the_other():
    def time(**asked):
        case = nearpeak.case(
            "conv", "backward", batch=32, in_channels=64, out_channels=64, w=28, h=28, kw=3, kh=3, dtype="fp32", **asked
        )
        return nearpeak.predict(case, "mi100").time_s

    assert time() == pytest.approx(time(grad_weight=False) + time(grad_input=False), rel=1e-9)


def test_winograd_makes_three_taps_cheaper_than_their_arithmetic():
    def time(kernel, **more):
        axes = {"w": 56, "h": 56, "kw": kernel, "kh": kernel, "pw": kernel // 2, "ph": kernel // 2} | more
        case = nearpeak.case("conv", batch=64, in_channels=128, out_channels=128, dtype="fp32", **axes)
        return nearpeak.predict(case, "t4").time_s

    assert time(3) < time(3, dw=2, dh=2, pw=2, ph=2)


def test_what_cannot_be_predicted_is_refused_in_one_line():
    shape = {"batch": 1, "in_channels": 8, "out_channels": 8, "w": 8, "kw": 3, "dtype": "fp32"}
    none = {"grad_input": False, "grad_weight": False, "grad_bias": True}
    bias = nearpeak.case("conv", "backward", **shape, **none)
    with pytest.raises(NotModelledError, match="bias alone"):
        nearpeak.predict(bias, "h100_sxm")
    with pytest.raises(NotModelledError, match="GPUs that state a memory bandwidth only"):
        nearpeak.predict(nearpeak.case("conv", **shape), "gaudi3")


def test_each_kernel_that_libraries_have_code_for_is_a_class_of_its_own():
    from nearpeak.predict._conv_costs import _class_of
    from nearpeak.predict._conv_scalars import CLASSES

    shapes = {
        "one_tap": {"kw": 1, "kh": 1}, "one_tap_strided": {"kw": 1, "kh": 1, "sw": 2, "sh": 2},
        "nine_tap": {"kw": 3, "kh": 3}, "few_tap": {"kw": 3, "kh": 1}, "many_tap": {"kw": 5, "kh": 5},
        "strided": {"kw": 3, "kh": 3, "sw": 2, "sh": 2}, "grouped": {"kw": 3, "kh": 3, "groups": 4},
        "depthwise": {"kw": 3, "kh": 3, "groups": 64},
    }  # fmt: skip
    assert list(shapes) == list(CLASSES)
    for place, axes in enumerate(shapes.values()):
        shape = shape_of({"batch": 1, "in_channels": 64, "out_channels": 64, "w": 28, "h": 28} | axes)
        assert _class_of(shape).tolist() == [place]


def test_each_pass_takes_its_own_correction_and_none_exceeds_a_quarter():
    from nearpeak.predict._correction import KNOT_COUNT
    from nearpeak.predict._form import CaseColumns, Setting
    from nearpeak.predict.forms.conv import FORM
    from nearpeak.targets import target_of

    axes = {"batch": 8, "in_channels": 64, "out_channels": 64, "w": 28, "h": 28, "kw": 3, "kh": 3}
    usual, target = [scalar.usual_value for scalar in FORM.scalars], target_of("mi100")
    knots = np.zeros((3, KNOT_COUNT))
    knots[0], knots[1], knots[2] = 0.1, -0.2, 9.0

    def ratio(phase, **attributes):
        cases = CaseColumns(op="conv", phase=phase, dtypes={"dtype": "fp32"}, axes=axes, attributes=attributes)
        plain = FORM.rows(target, cases, np.array(usual), Setting()).time_s
        return float((FORM.rows(target, cases, np.array([*usual, *knots.ravel()]), Setting()).time_s / plain)[0])

    assert ratio("forward") == pytest.approx(np.exp(0.1))
    assert ratio("backward", grad_weight=False) == pytest.approx(np.exp(-0.2))
    assert ratio("backward", grad_input=False) == pytest.approx(np.exp(0.25))
