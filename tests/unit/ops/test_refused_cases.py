"""Axes that contradict each other, and windows that only a typing error explains, are refused by name."""

import time

import numpy as np
import pytest

from nearpeak.core.work.dtype import dtype_of
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.ops import OPS, case, work_of
from nearpeak.suites.parameter_levels import parameters_of

CONV = {"batch": 1, "in_channels": 4, "out_channels": 4, "w": 8, "kw": 3}
POOL = {"batch": 1, "channels": 4, "w": 8, "kw": 3}
ATTENTION = {"batch": 1, "heads": 6, "q": 2, "kv": 5, "dim": 4}
CONTRADICTIONS = [
    ("gemm", {"m": 2, "n": 2, "k": 2, "a_batch": 1000}, "a_batch=1000 contradicts batch=1"),
    ("gemm", {"m": 2, "n": 2, "k": 2, "batch": 3, "b_batch": 4}, "b_batch=4 contradicts batch=3"),
    ("gemm", {"m": 2, "n": 2, "k": 2, "bias": True, "bias_elements": 5}, "bias_elements=5 contradicts batch*m*n=4"),
    ("conv", {**CONV, "groups": 3}, "in_channels=4 contradicts groups=3"),
    ("conv", {**CONV, "out_channels": 3, "groups": 2}, "out_channels=3 contradicts groups=2"),
    ("conv_transpose", {**CONV, "groups": 3}, "in_channels=4 contradicts groups=3"),
    ("group_norm", {"batch": 1, "channels": 4, "spatial": 2, "groups": 3}, "channels=4 contradicts groups=3"),
    ("attention", {**ATTENTION, "kv_heads": 7}, "kv_heads=7 contradicts heads=6"),
    ("attention", {**ATTENTION, "kv_heads": 4}, "heads=6 contradicts kv_heads=4"),
    (
        "attention",
        {**ATTENTION, "mask": "bool", "mask_elements": 61},
        "mask_elements=61 contradicts batch*heads*q*kv=60",
    ),
    ("copy", {"elements": 1, "read": 9}, "read=9 contradicts elements=1"),
    ("cast", {"elements": 1, "read": 9}, "read=9 contradicts elements=1"),
    ("topk", {"rows": 1, "columns": 4, "k": 5}, "k=5 contradicts columns=4"),
    ("kthvalue", {"rows": 1, "columns": 4, "k": 5}, "k=5 contradicts columns=4"),
    ("kthvalue", {"rows": 1, "columns": 4, "k": 0}, "k=0 is below 1"),
    ("elementwise", {"elements": 1, "a": 9, "function": "add"}, "a=9 contradicts elements=1"),
    ("elementwise", {"elements": 4, "b": 9, "function": "add"}, "b=9 contradicts elements=4"),
]
NO_WINDOW = [
    (op, {**given, axis: 0}, f"{axis}=0 is below 1")
    for op, given, axes in (
        ("conv", CONV, ("groups", "sw", "dw", "kw", "sh", "dd")),
        ("conv_transpose", CONV, ("groups", "sw", "dw", "kw")),
        ("max_pool", POOL, ("sw", "dw", "kw")),
        ("avg_pool", POOL, ("sw", "kh")),
    )
    for axis in axes
]
TOO_WIDE = [
    (op, {**given, "w": 10**12, "kw": 10**9}, "kw=1000000000 is over 100000 taps; is it a typing error")
    for op, given in (("conv", CONV), ("conv_transpose", CONV), ("max_pool", POOL), ("avg_pool", POOL))
]


@pytest.mark.parametrize(("op", "axes", "message"), [*CONTRADICTIONS, *NO_WINDOW, *TOO_WIDE])
def test_senseless_axes_are_refused_by_name_alone_and_in_a_column(op, axes, message):
    made, start = case(op, **axes, dtype="fp32"), time.perf_counter()
    with pytest.raises(SpecError, match=message.replace("*", r"\*")):
        work_of(made)
    with pytest.raises(SpecError, match=message.replace("*", r"\*")):
        OPS[op].rule("forward")(**columns(made))
    assert time.perf_counter() - start < 1


def columns(made):
    """The arguments of the rule with every axis as a column of two equal rows."""
    formats = {name: dtype_of(value) for name, value in made.dtypes}
    return {name: np.array([extent, extent]) for name, extent in made.axes} | formats | dict(made.attributes)


def test_only_the_contradictory_row_is_named():
    with pytest.raises(SpecError, match="a_batch=5 contradicts batch=4"):
        OPS["gemm"].rule("forward")(
            m=1, n=1, k=1, batch=np.array([1, 4, 6]), a_batch=np.array([1, 5, 6]), dtype=dtype_of("fp32")
        )


def test_adaptive_pooling_to_any_number_of_parts_is_counted_at_once():
    work = work_of(case("adaptive_avg_pool", batch=1, channels=1, w=10**12, ow=10**9 + 7, dtype="fp32"))
    assert work.flop == {"vector.fp32": 10**12 + 10**9 + 7 - 1}


def test_extents_of_nothing_are_allowed_where_everything_is_empty():
    assert work_of(case("attention", **{**ATTENTION, "heads": 0}, dtype="fp32")).read_bytes == 0
    assert work_of(case("gemm", m=2, n=2, k=2, batch=0, dtype="fp32")).read_bytes == 0


@pytest.mark.parametrize("op", sorted(OPS))
def test_a_choice_that_no_rule_knows_is_refused(op):
    for phase, signature in OPS[op].signatures.items():
        usual = {one.name: one.value(one.combined[0]) for one in parameters_of(op, phase) if one.combined}
        given = {name: value for name, value in usual.items() if value is not None}
        work_of(OPS[op].case(phase, **given))
        for name in (name for name, kind in signature.attributes.items() if kind is str):
            with pytest.raises((SpecError, NotModelledError)):
                work_of(OPS[op].case(phase, **{**given, name: "no such choice"}))


def test_a_layout_that_is_none_is_refused_with_those_that_are():
    with pytest.raises(SpecError, match="gemm: layout='xx' is not one of nn, nt, tn, tt"):
        work_of(case("gemm", m=2, n=2, k=2, dtype="fp32", layout="xx"))


@pytest.mark.parametrize(
    ("op", "given", "name", "kept"),
    [
        ("cdist", {"batch": 1, "m": 2, "n": 2, "k": 2, "norm": 1}, "norm", "1"),
        ("cdist", {"batch": 1, "m": 2, "n": 2, "k": 2, "norm": 2.0}, "norm", "2"),
        ("softmax", {"rows": 2, "columns": 2, "log": "true"}, "log", True),
        ("softmax", {"rows": 2, "columns": 2, "log": 0}, "log", False),
    ],
)
def test_choices_are_taken_as_words_and_tables_write_them(op, given, name, kept):
    found = dict(case(op, dtype="fp32", **given).attributes)[name]
    assert (found, type(found)) == (kept, type(kept))


@pytest.mark.parametrize("value", ["yes", 2, None, 1.5])
def test_what_is_neither_true_nor_false_is_refused(value):
    with pytest.raises(SpecError, match=r"softmax: log=.* is not a bool"):
        case("softmax", rows=2, columns=2, dtype="fp32", log=value)
