"""Tables as data frames of other packages read them, and data frames as tables."""

import sys

import numpy as np
import pytest

import nearpeak
from nearpeak.base.arrow_stream import frame_columns, stream_of
from nearpeak.errors import MissingExtraError, SpecError

polars = pytest.importorskip("polars")
pytest.importorskip("nanoarrow")
COLUMNS = {"op": "gemm", "dtype": "bf16", "m": [1, 4096, 33], "n": 4096, "k": 4096}
MIXED = [nearpeak.case("gemm", m=4, n=4, k=8, dtype="bf16"), nearpeak.case("softmax", rows=2, columns=9, dtype="fp32")]


def test_bounds_and_predictions_reach_a_data_frame_to_the_last_bit():
    bounds, predictions = nearpeak.bound(COLUMNS, "h100_sxm"), nearpeak.predict(COLUMNS, "h100_sxm")
    frame, predicted = polars.DataFrame(bounds), polars.DataFrame(predictions)
    assert frame["bound_s"].to_list() == bounds.bound_s.tolist()
    assert frame["limiter"].to_list() == bounds.limiter.tolist()
    assert predicted.columns == [
        "predicted_s", "low_s", "high_s", "bound_s", "limiter", "distance_count", "bound_decides",
    ]  # fmt: skip
    assert predicted["predicted_s"].to_list() == predictions.predicted_s.tolist()
    assert predicted["bound_decides"].dtype == polars.Boolean


def test_a_table_of_several_operators_has_nulls_where_an_operator_lacks_an_axis_and_makes_the_same_cases_again():
    frame = polars.DataFrame(nearpeak.case_table({"op": ["gemm", "softmax"], "m": [4, None], "n": [4, None],
                                                  "k": [8, None], "rows": [None, 2], "columns": [None, 9],
                                                  "dtype": ["bf16", "fp32"]}))  # fmt: skip
    assert frame["rows"].to_list() == [None, 2]
    assert (frame["m"].dtype, frame["bias"].dtype) == (polars.Int64, polars.Boolean)
    assert nearpeak.case_table(frame).cases() == MIXED


def test_pandas_pyarrow_and_duckdb_read_the_same_table():
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    duckdb = pytest.importorskip("duckdb")
    bounds = nearpeak.bound(COLUMNS, "h100_sxm")
    arrow = pyarrow.table(bounds)
    assert arrow["bound_s"].to_pylist() == bounds.bound_s.tolist()
    assert duckdb.sql("select max(bound_s) from bounds").fetchall() == [(bounds.bound_s.max(),)]
    if hasattr(pandas.DataFrame, "from_arrow"):
        assert pandas.DataFrame.from_arrow(bounds)["bound_s"].tolist() == bounds.bound_s.tolist()


@pytest.mark.parametrize("package", ["polars", "pandas", "pyarrow"])
def test_a_data_frame_is_taken_where_columns_are(package):
    frames = pytest.importorskip(package)
    rows = {"op": ["gemm"] * 3, "dtype": ["bf16"] * 3, "m": [1, 4096, 33], "n": [4096] * 3, "k": [4096] * 3}
    frame = frames.table(rows) if package == "pyarrow" else frames.DataFrame(rows)
    for question in (nearpeak.bound, nearpeak.predict):
        assert question(frame, "h100_sxm").bound_s.tolist() == question(COLUMNS, "h100_sxm").bound_s.tolist()
    assert nearpeak.case_table(frame).row_count == 3


def test_rows_without_a_bound_are_null_and_say_why():
    from nearpeak.bounds.bound_table import answered_table
    from nearpeak.core.answers.bound import Policy

    columns = {"op": ["fill", "collective"], "kind": ["", "all_reduce"], "elements": 1024, "ranks": [None, 8]}
    table = nearpeak.case_table(columns | {"dtype": "bf16"})
    frame = polars.DataFrame(answered_table(table, nearpeak.target("jetson_agx_orin"), Policy()))
    assert frame["bound_s"].is_null().to_list() == [False, True]
    assert frame["limiter"].is_null().to_list() == [False, True]
    assert frame["refused"][0] is None
    assert "no link" in frame["refused"][1]


def test_numbers_are_handed_over_without_a_copy():
    times_s = np.arange(4.0)

    class Table:
        def __arrow_c_stream__(self, requested_schema=None):
            return stream_of({"time_s": times_s})

    series = polars.DataFrame(Table())["time_s"]
    times_s[2] = 7.0
    assert series.to_list() == [0.0, 1.0, 7.0, 3.0]


def test_what_is_no_data_frame_or_lacks_its_package_is_said_in_one_line(monkeypatch):
    with pytest.raises(SpecError, match="table: int is no data frame"):
        frame_columns(3)
    with pytest.raises(SpecError, match="bound: takes a case, several, a table or a workload, got 3"):
        nearpeak.bound(3, "h100_sxm")
    for name in ("nanoarrow", "narwhals"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"nearpeak\[tables\]"):
        stream_of({})
    with pytest.raises(MissingExtraError, match=r"nearpeak\[tables\]"):
        frame_columns(polars.DataFrame())
