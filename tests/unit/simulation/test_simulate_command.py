"""`nearpeak simulate` as people use it: traces that open, maps of multiprocessors, policies side by side."""

import json

import pytest
from typer.testing import CliRunner

from nearpeak.cli import application
from nearpeak.core.answers.simulation import Batch, Run, Span
from nearpeak.errors import SpecError
from nearpeak.reports.heat_map import drawing_of
from nearpeak.reports.simulation_report import to_trace

STREAMS = """
[[stream]]
name = "camera"
cases = ["gemm m=256 n=1024 k=1024 dtype=bf16"]
input = "2 MB"
count = 3
start = "20 us"
period = "100 us"
priority = 1
[[stream]]
name = "batch"
cases = ["gemm m=4096 n=4096 k=4096 dtype=bf16"]
"""


def invoke(*words):
    found = CliRunner().invoke(application(), ["simulate", *map(str, words), "--target", "h100_sxm", "--json"])
    if found.exception is not None and not isinstance(found.exception, SystemExit):
        raise found.exception
    return [json.loads(line) for line in found.stdout.splitlines() if line.startswith("{")]


def test_streams_leave_a_trace_and_a_page(tmp_path):
    file, trace, page = tmp_path / "s.toml", tmp_path / "t.json", tmp_path / "s.html"
    file.write_text(STREAMS)
    (found,) = invoke(file, "--policy", "preempts", "--trace", trace, "--html", page)
    assert found["policy"] == "preempts"
    events = json.loads(trace.read_text())["traceEvents"]
    tracks = {event["args"]["name"] for event in events if event["ph"] == "M"}
    assert {"GPU", "changes of context", "stream batch"} <= tracks
    assert {"kernel", "copy", "switch"} <= {event.get("cat") for event in events if event["ph"] == "X"}
    assert all(event["dur"] >= 0 and event["ts"] >= 0 for event in events if event["ph"] == "X")
    busy = [event["args"]["busy"] for event in events if event["name"] == "busy multiprocessors"]
    assert (min(busy), max(busy)) == (0, 132)
    assert "preempts: all done after" in page.read_text()


def test_a_governed_case_leaves_power_clock_and_temperature(tmp_path):
    trace = tmp_path / "t.json"
    (found,) = invoke("gemm", "m=8192", "n=8192", "k=16384", "dtype=bf16", "--governed", "--trace", trace)
    assert found["energy_j"] > 0
    names = {event["name"] for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "C"}
    assert {"power", "clock", "temperature", "busy multiprocessors"} <= names


def test_every_policy_is_shown_beside_the_others(tmp_path):
    (tmp_path / "s.toml").write_text(STREAMS)
    found = invoke(tmp_path / "s.toml")
    assert [one["policy"] for one in found] == [
        "streams", "priorities", "turns", "drains", "preempts", "mps", "masks", "slices",
    ]  # fmt: skip
    assert all(one["energy_j"] > 0 and one["overlaps"] for one in found)


def run_of(count):
    spans = tuple(
        Span(name=f"{i} k <b>", queue="0", ready_ps=i, start_ps=i, placed_ps=i, end_ps=i + 1, pool_bytes={}, slot_ps=2)
        for i in range(count)
    )
    batches = tuple(
        Batch(name=one.name, start_ps=i, end_ps=i + 1, sms=0b11 if i % 2 else 0b01, each_count=1)
        for i, one in enumerate(spans)
    )
    return Run(end_ps=count, spans=spans, batches=batches, event_count=count, cta_count=count)


@pytest.mark.parametrize(("count", "kind"), [(10, "<title>3 k &lt;b&gt;: "), (6000, "fill-opacity")])
def test_few_kernels_are_drawn_one_by_one_and_many_as_a_heat_map(count, kind):
    drawn = drawing_of(run_of(count), 2).html()
    assert kind in drawn
    assert "k &lt;b&gt;" in drawn
    assert drawn.count("<rect") <= max(count + count // 2, 2 * 240)


def test_a_trace_of_nothing_but_time_is_valid():
    assert json.loads(to_trace(run_of(1), 2))["metadata"] == {"multiprocessors": 2}


@pytest.mark.parametrize(("words", "message"), [
    (("s.toml", "--sensitivity"), "no meaning for streams"),
    (("resnet-50", "--sweep", "sm_count=1", "--sensitivity"), "exclude each other"),
    (("resnet-50", "--sweep", "sm_count=1", "--set", "sm_count=3"), "leave --set out"),
    (("gemm", "m=8", "n=8", "k=8", "dtype=bf16", "--governed", "--set", "power.limit=1 W"), "leaves nothing above"),
])  # fmt: skip
def test_what_cannot_be_simulated_is_refused_in_one_line(words, message):
    with pytest.raises((SpecError, NotImplementedError), match=message):
        invoke(*words)


@pytest.mark.parametrize(("words", "message"), [
    (("--runner", "torch_cpu", "--target", "h200_sxm"), "runs on a device that is there"),
    (("--runner", "sim:h100_sxm", "--target", "h200_sxm"), "names its own"),
    (("--set", "sm_count=3"), "add --target"),
])  # fmt: skip
def test_a_target_belongs_to_a_simulated_runner(words, message):
    found = CliRunner().invoke(application(), ["measure", "gemm", "m=8", "n=8", "k=8", "dtype=fp32", *words])
    assert isinstance(found.exception, SpecError)
    assert message in str(found.exception)
