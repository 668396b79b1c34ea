"""`nearpeak analyze --measure`: the machine at hand is the target that the runner times."""

import json

import pytest

from nearpeak.api.measured_analysis import roofs_file
from nearpeak.cli import application
from nearpeak.errors import NearpeakError, SpecError

ROOFS = {"fp64": 5e10, "fp32": 1e11, "memory": 3e10, "launch": 1e-6}


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
    monkeypatch.setattr(
        "nearpeak.cli.question.analyze._measured", lambda analysis, runner: asked.append(runner) or analysis
    )
    monkeypatch.setattr("nearpeak.api.measured_analysis.timed_target", lambda runner: {"torch_cpu": "h20"}[runner])
    found = analyzed(capsys, sweep, "--measure")
    assert ([one["target"] for one in found["targets"]], asked) == (["h20"], ["torch_cpu"])


@pytest.mark.parametrize("words", [(), ("--target", "cpu"), ("--target", "cpu", "--target", "h20")])
def test_roofs_of_this_machine_that_nobody_measured_are_measured_first(capsys, monkeypatch, tmp_path, sweep, words):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr("nearpeak.measurement.machine.roofs.cpu_roofs", ROOFS.items)
    monkeypatch.setattr("nearpeak.cli.question.analyze._measured", lambda analysis, _runner: analysis)
    with pytest.raises(NearpeakError, match="no_such_model"):
        analyzed(capsys, "no_such_model", "--measure", *words)
    assert not roofs_file().exists()
    application()(["analyze", sweep, "--measure", *words, "--json"], standalone_mode=False)
    said = capsys.readouterr()
    assert json.loads(said.out)["targets"][0]["target"] == "cpu"
    assert f"wrote {roofs_file()}" in said.err
    roofs_file().write_text("damaged", encoding="utf-8")
    with pytest.raises(SpecError, match="not TOML"):
        analyzed(capsys, sweep, "--measure", *words)


def test_no_roofs_are_measured_where_another_device_is_asked_for(capsys, monkeypatch, tmp_path, sweep):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    with pytest.raises(SpecError, match="torch_cpu times the target 'cpu'; add --target cpu"):
        analyzed(capsys, sweep, "--measure", "--target", "h20")
    assert not roofs_file().exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--runner", "nosuch"), "nosuch"),
        (("--target", "h20"), "torch_cpu times the target 'cpu'; add --target cpu"),
        (("--target", "h20", "--runner", "sim:h100_sxm"), "sim:h100_sxm times the target 'h100_sxm'; add"),
    ],
)
def test_a_runner_that_times_no_target_is_refused_before_the_capture(capsys, monkeypatch, words, said):
    monkeypatch.setattr("nearpeak.cli.question.analyze.workload_of", lambda *_, **__: pytest.fail("captured"))
    with pytest.raises(NearpeakError, match=said):
        analyzed(capsys, "resnet-50", "--measure", *words)


def test_what_a_simulated_device_takes_is_measured_beside_its_bound(capsys, sweep):
    found = analyzed(capsys, sweep, "--measure", "--target", "h100_sxm", "--runner", "sim:h100_sxm")
    assert found["targets"][0]["times"][0]["measured_s"] > 0


def test_a_target_is_still_asked_for_where_nothing_is_measured(capsys, sweep):
    with pytest.raises(SpecError, match="--target: is missing"):
        analyzed(capsys, sweep)
