"""`nearpeak analyze --measure`: the machine at hand is the target that the runner times."""

import json

import pytest

from nearpeak.cli import application
from nearpeak.errors import SpecError


def analyzed(capsys, *words):
    application()(["analyze", *words, "--json"], standalone_mode=False)
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def sweep(tmp_path):
    file = tmp_path / "cases.jsonl"
    file.write_text('{"op": "softmax", "dtype": "fp32", "rows": 8, "columns": 16, "count": 2}\n', encoding="utf-8")
    return str(file)


def test_without_a_target_the_one_that_the_runner_times_is_taken(capsys, monkeypatch, sweep):
    asked = []
    monkeypatch.setattr("nearpeak.cli.analyze._measured", lambda analysis, runner: asked.append(runner) or analysis)
    monkeypatch.setattr("nearpeak.measuring.timed_target", lambda runner: {"torch_cpu": "h20"}[runner])
    found = analyzed(capsys, sweep, "--measure")
    assert ([one["target"] for one in found["targets"]], asked) == (["h20"], ["torch_cpu"])


def test_a_target_is_still_asked_for_where_nothing_is_measured(capsys, sweep):
    with pytest.raises(SpecError, match="--target: is missing"):
        analyzed(capsys, sweep)
