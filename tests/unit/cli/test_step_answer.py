"""`nearpeak analyze`, `predict` and `simulate` on a step: the answer first, `--why`, `--within` and its exit code."""

import json

import pytest
from tests.unit.prediction.test_execution_modes import chain

from nearpeak.cli import application
from nearpeak.errors import SpecError
from nearpeak.frontends.files.saved_workload import save_text


@pytest.fixture
def step(tmp_path):
    path = tmp_path / "step.json"
    path.write_text(save_text(chain(["norm", "gemm", "relu", "attention"] * 10, batch=8)))
    return str(path)


def run(capsys, *words):
    code = application()(list(words), standalone_mode=False)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize("command", ["analyze", "predict"])
def test_the_answer_comes_first_within_25_lines_and_why_says_what_it_rests_on(command, step, capsys):
    _, short, _ = run(capsys, command, step, "-t", "h100_sxm", "--text")
    _, whole, _ = run(capsys, command, step, "-t", "h100_sxm", "--text", "--why")
    lines = short.splitlines()
    assert " an image (" in lines[1]
    assert len(lines) <= 25
    assert max(map(len, whole.splitlines())) <= 80
    assert "A4: inputs start in device memory" in whole
    assert "A4:" not in short


@pytest.mark.parametrize("command", ["analyze", "predict"])
@pytest.mark.parametrize(("limit", "code"), [("1000 s", 0), ("1 ns", 10), ("1e9 images/s", 10), ("1fps", 0)])
def test_a_limit_is_answered_by_a_sentence_and_the_exit_code(command, limit, code, step, capsys):
    assert run(capsys, command, step, "-t", "h100_sxm", "--text", "--within", limit)[0] == code
    got, out, err = run(capsys, command, step, "-t", "h100_sxm", "--json", "--within", limit)
    assert got == code
    assert json.loads(out)
    assert err.startswith(f"Within {limit} on h100_sxm: {'no' if code else 'yes'}")


def test_the_mode_is_stated_in_the_record_and_a_wrong_one_is_refused_before_anything_is_read(step, capsys):
    _, out, _ = run(capsys, "analyze", step, "-t", "h100_sxm", "--json", "--execution", "compiled")
    record = json.loads(out)
    assert record["execution"] == "compiled"
    assert [one["mode"] for one in record["targets"][0]["executions"]] == ["eager", "graph", "compiled"]
    with pytest.raises(SpecError, match="--execution 'quick': is not one of"):
        run(capsys, "analyze", "no such file.json", "-t", "h100_sxm", "--execution", "quick")
    with pytest.raises(SpecError, match="--within 'soon': is no positive time or rate"):
        run(capsys, "analyze", "no such file.json", "-t", "h100_sxm", "--within", "soon")


def test_cases_have_neither_modes_nor_limits(capsys):
    words = ("predict", "gemm", "m=64", "n=64", "k=64", "dtype=bf16", "-t", "h100_sxm")
    for option in (("--execution", "graph"), ("--within", "1 ms")):
        with pytest.raises(SpecError, match=f"predict: {option[0]} is for a step"):
            run(capsys, *words, *option)


def test_a_simulated_step_starts_with_the_time_of_an_item(step, capsys):
    _, out, _ = run(capsys, "simulate", step, "-t", "h100_sxm", "--text")
    lines = out.splitlines()
    assert " an image, " in lines[1]
    assert "; limit " in " ".join(lines[1:3])
    assert max(map(len, lines)) <= 80
