import csv
import json

import pytest

from nearpeak.cli import application
from nearpeak.errors import SpecError


def run(capsys, *words):
    application()(list(words), standalone_mode=False)
    return capsys.readouterr().out


def test_one_case_in_words_gives_its_waterfall_and_its_scalars(capsys):
    found = json.loads(
        run(capsys, "predict", "gemm", "m=4096", "n=4096", "k=4096", "dtype=bf16", "-t", "h100_sxm", "--json")
    )
    assert abs(sum(found["waterfall_s"].values()) / found["predicted_s"] - 1) < 1e-9
    assert found["calibration"]["scalars"]["tensor_ratio"]["identified"] is True


def test_a_table_comes_back_with_the_predicted_columns(tmp_path, capsys):
    table, out = tmp_path / "in.csv", tmp_path / "out.csv"
    table.write_text("op,dtype,m,n,k,note\ngemm,bf16,16,4096,4096,a\ngemm,fp32,512,512,512,b\n")
    run(capsys, "predict", "--cases", str(table), "--out", str(out), "-t", "h100_sxm")
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [row["note"] for row in rows] == ["a", "b"]
    for row in rows:
        assert float(row["bound_s"]) <= float(row["low_s"]) <= float(row["predicted_s"]) <= float(row["high_s"])
        assert row["limiter"]


CASE = ("gemm", "m=16", "n=16", "k=16", "dtype=bf16")


@pytest.mark.parametrize("options", [("--energy",), ("--out", "predicted.csv")])
@pytest.mark.parametrize("words", [CASE, ("model.onnx",)])
def test_options_of_tables_are_refused_where_there_is_none(words, options, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError, match="add columns to a table"):
        run(capsys, "predict", *words, *options, "-t", "h100_sxm")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [("predict", "--cases"), ("bound", "--cases"), ("audit",)])
def test_a_table_of_an_unknown_format_is_refused_before_it_is_worked_out(command, tmp_path, capsys):
    table = tmp_path / "in.csv"
    table.write_text("op,dtype,m,n,k,time_us\ngemm,bf16,16,16,16,10\n")
    with pytest.raises(SpecError, match="is not one of"):
        run(capsys, *command, str(table), "--out", str(tmp_path / "out.txt"), "-t", "h100_sxm")
    said = capsys.readouterr()
    assert said.out + said.err == ""


@pytest.mark.parametrize("command", ["predict", "bound"])
def test_why_a_row_was_refused_before_is_no_reason_now(command, tmp_path, capsys):
    table, out = tmp_path / "in.csv", tmp_path / "out.csv"
    table.write_text("op,dtype,m,n,k,refused\ngemm,bf16,16,16,16,no figure of a link\n")
    run(capsys, command, "--cases", str(table), "--out", str(out), "-t", "h100_sxm")
    assert "refused" not in out.read_text().splitlines()[0]
