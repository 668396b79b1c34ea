import csv
import json
import re

import pytest

import nearpeak
from nearpeak.cli import application
from nearpeak.core.work.workload import Call, Workload
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.frontends.files.saved_workload import save_text
from nearpeak.reports.document.terminal import to_terminal
from nearpeak.reports.prediction_report import document_of


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


@pytest.mark.parametrize("command", ["bound", "predict"])
def test_a_table_may_be_named_in_place_of_a_case(command, tmp_path, capsys):
    table, out = tmp_path / "in.CSV", tmp_path / "out.jsonl"
    table.write_text("op,dtype,m,n,k\ngemm,bf16,16,4096,4096\n")
    run(capsys, command, str(table), "--out", str(out), "-t", "h100_sxm")
    assert json.loads(out.read_text())["bound_s"] > 0


def test_parts_that_would_read_nothing_are_one_line_and_still_add_up():
    case = nearpeak.case("grouped_gemm", m=64, groups=64, n=2048, k=4096, dtype="bf16")
    found = nearpeak.predict(case, "h100_sxm")
    text = to_terminal(document_of("x", nearpeak.target("h100_sxm"), found))
    small = [term for term in found.terms if abs(term.time_s) < 5e-4 * found.time_s]
    assert f"  {len(small)} smaller " in text
    assert not any(f"  {term.name} " in text for term in small)
    assert sum(float(share) for share in re.findall(r"(-?[\d.]+) %$", text, re.MULTILINE)) == pytest.approx(
        100, abs=0.5
    )


def test_a_prediction_prints_without_the_trees_of_its_correction():
    found = nearpeak.predict(nearpeak.case("gemm", m=64, n=64, k=64, dtype="bf16"), "h100_sxm")
    assert found.calibration.correction is not None
    assert len(repr(found)) < 4000


def test_rows_that_are_no_cases_keep_their_place_and_bounds_count_them(tmp_path, capsys):
    table, out = tmp_path / "in.csv", tmp_path / "out.csv"
    rows = ("bf16,16,4096", "bf16,,4096", "bf61,16,4096", "bf16,-1,4096", "bf16,16,4.5")
    table.write_text("op,dtype,m,n,k\n" + "".join(f"gemm,{row},4096\n" for row in rows))
    with pytest.raises(NotModelledError, match=r"4 of 5 rows are refused.*the first is row 2: gemm: axis 'm'"):
        run(capsys, "predict", "--cases", str(table), "--out", str(out), "-t", "h100_sxm")
    with out.open() as file:
        found = list(csv.DictReader(file))
    assert float(found[0]["bound_s"]) > 0
    assert found[0]["refused"] == ""
    assert [row["bound_s"] for row in found[1:]] == [""] * 4
    assert [row["refused"].partition(":")[0] for row in found[1:]] == ["gemm", "dtype", "m", "n"]
    with pytest.raises(NotModelledError, match=r"4 of 5 rows are refused.*the first is row 2: gemm: axis 'm'"):
        run(capsys, "bound", "--cases", str(table), "-t", "h100_sxm")


def on_a_terminal(capsys, monkeypatch, *words):
    monkeypatch.setattr("nearpeak.cli.shared.options.on_terminal", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    return run(capsys, *words).splitlines()


def test_what_is_measured_on_a_device_is_not_said_of_operators_that_are_not(capsys, monkeypatch):
    words = ("predict", "attention", "batch=1", "heads=32", "q=1", "kv=4096", "dim=128", "-t", "h100_sxm")
    own = on_a_terminal(capsys, monkeypatch, *words, "dtype=bf16")
    borrowed = on_a_terminal(capsys, monkeypatch, *words, "dtype=fp32")
    assert "measured on this device" in own
    assert any(
        line.startswith("measured on this device, but of other operators, not of this one:") for line in borrowed
    )
    assert max(map(len, own + borrowed)) <= 80
    assert not any(line.endswith(tuple("0123456789")) and "between" in line for line in own + borrowed)


def test_copies_which_no_table_has_are_not_called_measured(capsys):
    words = ("elements=4194304", "dtype=fp16", "-t", "h100_sxm", "--json")
    copy, send = (json.loads(run(capsys, "predict", op, *words)) for op in ("transfer", "collective"))
    assert copy["calibration"]["is_borrowed"]
    assert not send["calibration"]["is_borrowed"]
    assert "library" not in copy["waterfall_s"]
    assert copy["high_s"] / copy["predicted_s"] > send["high_s"] / send["predicted_s"]


def test_a_table_of_which_no_row_is_answered_does_not_say_that_others_are(tmp_path, capsys):
    table = tmp_path / "in.csv"
    table.write_text("op,dtype,rows,columns\nsoftmax,fp16,8,8\nsoftmax,fp16,9,9\n")
    with pytest.raises(NotModelledError, match=r"2 of 2 rows are refused \(column"):
        run(capsys, "predict", "--cases", str(table), "-t", "gaudi3")


def test_a_saved_workload_is_shown_within_eighty_columns(tmp_path, capsys, monkeypatch):
    path = tmp_path / "step.json"
    case = nearpeak.case("softmax", rows=4096, columns=4096, dtype="fp16")
    call = Call(case=case, operator="softmax", phase="forward", call_count=3)
    path.write_text(save_text(Workload(name="some", step="forward", calls=(call,))))
    words = ("predict", str(path), "-t", "h100_sxm", "-t", "gtx_1080_ti")
    lines = on_a_terminal(capsys, monkeypatch, *words)
    assert lines[1].startswith("h100_sxm is the fastest, ")
    assert any("expected, kernel after kernel" in line for line in on_a_terminal(capsys, monkeypatch, *words, "--why"))
    assert max(map(len, lines)) <= 80


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


@pytest.mark.parametrize("command", ["predict", "bound"])
def test_rows_of_a_table_are_sentences_on_a_terminal(capsys, monkeypatch, tmp_path, command):
    table = tmp_path / "cases.csv"
    table.write_text("op,dtype,m,n,k\ngemm,bf16,64,64,64\ngemm,bf17,4,4,4\n", encoding="utf-8")
    monkeypatch.setattr("nearpeak.cli.shared.options.on_terminal", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    with pytest.raises(NotModelledError):
        application()([command, str(table), "--target", "h100_sxm"], standalone_mode=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("gemm dtype=bf16 m=64 n=64 k=64: " + {"predict": "expected", "bound": "bound"}[command])
    assert max(map(len, lines)) <= 80
    assert any("refused: dtype: 'bf17'" in line for line in lines)
    with pytest.raises(NotModelledError):
        application()([command, str(table), "--target", "h100_sxm", "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out.splitlines()[0])["bound_s"] > 0


def test_an_empty_case_is_refused_instead_of_advised(capsys):
    with pytest.raises(SpecError, match=r"m=0: the case is empty and runs nothing; give extents of at least 1"):
        run(capsys, "predict", "gemm", "m=0", "n=8", "k=8", "dtype=bf16", "-t", "l4")


def test_how_near_the_data_are_is_one_line_and_the_rest_is_below_why(capsys, monkeypatch):
    words = ("predict", "gemm", "m=512", "n=512", "k=512", "dtype=bf16", "-t", "l4")
    brief = " ".join(on_a_terminal(capsys, monkeypatch, *words))
    assert "not measured on this device for such a case" in brief
    assert "of fewer ranks" not in brief
    assert "of fewer ranks" in " ".join(on_a_terminal(capsys, monkeypatch, *words, "--why"))
