import csv
import gzip
import json
import os

import numpy as np
import pytest

from nearpeak.errors import SpecError
from nearpeak.frontends.files.case_tables import read_columns, write_columns

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


def test_text_of_csv_that_is_a_number_is_one_in_other_formats_and_the_same_text_in_csv(tmp_path):
    cells = {"m": ("16", "", "4096"), "time_us": ("3.50", "nan", "1e-5"), "id": ("007", "", "8"),
             "version": ("2.9", "", "2.10"), "note": ("12", "", "many")}  # fmt: skip
    path = tmp_path / "in.csv"
    path.write_text("\n".join([",".join(cells), *map(",".join, zip(*cells.values(), strict=True))]) + "\n")
    for suffix in (".csv", ".jsonl", ".parquet"):
        write_columns(tmp_path / f"out{suffix}", read_columns(path))
    before, after = (list(csv.reader(one.open())) for one in (path, tmp_path / "out.csv"))
    assert before == after
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line.get("m") for line in lines] == [16, None, 4096]
    assert [line.get("time_us") for line in lines] == [3.5, None, 1e-5]
    assert [line["note"] for line in lines] == ["12", "", "many"]
    found = read_columns(tmp_path / "out.parquet")
    assert list(found["m"]) == [16, None, 4096]
    assert list(found["id"]) == list(cells["id"])
    assert list(found["version"]) == list(cells["version"])


def test_what_stands_in_late_rows_alone_keeps_its_type_in_parquet(tmp_path):
    blanks, path = [None] * 30_000, tmp_path / "out.parquet"
    write_columns(path, {"m": [*blanks, 2**60], "why": [*blanks, "late"], "time_s": [*blanks, float("nan")],
                         "any": [1, *blanks[1:], "x"]})  # fmt: skip
    found = read_columns(path)
    assert (found["m"][-1], found["why"][-1], found["any"][0], found["any"][-1]) == (2**60, "late", "1", "x")
    assert np.isnan(found["time_s"][-1])


def test_a_link_stays_and_what_it_names_is_written_and_a_pipe_gets_the_lines(tmp_path):
    link, pipe = tmp_path / "link.csv", tmp_path / "pipe.jsonl"
    link.symlink_to("real.csv")
    write_columns(link, {"m": [1]})
    assert link.is_symlink()
    assert (tmp_path / "real.csv").read_text().split() == ["m", "1"]
    os.mkfifo(pipe)
    end = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_columns(pipe, {"m": [1]})
    assert os.read(end, 99) == b'{"m": 1}\n'
    os.close(end)


@pytest.mark.parametrize("suffix", [".CSV", ".Jsonl", ".PARQUET"])
def test_capitals_in_suffixes_are_as_good(suffix, tmp_path):
    path = tmp_path / f"some{suffix}"
    write_columns(path, {"op": ["gemm"], "m": [1]})
    assert list(read_columns(path)["m"]) == [1]


def test_files_as_other_programs_write_them_are_read(tmp_path):
    path = tmp_path / "some.csv"
    path.write_bytes(b"\xef\xbb\xbfop,m\r\ngemm,8\r\n\r\ngemm,9\r\n")
    assert list(read_columns(path)["m"]) == [8, 9]
    lines = tmp_path / "some.jsonl"
    lines.write_bytes(b'\xef\xbb\xbf{"op": "gemm"}\r\n')
    assert read_columns(lines) == {"op": ["gemm"]}


# Packed without the time of day: it would make the test's name another one in every process.
_PACKED = gzip.compress(b"op,m", mtime=0)


@pytest.mark.parametrize(("name", "data", "said"), [
    ("some.csv", _PACKED, "is packed by gzip"), ("some.csv.gz", _PACKED, "by gzip"),
    ("some.csv", b"", "has no rows"), ("some.csv", b"op,m\n", "has no rows"), ("some.jsonl", b"", "has no rows"),
    ("some.csv", b"op,m,m\ngemm,1,1\n", "occurs twice"), ("some.csv", b"op,m\n\ngemm\n", "line 3: has 1 cells"),
])  # fmt: skip
def test_files_that_are_no_tables_are_refused_in_one_line(name, data, said, tmp_path):
    path = tmp_path / name
    path.write_bytes(data)
    with pytest.raises(SpecError, match=said):
        read_columns(path)


FORMULAS = ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\uff1d1", "\uff20A1", " =1", "\ufeff=1"]


@pytest.mark.parametrize("as_column", [list, np.array])
def test_no_cell_of_csv_is_a_formula_and_numbers_stay(tmp_path, as_column):
    path = tmp_path / "some.csv"
    texts = [*FORMULAS, "gemm", "-1.5", "+2e3", "-"]
    write_columns(path, {"=op": as_column(texts), "m": as_column([-1] * len(texts))})
    with path.open(newline="", encoding="utf-8") as file:
        header, *rows = csv.reader(file)
    assert header == ["'=op", "m"]
    assert [row[0] for row in rows] == [*(f"'{text}" for text in FORMULAS), *texts[len(FORMULAS) :]]
    assert {row[1] for row in rows} == {"-1"}


def test_other_formats_keep_such_texts_as_they_are(tmp_path):
    write_columns(tmp_path / "some.jsonl", {"op": FORMULAS})
    assert list(read_columns(tmp_path / "some.jsonl")["op"]) == FORMULAS
