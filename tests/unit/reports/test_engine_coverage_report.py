"""The command `nearpeak coverage --engine` and its report as text, JSON, HTML and SARIF."""

import json

import pytest
from tests.unit.conversion.onnx_models import chain, group_norm_block
from typer.testing import CliRunner

from nearpeak.cli import application
from nearpeak.errors import CaptureError, SpecError

ENGINE = ("--engine", "tensorrt:10.1")


def run(*words):
    return CliRunner().invoke(application(), ["coverage", *map(str, words)])


@pytest.fixture
def model(tmp_path):
    return chain(tmp_path / "m.onnx", ["Conv", "Relu", "mine.Foo", "Celu", "Conv", "Sigmoid", "mine.Foo", "Relu"])


def test_text_says_the_answer_first_in_at_most_25_lines(model, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    result = run(model, *ENGINE, "--target", "h100_sxm", "--target", "jetson_agx_orin", "--without", "Celu", "--text")
    assert result.exit_code == 0
    lines = result.output.rstrip().splitlines()
    assert lines[1].startswith("5 of 8 nodes convert")
    assert "The breaks cost" in " ".join(lines[1:4])
    assert any("[2 nodes] → Foo, Celu" in line or "[2 nodes] → mine.Foo, Celu" in line for line in lines)
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 25


def test_json_holds_verdicts_plans_and_changes(model):
    result = run(model, *ENGINE, "--target", "h100_sxm", "--target", "jetson_agx_orin", "--json")
    record = json.loads(result.output)
    assert record["counts"] == {"supported": 6, "unknown": 2}
    assert [plan["target"] for plan in record["plans"]] == ["h100_sxm", "jetson_agx_orin"]
    for plan in record["plans"]:
        assert plan["as_is"]["total"]["low_s"] <= plan["as_is"]["total"]["time_s"] <= plan["as_is"]["total"]["high_s"]
    assert {change["kind"] for change in record["changes"]} >= {"plug-in"}
    assert len(record["breaks"]) == 2


def test_pages_show_the_pieces_and_sarif_names_the_nodes(model, tmp_path):
    page, log = tmp_path / "page.html", tmp_path / "log.sarif"
    assert run(model, *ENGINE, "--target", "h100_sxm", "--html", page, "--sarif", log, "--text").exit_code == 0
    assert page.read_text().count("<rect") >= 5
    (sarif,) = json.loads(log.read_text())["runs"]
    assert [item["locations"][0]["logicalLocations"][0]["name"] for item in sarif["results"]] == ["n2", "n6"]
    assert {item["level"] for item in sarif["results"]} == {"warning"}
    rules = [rule["id"] for rule in sarif["tool"]["driver"]["rules"]]
    assert all(rules[item["ruleIndex"]] == item["ruleId"] == "unknown" for item in sarif["results"])


def test_without_a_target_verdicts_and_pieces_are_all(model):
    result = run(model, *ENGINE, "--text")
    assert result.exit_code == 0
    assert "cost" not in result.output.splitlines()[1]


def test_details_say_what_the_answer_rests_on(tmp_path):
    model = group_norm_block(tmp_path / "g.onnx", 21, is_native=True)
    result = run(model, *ENGINE, "--target", "h100_sxm", "--text", "--why")
    for words in ("documented up to 20", "operators.md", "All operator types", "conditional"):
        assert words in " ".join(result.output.split())


@pytest.mark.parametrize(("words", "said"), [
    ((), "needs one of --runner"),
    (("--runner", "onnxruntime", *ENGINE), "needs one of --runner"),
    (("--runner", "onnxruntime", "--target", "h100_sxm"), "--target: goes with --engine"),
    (("--engine", "tensorrt:11.0"), "no capability table"),
    (("--engine", "tensorrt"), "is not NAME:VERSION"),
    ((*ENGINE, "--table", "missing.toml"), "missing.toml: not found"),
    ((*ENGINE, "--target", "h900"), "h900"),
    ((*ENGINE, "--worth", "much"), "is not a time"),
    ((*ENGINE, "--without", "Moon"), "no node of type 'Moon'"),
])  # fmt: skip
def test_bad_input_is_refused_in_one_line(model, words, said):
    result = run(model, *words)
    assert isinstance(result.exception, SpecError)
    assert said in str(result.exception)
    assert len(str(result.exception).splitlines()) == 1


def test_a_file_that_is_no_model_is_refused(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(b"no model")
    result = run(path, *ENGINE)
    assert isinstance(result.exception, CaptureError)
    assert "not an ONNX model" in str(result.exception)
