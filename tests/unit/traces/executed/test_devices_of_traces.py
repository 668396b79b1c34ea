"""Devices are paired by their numbers, all of them are shown, and the worst decides the exit code."""

import json

import pytest
from tests.unit.traces.executed.small_traces import H100, launched, mark, steps_of_kernels, written
from typer.testing import CliRunner

from nearpeak.api.trace_analysis import analyze_trace, compare_traces
from nearpeak.cli import application
from nearpeak.core.traces.trace_difference import UnpairedDevice
from nearpeak.errors import SpecError
from nearpeak.precision.actual_gain import precision_of_file
from nearpeak.traces import read_trace
from nearpeak.traces.timeline.ranks import skew_of


def traced(path, kernel_us, devices=(0, 1), period_us=100):
    return written(path, steps_of_kernels(5, 8, dict(zip(devices, kernel_us, strict=True)), period_us, devices))


def test_each_device_is_compared_with_itself(tmp_path):
    before, after = traced(tmp_path / "before.json", (80, 78)), traced(tmp_path / "after.json", (60, 78))
    first, second = compare_traces(before, after)
    assert (first.device_numbers, second.device_numbers) == ((0, 0), (1, 1))
    assert first.classes[0][2] / first.classes[0][1] == pytest.approx(0.75)
    assert second.classes[0][2] / second.classes[0][1] == pytest.approx(1.0)


def test_devices_that_are_alone_in_each_trace_are_a_pair(tmp_path):
    before, after = traced(tmp_path / "b.json", (60,), (0,)), traced(tmp_path / "a.json", (60,), (3,))
    assert [one.device_numbers for one in compare_traces(before, after)] == [(0, 3)]


def test_a_device_of_one_trace_only_is_named_and_not_comparable(tmp_path):
    before, after = traced(tmp_path / "b.json", (60, 60)), traced(tmp_path / "a.json", (60,), (0,))
    results = compare_traces(before, after)
    assert [type(one) is UnpairedDevice for one in results] == [False, True]
    done = CliRunner().invoke(application(), ["analyze", str(after), "--against", str(before), "--text"])
    assert done.exit_code == 11
    assert "device 1 is only in the baseline" in " ".join(done.output.split())


def test_the_worst_device_decides_the_exit_code(tmp_path):
    before = traced(tmp_path / "before.json", (60, 60))
    slow = traced(tmp_path / "after.json", (90, 60), period_us=150)
    done = CliRunner().invoke(application(), ["analyze", str(slow), "--against", str(before), "--json"])
    assert done.exit_code == 10
    record = json.loads(done.output)
    assert record["verdict"] == "regression"
    assert len(record["devices"]) == 2


def test_options_of_one_report_are_refused_for_two(tmp_path):
    path = traced(tmp_path / "t.json", (60, 60))
    done = CliRunner().invoke(application(), ["analyze", str(path), "--against", str(path), "--rank", str(path)])
    assert done.exit_code == 2 or isinstance(done.exception, SpecError)


@pytest.mark.parametrize("described", [7, 0])
def test_one_description_is_that_of_the_device_whatever_its_number(tmp_path, described):
    events = [mark(0, 0, 900), *launched("gemm", 20, 800, 1, device=2)]
    report = analyze_trace(written(tmp_path / "t.json", events, [{**H100, "id": described}]))
    assert report.executed.device == H100["name"]
    assert report.executed.target == "h100_sxm"
    assert any("device 2 is not among those" in note for note in report.executed.notes)


def test_of_several_kinds_none_is_guessed(tmp_path):
    events = [mark(0, 0, 900), *launched("gemm", 20, 800, 1, device=2)]
    others = [H100, {**H100, "id": 1, "name": "NVIDIA A100-SXM4-80GB"}]
    report = analyze_trace(written(tmp_path / "t.json", events, others))
    assert (report.executed.device, report.executed.target) == ("", "")


def test_a_rank_that_is_not_stated_is_not_made_up(tmp_path):
    paths = [traced(tmp_path / f"{name}.json", (60, 60)) for name in "ab"]
    data = json.loads(paths[0].read_text())
    paths[0].write_text(json.dumps({**data, "distributedInfo": {"rank": 1, "world_size": 2}}))
    with pytest.raises(SpecError, match=r"b.json does not state its rank"):
        skew_of([read_trace(path) for path in paths])


def test_a_device_that_is_asked_for_is_looked_into_and_else_the_busiest(tmp_path):
    path = traced(tmp_path / "t.json", (80, 60))
    assert [precision_of_file(path, None, device)[0].device_number for device in (None, 1, 5)] == [0, 1, 0]


def test_devices_of_other_numbers_are_no_pair_where_one_number_is_in_both_traces(tmp_path):
    before, after = traced(tmp_path / "b.json", (80, 60), (0, 1)), traced(tmp_path / "a.json", (80, 60), (1, 2))
    results = compare_traces(before, after)
    assert [type(one) is UnpairedDevice for one in results] == [True, False, True]
    assert results[1].device_numbers == (1, 1)


def test_numbers_that_a_file_states_as_text_are_numbers(tmp_path):
    events = [mark(0, 0, 900), *launched("gemm", 20, 800, 1, device="0")]
    executed = analyze_trace(written(tmp_path / "t.json", events, [{**H100, "id": "0"}])).executed
    assert executed.target == "h100_sxm"
    assert not any("is not among those" in note for note in executed.notes)
