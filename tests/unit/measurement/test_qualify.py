"""Mutation scores of a suite: a real run, a file that goes on, effective coverage from it."""

import json

import pytest

import nearpeak
from nearpeak.cli import main
from nearpeak.core.runs.measurement import Timing
from nearpeak.errors import SpecError
from nearpeak.measurement.case_qualification import qualified, score_of
from nearpeak.measurement.result_file import held_file
from nearpeak.suites.coverage_numbers import coverage_of
from nearpeak.suites.mutation_scores import read_scores
from nearpeak.suites.suite_names import read_suite

pytest.importorskip("torch")
TIMING = Timing(limit_s=300.0)
SOFTMAX = nearpeak.case("softmax", rows=4, columns=16, dtype="fp32")


def test_the_forward_pass_and_the_gradient_have_mutants_of_their_own():
    forward = score_of(SOFTMAX.record(), 0)
    backward = score_of(nearpeak.case("softmax", "backward", rows=4, columns=16, dtype="fp32").record(), 0)
    assert forward["survived"] == backward["survived"] == []
    assert "gradient zero" in backward["killed"]
    assert not set(forward["killed"]) & set(backward["killed"])


def test_rows_are_written_before_they_are_said_and_not_made_twice(tmp_path):
    out = tmp_path / "scores.jsonl"
    degenerate = nearpeak.case("softmax", rows=2, columns=1, dtype="fp32")
    huge = nearpeak.case("gemm", m=4096, n=4096, k=4096, dtype="bf16")
    rows = list(qualified([SOFTMAX, degenerate, huge], 0, TIMING, out))
    assert [bool(row["killed"]) for row in rows] == [True, False, False]
    assert "DEGENERATE" in rows[1]["reason"]
    assert "too large" in rows[2]["reason"]
    assert list(qualified([SOFTMAX, degenerate, huge], 0, TIMING, out)) == []
    assert read_scores(out.read_text(), "scores") == {SOFTMAX.digest: 1.0}


def test_a_file_of_scores_that_another_process_writes_is_left_to_it(tmp_path):
    out = tmp_path / "scores.jsonl"
    with held_file(out), pytest.raises(SpecError, match=r"scores\.jsonl: another process writes it"):
        next(iter(qualified([SOFTMAX], 0, TIMING, out)))


def test_effective_coverage_comes_from_the_scores_of_a_real_run(tmp_path, monkeypatch, capsys):
    suite, scores = tmp_path / "suite.jsonl", tmp_path / "scores.jsonl"
    words = ["suite", "build", "--sweep", "op=softmax dtype=fp32 rows=4 columns=16", "--out", str(suite)]
    qualify = ["qualify", str(suite), "-o", str(scores)]
    for command in (words, qualify, [*qualify, "--seed", "1"]):
        monkeypatch.setattr("sys.argv", ["nearpeak", *command])
        with pytest.raises(SystemExit) as left:
            main()
        assert left.value.code == 0
    said = capsys.readouterr().out
    assert "mutants detected" in said
    assert "holds a row for every case already, whatever its seed" in said
    found = coverage_of(read_suite(suite), scores=read_scores(scores.read_text(), "scores")).directed[-1]
    row = json.loads(scores.read_text())
    share = len(row["killed"]) / (len(row["killed"]) + len(row["survived"]))
    assert found.effective_ratio == pytest.approx(found.covered_ratio * share)
    assert found.effective_ratio > 0


def test_a_file_of_scores_that_was_cut_off_goes_on_and_another_file_is_left_alone(tmp_path):
    out, other = tmp_path / "scores.jsonl", tmp_path / "cases.jsonl"
    (row,) = qualified([SOFTMAX], 0, TIMING, out)
    whole = out.read_text()
    for kept in (1, 12, len(whole) // 2, len(whole) - 1):
        out.write_text(whole + whole[:kept])
        assert list(qualified([SOFTMAX], 0, TIMING, out)) == []
        assert out.read_text() == whole
    for kept in (1, len(whole) - 2):
        assert read_scores(whole + whole[:kept], "scores") == {SOFTMAX.digest: 1.0}
    broken = whole + whole[: len(whole) // 2] + "\n"
    suite_line = '{"digest":"ab","op":"softmax"}\n'
    for text in ('{"op": "softmax", "rows": 4}', whole + '{"op": "softmax"}\n', broken, whole + "\n", suite_line):
        other.write_text(text)
        with pytest.raises(SpecError, match="is no line of scores"):
            list(qualified([SOFTMAX], 0, TIMING, other))
        assert other.read_text() == text
    assert row["case"] == "softmax rows=4 columns=16 fp32"
