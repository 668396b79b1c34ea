import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nearpeak
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.predict import _case_scripts
from nearpeak.predict._case import predicted
from nearpeak.predict._form import USUAL, case_columns
from nearpeak.predict._numbers import Between, chosen, clipped, in_floats, larger, raised, summed
from nearpeak.predict._script import NotWrittenError, Script, called
from nearpeak.targets import target_of

EXTENT = st.integers(1, 20_000)
ATTENTION = {"heads": 32, "kv_heads": 8, "dim": 128, "causal": True, "align": "lower_right", "dtype": "bf16"}


def scripted(formula, *numbers):
    """Return a formula as a script that was written on these numbers."""
    script = Script()
    names = [f"a{place}" for place in range(len(numbers))]
    pairs = zip(names, numbers, strict=True)
    return script.function(names, formula(*(script.argument(name, number) for name, number in pairs)))


def by_formulas(case, target):
    """Return the prediction of a case without a script, as plain data with its energy."""
    return plain(predicted(case_columns(case), target, USUAL))


def plain(found):
    own = {one.name: getattr(found, one.name) for one in dataclasses.fields(found) if one.name != "grounds"}
    return own | {"energy": found.energy, "terms": found.terms, "notes": found.notes, "calibration": found.calibration}


def by_script(cases, target):
    """Return predictions of cases one after the other, those but the last often enough, and the group of the last."""
    cases = [*(cases[:-1] * _case_scripts._WORTH_COUNT), cases[-1]]
    scripts, last = _case_scripts.scripts_of(target, USUAL), cases[-1]
    found = [_case_scripts.predicted_by_script(case, scripts) for case in cases]
    return found, scripts.groups[last.op, last.phase, last.dtypes, last.attributes]


@given(st.floats(0.1, 1e6), st.floats(0.1, 1e6))
def test_a_script_gives_what_the_formula_gives_to_the_last_bit_of_numbers_that_it_was_not_written_on(x, y):
    def formula(a, b):
        kept = clipped(a / b - 0.5, 0.0, 1.0)
        parts = [a * kept, larger(a, b), raised(a, 4.0), chosen(a > b, a, b), called(max, a, b), a % b, -b]
        return summed([*parts, np.log2(a), b // a, Between(np.arange(9.0), np.arange(9.0) ** 2).at(a / b)])

    assert scripted(formula, 3.0, 5.0)(x, y) == formula(x, y)


def test_a_script_gives_nothing_where_a_decision_falls_otherwise_and_no_value_can_be_taken_from_it():
    script = scripted(lambda a: a * 2 if a > 3 else a * 5, 4)
    assert script(10) == 20
    assert script(2) is None
    for misuse in (float, int, range, lambda a: np.array([a], dtype=float), np.tanh, hash, np.add.reduce):
        with pytest.raises((NotWrittenError, TypeError)):
            scripted(misuse, 4)


@given(st.integers(0, 50), st.integers(1, 5_000))
def test_what_is_always_the_same_is_a_number_of_the_script_and_changes_no_value(x, y):
    def formula(a, b):
        width = in_floats(a)
        if width == 32:
            return width * b + a
        same = in_floats(a)
        never = (width != same) & (b > 7)
        kept = [np.where(b > 7, 0.5, 0.5), a * False + b, (b < 9) | True, np.where(never, 1.0, 2.0), a % np.int64(7)]
        return summed([*map(in_floats, kept), width])

    of_any, of_one = scripted(formula, 3, 5), scripted(formula, 32, 5)
    assert of_any(x, y) == (None if x == 32 else formula(x, y))
    assert of_one(x, y) == (formula(x, y) if x == 32 else None)


def test_axes_in_another_order_are_not_taken_for_those_of_a_script():
    script = Script()
    found = script.argument("a0", 3) - script.argument("a1", 1)
    by_names = script.function(["a0", "a1"], found, ("m", "n"))
    assert by_names((("m", 9), ("n", 2))) == 7
    assert by_names((("n", 2), ("m", 9))) is None


@settings(max_examples=25, deadline=None)
@given(EXTENT, EXTENT, EXTENT, st.integers(1, 4))
def test_products_by_script_are_those_of_the_formulas(m, n, k, batch):
    target = target_of("h100_sxm")
    sizes = [(8, 64, 64, 1), (9, 64, 64, 1), (9, 64, 64, 2), (m, n, k, batch)]
    cases = [nearpeak.case("gemm", m=m, n=n, k=k, batch=b, dtype="bf16") for m, n, k, b in sizes]
    found, group = by_script(cases, target)
    assert group.scripts
    assert plain(found[-1]) == by_formulas(cases[-1], target)


@settings(max_examples=15, deadline=None)
@given(EXTENT, EXTENT, st.sampled_from(("b200_sxm", "l40s", "mi300x", "h100_sxm")), st.booleans())
def test_streams_attention_and_gradients_by_script_are_those_of_the_formulas(rows, columns, name, back):
    target, phase = target_of(name), "backward" if back else "forward"
    low, high = sorted((rows, columns))
    for cases in (
        [nearpeak.case("softmax", phase, rows=r, columns=columns, dtype="bf16") for r in (5, 6, 7, rows)],
        [nearpeak.case("scaled_gemm", phase, m=r, n=columns, k=64, dtype="fp8_row") for r in (5, 6, 7, rows)],
        [nearpeak.case("attention", phase, batch=1, q=q, kv=high, **ATTENTION) for q in (1, 2, 3, low)],
    ):
        found, group = by_script(cases, target)
        assert group.scripts
        assert plain(found[-1]) == by_formulas(cases[-1], target)


def test_a_case_that_is_refused_is_refused_in_a_group_with_scripts_too():
    device = target_of("h100_sxm")
    sizes = {"q": 8, "batch": 1, **ATTENTION}
    for kv in range(16, 16 + 2 * _case_scripts._WORTH_COUNT):
        nearpeak.predict(nearpeak.case("attention", kv=kv, **sizes), device)
    wrong = nearpeak.case("attention", kv=15, **(sizes | {"kv_heads": 7}))
    with pytest.raises(SpecError, match="kv_heads=7"):
        nearpeak.predict(wrong, device)
    with pytest.raises(NotModelledError, match="int32"):
        nearpeak.predict(nearpeak.case("gemm", m=4, n=4, k=4, dtype="int32"), device)


def test_the_parts_of_a_new_case_add_up_and_its_energy_follows_from_what_keeps_units_busy():
    device = target_of("h100_sxm")
    for m in range(1000, 1000 + 2 * _case_scripts._WORTH_COUNT):
        found = nearpeak.predict(nearpeak.case("gemm", m=m, n=4096, k=4096, dtype="bf16"), device)
    assert sum(term.time_s for term in found.terms) == pytest.approx(found.time_s, rel=1e-12)
    assert sum(found.energy.parts_j.values()) == pytest.approx(found.energy_j, rel=1e-12)
    slower = dataclasses.replace(found, time_s=2 * found.time_s)
    assert slower.energy.parts_j["idle"] == pytest.approx(2 * found.energy.parts_j["idle"], rel=1e-9)
