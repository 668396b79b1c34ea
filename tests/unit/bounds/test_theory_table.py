"""Tables of cases: the same numbers as one by one, wrong cells named by row and column."""

import numpy as np
import pytest

import nearpeak
from nearpeak.bounds.bound_table import answered_table
from nearpeak.core.answers.bound import Policy
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.ops import OPS
from nearpeak.ops.shared.tables.cells import grouped

SEED = 7


def test_columns_equal_single_cases_exactly_on_random_gemms():
    draw = np.random.default_rng(SEED)
    rows = 10_000
    columns = {
        "op": ["gemm"] * rows,
        "dtype": np.array(["bf16", "fp32", "fp8_e4m3", "fp64"])[draw.integers(0, 4, rows)],
        "bias": np.array(["true", "false"])[draw.integers(0, 2, rows)],
        "batch": draw.integers(1, 40, rows),
        **{axis: np.exp(draw.uniform(0, 11, rows)).astype(np.int64) for axis in "mnk"},
    }
    table = nearpeak.bound(columns, "h100_sxm")
    limiters = table.limiter
    for row, case in enumerate(nearpeak.case_table(columns).cases()):
        one = nearpeak.bound(case, "h100_sxm")
        assert (one.time_s, one.limiter, one.roofline_s) == (table.bound_s[row], limiters[row], table.roofline_s[row])


def test_extents_beyond_64_bits_stay_exact():
    huge = 3_000_001
    table = nearpeak.bound({"op": "gemm", "dtype": "bf16", "m": [huge, 2], "n": huge, "k": huge}, "h100_sxm")
    one = nearpeak.bound(nearpeak.case("gemm", m=huge, n=huge, k=huge, dtype="bf16"), "h100_sxm")
    assert table.bound_s[0] == one.time_s


def test_rows_of_several_operators_keep_their_order():
    names = [name for name in ("gemm", "softmax", "layer_norm") if name in OPS]
    rows = [nearpeak.case("gemm", m=8, n=8, k=8, dtype="bf16"), nearpeak.case("gemm", m=9, n=8, k=8, dtype="fp32")]
    if "softmax" in names:
        rows.insert(1, nearpeak.case("softmax", rows=4, columns=8, dtype="fp32"))
    table = nearpeak.bound(rows, "h100_sxm")
    assert [nearpeak.bound(case, "h100_sxm").time_s for case in rows] == table.bound_s.tolist()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"dtype": ["bf16"]}, "column 'op' is missing"),
        ({"op": ["gemm"], "dtype": ["bf16"], "m": [1], "n": [1]}, "row 1: gemm: axis 'k' is missing"),
        ({"op": ["gemm"] * 2, "dtype": ["bf16"] * 2, "m": [1, -4], "n": 1, "k": 1}, "row 2, column 'm': -4"),
        ({"op": ["gemm"] * 2, "dtype": ["bf16"] * 2, "m": ["1", "x"], "n": 1, "k": 1}, "row 2, column 'm': x"),
        ({"op": ["gemm"] * 2, "dtype": ["bf16", "bf61"], "m": 1, "n": 1, "k": 1}, "row 2: dtype 'bf61'.*bf16"),
        ({"op": ["gemm", "gemn"], "dtype": "bf16", "m": 1, "n": 1, "k": 1}, "op 'gemn': not known; did you mean gemm"),
        ({"op": ["gemm"], "dtype": ["bf16"], "m": [1.5], "n": 1, "k": 1}, "row 1, column 'm': 1.5"),
        ({"op": ["gemm"], "dtype": ["bf16"], "m": [1, 2], "n": [1], "k": 1}, "columns differ in length"),
        ({"op": ["gemm"], "dtype": ["bf16"], "m": [None], "n": 1, "k": 1}, "axis 'm' is missing"),
        ({"op": ["gemm"] * 2, "dtype": "bf16", "m": [1, None], "n": 1, "k": 1}, "row 2: gemm: axis 'm' is blank"),
        ({"op": "gemm", "dtype": "bf16", "m": "x", "n": 1, "k": 1}, "column 'm': 'x' is not a whole number"),
        ({"op": "gemm", "dtype": "bf16", "m": [[1]], "n": 1, "k": 1}, "column 'm': has 2 dimensions"),
        ({"op": "gemm", "dtype": "bf16", "m": [[1], [1, 2]], "n": 1, "k": 1}, "column 'm': its cells are lists"),
        ({"op": "gemm", "dtype": "bf16", "m": ["9" * 23], "n": 1, "k": 1}, "row 1, column 'm': 9999"),
        (
            {"op": "gemm", "dtype": "bf16", "m": np.array([2**63], dtype=np.uint64), "n": 1, "k": 1},
            "9223372036854775808",
        ),
        ({"op": "gemm", "dtype": "bf16", "m": [1], "n": 1, "k": 1, "bais": [True]}, "'bais'.*did you mean 'bias'"),
        (
            {
                "op": ["gemm", "softmax"],
                "dtype": "bf16",
                "m": ["1", "2"],
                "n": 1,
                "k": 1,
                "rows": ["", "1"],
                "columns": 4,
            },
            "row 2: softmax has no axis 'm'",
        ),
    ],
)
def test_wrong_cells_are_refused_by_row_and_column(columns, message):
    with pytest.raises(SpecError, match=message):
        nearpeak.bound(columns, "h100_sxm")


def test_columns_that_no_operator_knows_are_passed_through_and_named():
    table = nearpeak.case_table({"op": "gemm", "dtype": "bf16", "m": [1], "n": 1, "k": 1, "latency_us": [3.0]})
    assert table.passed_through == ("latency_us",)


@pytest.mark.parametrize("m", ["4096", 4096.0, np.int64(4096), [4096], ("4096",), np.array([4096.0])])
def test_an_extent_may_come_in_any_usual_form(m):
    table = nearpeak.bound({"op": "gemm", "dtype": "bf16", "m": m, "n": 8, "k": 8}, "h100_sxm")
    one = nearpeak.bound(nearpeak.case("gemm", m=4096, n=8, k=8, dtype="bf16"), "h100_sxm")
    assert table.bound_s.tolist() == [one.time_s]


def test_a_blank_cell_repeats_the_axis_that_it_stands_for():
    columns = {"op": "gemm", "dtype": "bf16", "m": 4, "n": 4, "k": 4, "batch": [5, 7], "a_batch": ["", "1"]}
    assert [dict(case.axes)["a_batch"] for case in nearpeak.case_table(columns).cases()] == [5, 1]


def test_no_cases_are_refused():
    with pytest.raises(SpecError, match="cases: none are given"):
        nearpeak.bound([], "h100_sxm")


def test_blank_cells_take_the_default():
    columns = {"op": ["gemm", "gemm"], "dtype": "bf16", "m": 4, "n": 4, "k": 4, "batch": ["", "3"]}
    assert [dict(case.axes)["batch"] for case in nearpeak.case_table(columns).cases()] == [1, 3]


@pytest.mark.parametrize(
    "batch",
    [[4, None], np.array([4, np.nan]), np.ma.masked_array([4, 7], [False, True])],
    ids=["none", "nan", "masked"],
)
def test_a_cell_without_a_value_is_blank_however_the_column_says_so(batch):
    table = nearpeak.bound({"op": "gemm", "dtype": "bf16", "m": 8, "n": 8, "k": 8, "batch": batch}, "h100_sxm")
    assert table.bound_s[0] == pytest.approx(4 * table.bound_s[1])


def test_rows_that_have_no_bound_say_why_and_the_others_are_answered():
    jetson = nearpeak.target("jetson_agx_orin")
    columns = {
        "op": ["gemm", "collective", "collective", "gemm"], "kind": ["", "all_reduce", "all_reduce", ""],
        "elements": [None, 1024, 1024, None], "ranks": [None, 8, 1, None], "dtype": "bf16",
        **{axis: [64, None, None, 64] for axis in "mnk"},
    }  # fmt: skip
    table = nearpeak.case_table(columns)
    with pytest.raises(NotModelledError, match="no link to other devices"):
        nearpeak.bound(table, jetson)
    found = answered_table(table, jetson, Policy())
    assert list(found.refused) == [1]
    assert "no link" in found.refused[1]
    assert found.limiter.tolist() == ["dram", None, "dram", "dram"]
    assert np.isnan(found.bound_s).tolist() == [False, True, False, False]
    assert found.bound_s[0] == nearpeak.bound(table.cases()[0], jetson).time_s


def test_a_format_without_a_rate_refuses_all_its_rows_at_once():
    rows = 20_000
    columns = {"op": "gemm", "dtype": np.array(["fp32", "fp64"])[np.arange(rows) % 2], **dict.fromkeys("mnk", 64)}
    found = answered_table(nearpeak.case_table(columns), nearpeak.target("gaudi2"), Policy())  # states no fp64
    assert list(found.refused) == list(range(1, rows, 2))
    assert set(found.refused.values()) == {next(iter(found.refused.values()))}
    assert np.isnan(found.bound_s[1::2]).all()
    assert not np.isnan(found.bound_s[::2]).any()


@pytest.mark.parametrize(
    "names", [["bf16", "fp8_e4m3fnuz", "bf16"], ["é", "e", "é"], ["", "a", ""], ["a" * 9, "a" * 8, "a" * 9]]
)
def test_text_columns_are_grouped_as_they_are_written(names):
    groups = grouped({"name": np.array(names)}, 3)
    assert [(values[0], rows.tolist()) for values, rows in groups] == [(names[0] or None, [0, 2]), (names[1], [1])]
