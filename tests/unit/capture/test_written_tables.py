import numpy as np
import pytest

from nearpeak.capture.table_file import read_columns, write_columns

duckdb = pytest.importorskip("duckdb")
TIMES = np.array([1.1265671641791045e-08, 2.5, 1e300])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_numbers_and_text_come_back_exactly(tmp_path, suffix):
    path = tmp_path / f"some{suffix}"
    columns = {"op": ["gemm", 'a "b", c', "é"], "m": np.array([1, 2, 2**60]), "time_s": TIMES}
    write_columns(path, columns)
    found = read_columns(path)
    assert list(found) == list(columns)
    assert list(found["op"]) == columns["op"]
    assert list(found["m"]) == list(columns["m"])
    assert np.asarray(found["time_s"], dtype=float).tolist() == TIMES.tolist()


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_columns_with_gaps_are_written_cell_by_cell(tmp_path, suffix):
    path = tmp_path / f"some{suffix}"
    write_columns(path, {"m": [1, 2], "why": [None, "late"]})
    found = read_columns(path)
    assert list(found["m"]) == [1, 2]
    assert list(found["why"])[1] == "late"
