"""The command line: exit codes, one line per error, data on stdout, nothing half-written."""

import csv
import io
import json
import re
import sys

import pytest

from nearpeak.cli import main
from nearpeak.cli.shared.capture_command import OPTIONS
from nearpeak.core.work.scheme import SCHEMES
from nearpeak.core.work.stored_formats import CACHES, WEIGHTS

GEMM = ("gemm", "m=4096", "n=4096", "k=4096", "dtype=bf16")


@pytest.fixture
def run(capsys, monkeypatch):
    def call(*words):
        monkeypatch.setattr(sys, "argv", ["nearpeak", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return stop.value.code, captured.out, captured.err

    return call


def test_one_case_in_words_gives_its_bound_as_json(run):
    code, out, _ = run("bound", *GEMM, "--target", "h100_sxm", "--json")
    record = json.loads(out)
    assert (code, record["limiter"], record["target"]) == (0, "matrix", "h100_sxm")
    assert record["bound_s"] == pytest.approx(2 * 4096**3 / (132 * 4096 * 1.98e9))


def test_the_algorithm_policy_reaches_bound_table_and_report(run, tmp_path):
    _, classical, _ = run("bound", *GEMM, "--target", "h100_sxm", "--json")
    _, free, _ = run("bound", *GEMM, "--target", "h100_sxm", "--algorithm", "any", "--json")
    assert [json.loads(out)["limiter"] for out in (classical, free)] == ["matrix", "dram"]
    cases = tmp_path / "cases.jsonl"
    cases.write_text(json.dumps({"op": "gemm", "dtype": "bf16", "m": 4096, "n": 4096, "k": 4096}), encoding="utf-8")
    _, table, _ = run("bound", "--cases", str(cases), "--target", "h100_sxm", "--algorithm", "any")
    assert json.loads(table)["bound_s"] == json.loads(free)["bound_s"]
    _, report, _ = run("analyze", str(cases), "--target", "h100_sxm", "--json", "--algorithm", "any")
    assert json.loads(report)["policy"]["algorithm"] == "any"


def test_a_row_without_a_bound_is_named_and_the_table_goes_on(run, tmp_path):
    cases, out = tmp_path / "cases.jsonl", tmp_path / "bounds.csv"
    rows = [{"op": "gemm", "dtype": "bf16", "m": 8, "n": 8, "k": 8},
            {"op": "collective", "dtype": "bf16", "kind": "all_reduce", "elements": 64, "ranks": 2}]  # fmt: skip
    cases.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    code, text, error = run("bound", "--cases", str(cases), "--target", "jetson_nano")
    first, second = map(json.loads, text.splitlines())
    assert (code, "refused" in first, "bound_s" in second) == (1, False, False)
    assert "no link to other devices" in second["refused"]
    assert "1 of 2 rows are refused" in error
    assert run("bound", "--cases", str(cases), "--target", "jetson_nano", "--out", str(out))[0] == 1
    assert out.read_text(encoding="utf-8").count("no link") == 1


def test_what_if_edits_change_the_bound(run):
    _, slow, _ = run("bound", *GEMM, "--target", "h100_sxm", "--json")
    _, fast, _ = run("bound", *GEMM, "--target", "h100_sxm", "--set", "sm_count=264", "--json")
    assert json.loads(fast)["bound_s"] == pytest.approx(json.loads(slow)["bound_s"] / 2)


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("bound", *GEMM, "--target", "h100"), 2, "did you mean h100_"),
        (("bound", *GEMM), 2, "--target: is missing"),
        (("bound", "gemm", "m=1", "--target", "t4"), 2, "axis 'n' is missing"),
        (("bound", "gemm", "m", "--target", "t4"), 2, "'m' is not AXIS=EXTENT"),
        (("bound", "gemn", "m=1", "--target", "t4"), 2, "did you mean gemm"),
        (("bound", *GEMM, "--target", "t4", "--set", "dram.bandwith=8 TB/s"), 2, "bandwi"),
        (("bound", *GEMM, "--target", "t4", "--set", "dram.bandwidth=8 GB"), 2, "is not in B/s"),
        (("bound", *GEMM, "--target", "t4", "--policy", "fast"), 2, "strict, tf32, hard"),
        (("bound", "--cases", "nowhere.csv", "--target", "t4"), 2, "nowhere.csv: not found"),
        (("analyze", "nowhere.py", "--target", "t4"), 2, "nowhere.py: not found"),
        (("analyze", "nowhere.onnx", "--target", "t4"), 2, "nowhere.onnx: not found"),
        (("analyze", "nowhere.json"), 2, "nowhere.json: not found"),
        (("analyze", "resnet-50"), 2, "--target: is missing"),
        (("analyze", "x.onnx", "--target", "t4", "--html", "no/such/folder/x.html"), 2, "folder does not exist"),
        (("analyze", "x.py", "--target", "t4", "--phase", "sideways"), 2, "step 'sideways'"),
        (("show", "targets", "h1000"), 2, "target 'h1000'"),
        (("bound", "gemm", "m=1", "m=2", "--target", "t4"), 2, "m is given twice"),
        (("bound", *GEMM, "--target", "t4", "--out", "no/such/o.csv"), 2, "folder does not exist"),
        (("analyze", "x.onnx", "--target", "t4", "--html", "."), 2, "is a folder; name a file"),
        (("analyze", "x.py", "--target", "t4", "--timeout", "-1"), 2, "--timeout"),
        (("bound", *GEMM, "--target", "t4", "--out", "x.csv"), 2, "--out writes a table"),
        (("bound", *GEMM, "phase=sideways", "--target", "t4"), 2, "phase 'sideways'"),
        (("analyze", "nowhere.json", "--against", "nowhere.json"), 2, "nowhere.json: not found"),
        (("measure", *GEMM, "--json", "--text"), 2, "--json and --text: exclude each other; give one"),
        (("compare", "torch_cpu", "numpy", *GEMM, "--json", "--text"), 2, "--json and --text: exclude each other"),
        (("frobnicate",), 2, "No such command"),
        (("bound", "--frobnicate"), 2, "No such option"),
    ],
)
def test_wrong_use_is_one_line_with_exit_code_2(run, words, code, message):
    got, out, err = run(*words)
    assert (got, out) == (code, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_table_gets_two_columns_and_keeps_the_others(run, tmp_path):
    cases, out = tmp_path / "cases.csv", tmp_path / "bounds.csv"
    cases.write_text("id,op,dtype,m,n,k\n007,gemm,bf16,16,4096,4096\n008,gemm,fp32,4096,4096,4096\n")
    code, _, err = run("bound", "--cases", str(cases), "--target", "h100_sxm", "--out", str(out))
    lines = out.read_text().splitlines()
    assert code == 0
    assert lines[0] == "id,op,dtype,m,n,k,bound_s,limiter"
    assert lines[1].startswith("007,gemm,bf16,16,4096,4096,")
    assert [line.rsplit(",", 1)[1] for line in lines[1:]] == ["dram", "matrix"]
    assert "passed through" in err


@pytest.mark.parametrize("command", ["predict", "bound"])
@pytest.mark.parametrize("cells", [["4096.5"], ["4096.5", "-1"]])
def test_a_table_of_wrong_rows_alone_is_written_with_the_reasons(cells, command, run, tmp_path):
    cases, out = tmp_path / "cases.csv", tmp_path / "bounds.csv"
    cases.write_text("op,dtype,m,n,k\n" + "".join(f"gemm,bf16,16,{cell},16\n" for cell in cells))
    code, _, err = run(command, "--cases", str(cases), "--target", "t4", "--out", str(out))
    assert code == 1
    count = len(cells)
    assert f"{count} of {count} rows are refused (column 'refused'); the first is row 1: n: 4096.5 is not a" in err
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [(row["n"], row["limiter"]) for row in rows] == [(cell, "") for cell in cells]
    assert all("is not a whole number" in row["refused"] for row in rows)


def test_piped_rows_of_which_none_is_a_case_come_back_with_the_reason(run, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO('{"op": "gemm", "dtype": "bf16", "m": 4, "n": 4}\n'))
    code, out, err = run("predict", "--cases", "-", "--target", "h100_sxm", "--energy")
    assert (code, json.loads(out)["refused"]) == (1, "gemm: axis 'k' is missing; give k=EXTENT")
    assert "1 of 1 rows are refused" in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("op;dtype;m\ngemm;bf16;1\n", "its cells are separated by ';'; separate them by commas"),
        ("op\tdtype\tm\ngemm\tbf16\t1\n", r"its cells are separated by '\t'; separate them by commas"),
        ("OP,dtype\ngemm,bf16\n", "column 'op' is missing; it has OP, dtype"),
        ("op,dtype,m,n,k,bias_element\ngemm,bf61,1,1,1,1\n", "column 'bias_element' is no axis of the operators here"),
    ],
)
def test_what_is_wrong_with_a_table_names_its_file(text, said, run, tmp_path):
    cases = tmp_path / "cases.csv"
    cases.write_text(text)
    code, _, err = run("bound", "--cases", str(cases), "--target", "t4")
    assert code == 2
    assert err.startswith(f"nearpeak: table {cases}: ")
    assert said in err


def test_measure_takes_the_cells_that_bound_takes(run, tmp_path):
    cases = tmp_path / "cases.csv"
    cases.write_text(
        "op,dtype,m,n,k,rows,columns,log,batch,norm,a.offset\ngemm,bf16,4096.0,8.0,4.096e3,,,,,,2.0\n"
        "softmax,bf16,,,,4.0,8,1,,,\ncdist,fp32,4,8,2,,,,1.0,1,\n"
    )
    code, out, err = run("measure", str(cases), "--runner", "null", "--text")
    assert (code, out.count("nothing ran")) == (0, 3), err
    assert "gemm m=4096 n=8 k=4096 bf16 a.offset=2:" in " ".join(out.split())
    assert "softmax rows=4 columns=8 log=True bf16:" in " ".join(out.split())
    assert "cdist batch=1 m=4 n=8 k=2 norm=1 fp32:" in " ".join(out.split())
    assert run("bound", str(cases), "-t", "h100_sxm")[0] == 0


def test_a_file_that_is_no_table_is_not_taken_for_an_operator(run, tmp_path):
    path = tmp_path / "cases.json"
    path.write_text("[]")
    code, _, err = run("bound", str(path), "--target", "t4")
    assert code == 2
    assert f"bound: {path} is a file; tables of cases are known by .csv, .jsonl or .parquet" in err


@pytest.mark.parametrize(
    "words",
    ["predict NAME -t t4", "predict --cases NAME -t t4", "bound NAME -t t4", "measure NAME", "validate NAME",
     "compare torch_cpu numpy NAME", "suite show NAME", "audit NAME -t t4"],
)  # fmt: skip
@pytest.mark.parametrize("name", ["pdis", "cases.csv", "suite.jsonl"])
def test_a_folder_in_place_of_a_file_is_called_one(name, words, run, tmp_path):
    (tmp_path / name).mkdir()
    path = str(tmp_path / name)
    code, out, err = run(*words.replace("NAME", path).split())
    assert (code, out) == (2, "")
    assert err.startswith("nearpeak: ")
    assert err.endswith(f"{path}: is a folder; name a file in it\n")


def test_a_folder_of_an_operator_s_name_does_not_hide_it(run, tmp_path, monkeypatch):
    (tmp_path / "gemm").mkdir()
    monkeypatch.chdir(tmp_path)
    assert run("bound", *GEMM, "--target", "t4")[0] == 0


@pytest.mark.parametrize("command", ["predict", "bound"])
def test_wrong_rows_keep_their_place_and_numbers_come_out_as_they_were(command, run, tmp_path):
    cases, out = tmp_path / "CASES.CSV", tmp_path / "out.JSONL"
    rows = ("bf16,4096.0,4.096e3,0.5", "bf16,,8,", "bf61,8,8,2", "bf16,many,8,3.5", "bf16,8,4096.5,1e-5")
    cases.write_text("op,dtype,m,n,time_us,k\n" + "".join(f"gemm,{row},8\n" for row in rows))
    code, _, err = run(command, "--cases", str(cases), "--target", "h100_sxm", "--out", str(out))
    found = [json.loads(line) for line in out.read_text().splitlines()]
    assert code == 1
    assert "4 of 5 rows are refused, the others answered (column 'refused'); the first is row 2: gemm: axis 'm'" in err
    assert found[0]["bound_s"] > 0
    assert [row.get("time_us") for row in found] == [0.5, None, 2, 3.5, 1e-5]
    assert [row.get("m") for row in found] == [4096, None, 8, "many", 8]
    assert [row["refused"].partition(":")[0] for row in found[1:]] == ["gemm", "dtype", "m", "n"]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_tables_of_every_kind_come_back_with_the_same_bounds(run, tmp_path, suffix):
    if suffix == "parquet":
        pytest.importorskip("duckdb")
    first, out = tmp_path / "a.jsonl", tmp_path / f"b.{suffix}"
    first.write_text('{"op":"gemm","dtype":"bf16","m":8,"n":8,"k":8}\n{"op":"gemm","dtype":"bf16","m":9,"n":8,"k":8}\n')
    assert run("bound", "--cases", str(first), "--target", "t4", "--out", str(out))[0] == 0
    again = tmp_path / "c.jsonl"
    assert run("bound", "--cases", str(out), "--target", "t4", "--out", str(again))[0] == 0
    times = [json.loads(line)["bound_s"] for line in again.read_text().splitlines()]
    assert len(times) == 2
    assert 0 < times[0] < times[1]


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_blank_cell_means_the_default_in_tables_of_every_kind(run, tmp_path, suffix):
    if suffix == "parquet":
        pytest.importorskip("duckdb")
    one = {"op": "gemm", "dtype": "bf16", "m": 8, "n": 8, "k": 8}
    rows = ({**one, "batch": 4, "layout": "nt"}, one, {"op": "fill", "dtype": "bf16", "elements": 8})
    first, table, again = tmp_path / "a.jsonl", tmp_path / f"b.{suffix}", tmp_path / "c.jsonl"
    first.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert run("bound", "--cases", str(first), "--target", "t4", "--out", str(table))[0] == 0
    assert run("bound", "--cases", str(table), "--target", "t4", "--out", str(again))[0] == 0
    times = [json.loads(line)["bound_s"] for line in again.read_text(encoding="utf-8").splitlines()]
    assert times[0] == pytest.approx(4 * times[1])


def test_a_wrong_amount_of_memory_names_its_option(run):
    code, _, err = run("capture", "resnet-18", "--memory", "4")
    assert (code, err.startswith("nearpeak: --memory: ")) == (2, True)


def test_operators_show_their_axes_as_json(run):
    code, out, _ = run("show", "ops", "--json")
    records = {record["op"]: record for record in map(json.loads, out.splitlines())}
    assert code == 0
    assert records["gemm"]["phases"]["forward"]["required"] == ["m", "n", "k"]


def test_targets_show_their_sources_as_json(run):
    _, out, _ = run("show", "targets", "h100_sxm", "--json")
    assert "datasheet" in json.loads(out)["dram"]["source"]


def test_models_show_whose_dimensions_they_have(run):
    _, out, _ = run("show", "models", "--json")
    records = {record["model"]: record for record in map(json.loads, out.splitlines())}
    assert len(records) >= 25
    assert records["resnet-50"]["parameters"] == 25_557_032
    assert all(record["source"] for record in records.values())
    assert records["llama-3-8b"]["shipped"]
    captured = [name for name in records if not records[name]["shipped"]]
    _, text, _ = run("show", "models")
    assert captured
    assert all(re.search(rf"{re.escape(name)} +\S+ \*", text) for name in captured)


def test_doctor_says_what_works(run):
    code, out, _ = run("doctor", "--json")
    checks = {check["what"]: check["ok"] for check in json.loads(out)}
    assert code == 0
    assert checks["operators"]
    assert checks["targets"]


def test_the_version_is_one_line(run):
    code, out, _ = run("--version")
    assert code == 0
    assert re.fullmatch(r"nearpeak (\d+\.\d+\.\d+|from source)\n", out)


def test_cases_can_be_piped_in(run, monkeypatch):
    import io

    monkeypatch.setattr(sys, "stdin", io.StringIO('{"op":"gemm","dtype":"bf16","m":8,"n":8,"k":8,"count":3}\n'))
    code, out, _ = run("bound", "--target", "h100_sxm")
    assert code == 0
    assert json.loads(out)["limiter"] == "dram"


def test_what_the_terminal_s_encoding_lacks_is_written_in_other_words(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    words = ["measure", "fill", "elements=8", "dtype=fp32", "--runner", "null", "--text"]
    monkeypatch.setattr(sys, "argv", ["nearpeak", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 0
    assert b"1 ms \\xb1 0.0%" in written.getvalue()


def test_the_help_lists_every_spelling_of_stored_formats():
    for name, accepted in (("weights", {**WEIGHTS, **SCHEMES}), ("kv_cache", CACHES)):
        listed = re.split(r"[^\w]+", OPTIONS[name][1].help)
        assert set(accepted) <= set(listed)
