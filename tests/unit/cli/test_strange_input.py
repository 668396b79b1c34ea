"""Cells, words and files that no reader expects: one line that says what and where, exit code 2, never a traceback."""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import nearpeak
from nearpeak.cli import main
from nearpeak.errors import SpecError, shown
from nearpeak.frontends.files.case_tables import parse_jsonl, read_columns, write_columns

LONG = "9" * 5000
GEMM = {"op": "gemm", "dtype": "bf16", "m": 8, "n": 8, "k": 8}
CASE = nearpeak.case("gemm", m=8, n=8, k=8, dtype="bf16")


@pytest.fixture
def refusal(monkeypatch, capsys):
    """The line with which a command is refused with exit code 2."""

    def ask(*words):
        monkeypatch.setattr(sys, "argv", ["nearpeak", *words, "-t", "h100_sxm"])
        with pytest.raises(SystemExit) as left:
            main()
        error = capsys.readouterr().err
        assert left.value.code == 2
        assert error.count("\n") == 1
        assert len(error) < 300
        return error

    return ask


@pytest.mark.parametrize(("value", "said"), [
    ("²", "m='²' is not a whole number of at least 0"),
    ("٣", "m='٣' is not a whole number of at least 0"),
    (LONG, "(5000 characters) is not an extent; a whole number from 0 to 2^63 - 1 is right"),
    (str(2**63), "m=9223372036854775808 is beyond 2^63 - 1"),
])  # fmt: skip
def test_words_that_only_look_like_numbers_are_refused_by_name(value, said, refusal):
    for command in ("predict", "bound"):
        error = refusal(command, "gemm", f"m={value}", "n=8", "k=8", "dtype=bf16")
        assert said in error
        assert re.search(r"\bm[=:]", error)
    assert said in refusal("explain", f"gemm m={value} n=8 k=8 dtype=bf16", "m=9")


@pytest.mark.parametrize(("name", "text", "said"), [
    ("big.jsonl", '{"op": "gemm", "dtype": "bf16", "m": ' + LONG + "}", "line 1: a number has more than"),
    ("deep.jsonl", json.dumps(GEMM) + '\n{"op": ' + "[" * 100_000, "line 2: it is nested too deeply"),
    ("first.jsonl", "[" * 100_000, "line 1: it is nested too deeply"),
    ("wide.csv", "op,dtype,m,n,k\ngemm,bf16,8,8,8\ngemm,bf16,{},8,8\n".format("x" * 140_000), "line 3: not CSV"),
    ("empty.parquet", "", "is empty; a Parquet file begins and ends with PAR1"),
    ("short.parquet", "PAR1", "is no Parquet file; one begins and ends with PAR1"),
    ("other.parquet", "op,dtype,m,n,k\ngemm,bf16,8,8,8\n", "is no Parquet file; one begins and ends with PAR1"),
])  # fmt: skip
def test_tables_with_cells_beyond_every_reader_are_refused_by_line(name, text, said, refusal, tmp_path):
    path = tmp_path / name
    path.write_text(text)
    csv.field_size_limit(2**24)  # as readers of traces leave it
    for words in (("predict", str(path)), ("bound", "--cases", str(path))):
        assert said in refusal(*words)


@pytest.mark.parametrize(("name", "text"), [
    ("text.jsonl", json.dumps(GEMM | {"m": LONG})), ("long.csv", f"op,dtype,m,n,k\ngemm,bf16,{LONG},8,8\n"),
])  # fmt: skip
def test_a_cell_of_more_digits_than_any_number_keeps_its_place(name, text, tmp_path, monkeypatch, capsys):
    (tmp_path / name).write_text(text)
    monkeypatch.setattr(sys, "argv", ["nearpeak", "predict", str(tmp_path / name), "-t", "h100_sxm"])
    with pytest.raises(SystemExit) as left:
        main()
    row = json.loads(capsys.readouterr().out)
    assert (left.value.code, row["m"]) == (1, LONG)
    assert row["refused"].startswith("m: 9999")


@pytest.mark.parametrize(("words", "said"), [
    (("measure", "gemm", "--threads", "x"), "Invalid value for '--threads': got 'x'; input should be a valid integer"),
    (("measure", "gemm", "--threads", "0"), "'--threads': got '0'; input should be greater than or equal to 1"),
    (("analyze", "x.py", "--timeout", "0"), "--timeout '0': must be more than 0"),
])  # fmt: skip
def test_a_value_that_an_option_refuses_is_named(words, said, refusal):
    assert said in refusal(*words)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_behind_standard_output_is_called_that(unbuffered):
    words = [sys.executable, "-m", "nearpeak", "bound", "gemm", "m=8", "n=8", "k=8", "dtype=bf16", "-t", "t4"]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(
            words, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (2, "nearpeak: standard output: No space left on device\n")


@pytest.mark.parametrize(("text", "said"), [
    ("groups = " + "[" * 100_000, "nested too deeply"), ("groups = 3", r"has no table \[groups\]"),
])  # fmt: skip
def test_coefficient_files_that_are_none_are_refused(text, said, refusal, tmp_path):
    (tmp_path / "own.toml").write_text(text)
    error = refusal("predict", "gemm", "m=8", "n=8", "k=8", "dtype=bf16", "--calibration", str(tmp_path / "own.toml"))
    assert re.search(said, error)


@pytest.mark.parametrize("text", ["groups = " + "[" * 100_000, f"groups = {LONG}"])
def test_no_file_of_toml_ends_in_a_traceback(text, refusal, tmp_path):
    path = tmp_path / "own.toml"
    path.write_text(text)
    assert "own.toml" in refusal("predict", str(path))
    assert "own.toml" in refusal("bound", "gemm", "m=8", "n=8", "k=8", "dtype=bf16", "-t", str(path))


@pytest.mark.parametrize(("call", "said"), [
    (lambda: nearpeak.predict([CASE, None], "h100_sxm"), "cases: None, number 2, is no Case"),
    (lambda: nearpeak.bound([None, CASE], "h100_sxm"), "cases: None, number 1, is no Case"),
    (lambda: nearpeak.predict([CASE, "gemm"], "h100_sxm"), "cases: 'gemm', number 2, is no Case"),
    (lambda: nearpeak.case(None), "op None: is no name"),
    (lambda: nearpeak.case(["gemm"]), r"op \['gemm'\]: is no name"),
    (lambda: nearpeak.case("gemm", m=10**5000, n=8, k=8, dtype="bf16"), r"gemm: m=a number of \d+ bits is beyond"),
    (lambda: nearpeak.predict(GEMM | {"m": [10**5000]}, "h100_sxm"), "row 1, column 'm': a number of"),
    (lambda: nearpeak.bound(GEMM | {"m": 10**5000}, "h100_sxm"), "column 'm': a number of"),
])  # fmt: skip
def test_python_calls_with_what_is_no_case_are_refused_in_one_line(call, said):
    with pytest.raises(SpecError, match=said):
        call()


def test_a_long_value_is_cut_where_it_is_named():
    assert shown("bf16") == "'bf16'"
    assert len(shown("x" * 10_000)) < 80


def test_what_unicode_calls_a_line_separator_does_not_end_a_line_of_json():
    name = "a\u2028b\x85c"
    record = GEMM | {"software": name}
    assert parse_jsonl(f"{json.dumps(record, ensure_ascii=False)}\r\n\n{json.dumps(GEMM)}\n", "here") == [record, GEMM]
    with pytest.raises(SpecError, match="here, line 2: not JSON"):
        parse_jsonl(f"{json.dumps(record, ensure_ascii=False)}\n{{", "here")


def test_a_key_that_stands_twice_in_a_line_is_named_with_its_line():
    twice = f'{json.dumps(GEMM)}\n{json.dumps(GEMM)[:-1]}, "m": 9}}\n'
    with pytest.raises(SpecError, match="here, line 2: the key 'm' occurs twice; each column has one cell in a row"):
        parse_jsonl(twice, "here")


def test_a_parquet_file_whose_name_is_a_pattern_is_read_alone(tmp_path):
    pytest.importorskip("duckdb")
    folder = tmp_path / "a[b]c"
    folder.mkdir()
    for m, name in enumerate(("st*r", "star", "st?r", "stir", "s[t]ar")):
        write_columns(folder / f"{name}.parquet", {"op": ["gemm"], "m": [m]})
    for m, name in enumerate(("st*r", "star", "st?r", "stir", "s[t]ar")):
        assert list(read_columns(folder / f"{name}.parquet")["m"]) == [m]
