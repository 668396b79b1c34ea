"""Timelines as traces: written for viewers and read back with every span at its place."""

from pathlib import Path

import pytest

from nearpeak.core.systems.system_timeline import LANES, Span
from nearpeak.errors import SpecError
from nearpeak.systems.timeline_trace import trace_of_spans, write_timeline
from nearpeak.systems.training.pipeline_executor import StageTimes, pipeline_step
from nearpeak.systems.training.schedules import schedule_of
from nearpeak.traces.formats import read_trace


def spans():
    times = StageTimes.equal(2, 1e-3, 2e-3, 1e-3)
    return pipeline_step(schedule_of("zb-h1", 2, 4), times, 1e-4, has_spans=True).spans


def test_a_timeline_reads_back_from_chrome_json_to_the_nanosecond(tmp_path):
    path = tmp_path / "step.json"
    write_timeline(spans(), path)
    trace = read_trace(path)
    rows = sorted(zip(trace.device.tolist(), trace.stream.tolist(), trace.start_ns.tolist(), trace.end_ns.tolist(),
                      strict=True))  # fmt: skip
    assert rows == sorted((s.rank, LANES.index(s.lane), round(s.start_s * 1e9), round(s.stop_s * 1e9)) for s in spans())
    assert {trace.name_of(row) for row in range(len(trace))} >= {"0F0", "1W3", "pp: 0F0 from rank 0"}


def test_perfetto_holds_the_names_and_an_unknown_end_is_refused(tmp_path):
    path = tmp_path / "step.pftrace"
    write_timeline([*spans(), Span(0, "host", 0.0, 1e-3, "launch")], path)
    assert all(name in path.read_bytes() for name in (b"0F0", b"device 1", b"launch"))
    with pytest.raises(SpecError, match=r"ends in \.json"):
        write_timeline(spans(), Path("step.txt"))


@pytest.mark.parametrize("span", [Span(0, "gpu", 0.0, 1.0, "x"), Span(0, "tp", 1.0, 0.5, "x")])
def test_a_span_that_cannot_be_is_refused(span):
    with pytest.raises(SpecError, match="no span ends before it starts"):
        trace_of_spans([span], "bad")
