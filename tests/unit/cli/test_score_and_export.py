"""`nearpeak score` and `nearpeak export` from the command line."""

import json
import sys
from pathlib import Path

import pytest

from nearpeak.cli import main

FOLDER = Path(__file__).parents[2] / "fixtures" / "definitions"
FILE, LINES = str(FOLDER / "scaled_rows.json"), str(FOLDER / "scaled_rows.jsonl")


class Done:
    """What a command printed, and its exit code."""

    def __init__(self, code, printed):
        self.returncode, self.stdout, self.stderr = code, printed.out, printed.err


@pytest.fixture
def nearpeak(capsys, monkeypatch):
    """Run a command in this process."""

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["nearpeak", *words])
        with pytest.raises(SystemExit) as stop:
            main()
        return Done(stop.value.code, capsys.readouterr())

    return call


def trace(solution, time_ms, uuid="large", status="PASSED"):
    line = next(json.loads(text) for text in Path(LINES).read_text().splitlines() if uuid in text)
    evaluation = {"status": status, "log": ""}
    if status == "PASSED":
        evaluation["correctness"] = {"max_relative_error": 0.0, "max_absolute_error": 0.0}
        evaluation["performance"] = {"latency_ms": time_ms, "reference_latency_ms": 1.0, "speedup_factor": 1 / time_ms}
    return json.dumps({**line, "definition": "scaled_rows", "solution": solution, "evaluation": evaluation}) + "\n"


def test_every_workload_gets_its_bound_on_every_target(nearpeak):
    found = nearpeak("score", FILE, "-w", LINES, "-t", "h100_sxm", "-t", "b200_sxm", "--json")
    rows = [json.loads(text) for text in found.stdout.splitlines()]
    assert [(row["workload"], row["target"]) for row in rows] == [
        ("small", "h100_sxm"), ("small", "b200_sxm"), ("large", "h100_sxm"), ("large", "b200_sxm")]  # fmt: skip
    assert all(row["bound_s"] > 0 and row["policy"]["dtype"] == "strict" for row in rows)


def test_traces_are_scored_where_a_score_means_something(nearpeak, tmp_path):
    file = tmp_path / "t.jsonl"
    file.write_text(
        trace("base", 0.5) + trace("good", 0.1) + trace("magic", 1e-6) + trace("broken", 0, status="TIMEOUT")
    )
    found = nearpeak("score", FILE, "--traces", str(file), "-t", "h100_sxm", "--baseline", "base", "--json")
    rows = {row["solution"]: row for row in map(json.loads, found.stdout.splitlines())}
    assert rows["base"]["score"] == 0.5
    assert 0.5 < rows["good"]["score"] < 1
    assert (rows["magic"]["kind"], rows["magic"]["score"]) == ("BELOW_BOUND", None)
    assert rows["broken"]["status"] == "TIMEOUT"
    assert "score" not in rows["broken"]
    locked = nearpeak("score", FILE, "--traces", str(file), "-t", "h100_sxm", "--measured-at", "1.5 GHz", "--json")
    assert {json.loads(text).get("kind") for text in locked.stdout.splitlines()} == {"CLOCKS_DIFFER", None}


@pytest.mark.parametrize(
    ("words", "message"),
    [(("score", FILE, "-t", "h100_sxm"), "gives axes none; scaled_rows has the variable axes m"),
     (("score", "no.json", "-t", "h100_sxm"), "no.json: not found"),
     (("score", FILE, "--traces", LINES, "-t", "h100_sxm"), "holds no trace of definition 'scaled_rows'"),
     (("export", "gemm", "m=4", "n=4", "k=4", "dtype=bf16", "--to", "x", "--flavour", "mine"), "'mine' is not one of"),
     (("capture", FILE, "--axis", "m=many"), "is not NAME=EXTENT"),
     (("capture", "resnet-50", "--axis", "m=8"), "axes can be given for kernel definitions")],
)  # fmt: skip
def test_bad_input_is_one_line_that_names_it(nearpeak, words, message):
    found = nearpeak(*words)
    assert found.returncode == 2
    assert message in found.stderr
    assert len(found.stderr.splitlines()) == 1


def test_exported_cases_are_read_back_and_what_cannot_be_stated_is_named(nearpeak, tmp_path):
    saved = tmp_path / "w.json"
    assert nearpeak("capture", FILE, "--axis", "m=8", "--out", str(saved)).returncode == 0
    folder = tmp_path / "kernels"
    assert "wrote 3 of 3 cases" in nearpeak("export", str(saved), "--to", str(tmp_path / "many")).stderr
    found = nearpeak(
        "export", "gemm", "m=8", "n=4", "k=2", "dtype=bf16", "--to", str(folder), "--flavour", "flashinfer"
    )
    assert "wrote 1 of 1 case" in found.stderr
    definition = next(folder.glob("definitions/gemm/*.json"))
    written = str(next(folder.glob("workloads/gemm/*.jsonl")))
    rows = nearpeak("score", str(definition), "-w", written, "-t", "t4", "--json").stdout
    assert json.loads(rows)["limiter"] == "dram"
    refused = nearpeak("export", "nonzero", "elements=9", "dtype=fp32", "--to", str(folder))
    assert refused.returncode != 0
    assert "left out: export: nonzero" in refused.stderr
