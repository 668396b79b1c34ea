"""Timelines for viewers keep the rules of their formats: what a slice needs, how slices nest, names and flows."""

import json
from collections import Counter, defaultdict

import pytest
from benchmarks._trace_files_json import kineto
from benchmarks._trace_work import planned

from nearpeak.core.systems.system_timeline import LANES, Span
from nearpeak.systems.timeline_trace import trace_of_spans
from nearpeak.systems.training.pipeline_executor import StageTimes, pipeline_step
from nearpeak.systems.training.schedules import schedule_of
from nearpeak.traces import NO_ROW, read_trace
from nearpeak.traces.export.chrome_trace import write_chrome
from nearpeak.traces.export.perfetto_trace import write_perfetto
from nearpeak.traces.reading.wire_format import fields

BEGIN, END, INSTANT = 1, 2, 3
"""Types of a track event (google/perfetto, protos/perfetto/trace/track_event/track_event.proto, TrackEvent.Type)."""


def step_spans():
    """Spans of a pipeline, and of the host and all lanes of one more rank, some inside and some across others."""
    step = pipeline_step(schedule_of("dualpipe", 4, 8), StageTimes.equal(4, 1e-3, 2e-3, 1e-3), 1e-4, has_spans=True)
    lanes = [Span(9, lane, 1e-3 * place, 1e-3 * place + 4e-3, lane) for place, lane in enumerate(LANES)]
    across = [Span(9, "host", 5e-3, 8e-3, "inner"), Span(9, "host", 7e-3, 12e-3, "across"), Span(9, "dp", 0, 0, "now")]
    return [*step.spans, *lanes, *across]


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """A predicted timeline and a profile with calls that launch kernels."""
    path = tmp_path_factory.mktemp("profile") / "t.json"
    kineto(path, planned(5))
    return {"timeline": trace_of_spans(step_spans(), "step"), "profile": read_trace(path)}


def nests(slices):
    """Whether slices (start, end) are disjoint or inside each other."""
    ends = []
    for start, end in sorted(slices, key=lambda part: (part[0], -part[1])):
        while ends and ends[-1] <= start:
            ends.pop()
        if ends and end > ends[-1]:
            return False
        ends.append(end)
    return True


@pytest.mark.parametrize("name", ["timeline", "profile"])
def test_chrome_events_have_what_the_format_asks_for_and_nest_on_each_track(name, traces, tmp_path):
    write_chrome(traces[name], tmp_path / "out.json")
    data = json.loads((tmp_path / "out.json").read_text("utf-8"))
    events, tracks = data["traceEvents"], defaultdict(list)
    assert data["displayTimeUnit"] in ("ms", "ns")
    assert len(events) == len(traces[name])
    for event in events:
        assert {"name", "ph", "ts", "pid", "tid"} <= event.keys()
        assert event["ph"] in ("X", "i", "C")
        assert isinstance(event["ts"], float)
        if event["ph"] == "X":
            assert event["dur"] >= 0
            start = round(event["ts"] * 1000)
            tracks[event["pid"], event["tid"]].append((start, start + round(event["dur"] * 1000)))
    assert all(map(nests, tracks.values()))
    assert all(isinstance(lane, int) or lane for track in tracks for lane in track), "a text is the name that is shown"


def perfetto_packets(path):
    """Yield the packets of a file as fields by number."""
    for number, _, packet in fields(memoryview(path.read_bytes())):
        assert number == 1, "a trace is a list of packets"
        yield [(field, value) for field, _, value in fields(packet)]


@pytest.mark.parametrize("name", ["timeline", "profile"])
def test_perfetto_tracks_are_named_before_use_and_hold_the_slices(name, traces, tmp_path):
    trace = traces[name]
    write_perfetto(trace, tmp_path / "out.pftrace")
    names, parents, open_now, slices, last_ns = {}, {}, defaultdict(list), Counter(), 0
    for packet in perfetto_packets(tmp_path / "out.pftrace"):
        parts = dict(packet)
        assert parts[10] == 1, "one sequence"
        if 60 in parts:
            track = {field: value for field, _, value in fields(parts[60])}
            assert track[1] not in names
            names[track[1]], parents[track[1]] = bytes(track[2]).decode(), track.get(5)
            continue
        event = {field: value for field, _, value in fields(parts[11])}
        assert event[11] in names
        assert parts[8] >= last_ns, "packets are in order of time"
        last_ns = parts[8]
        if event[9] == END:
            begin_ns, text = open_now[event[11]].pop()
            slices[text, last_ns - begin_ns] += 1
        elif event[9] == BEGIN:
            open_now[event[11]].append((last_ns, bytes(event[23]).decode()))
        else:
            assert event[9] == INSTANT
            slices[bytes(event[23]).decode(), 0] += 1
    assert not any(open_now.values())
    assert slices == Counter((trace.name_of(row), int(trace.duration_ns[row])) for row in range(len(trace)))
    assert all(names.values())
    assert {parent for parent in parents.values() if parent is not None} <= names.keys()


def test_perfetto_flows_join_a_call_with_the_work_that_it_launches(traces, tmp_path):
    trace = traces["profile"]
    write_perfetto(trace, tmp_path / "out.pftrace")
    flows = Counter(
        bytes(value) for packet in perfetto_packets(tmp_path / "out.pftrace")
        for number, event in packet if number == 11 for field, _, value in fields(event) if field == 47
    )  # fmt: skip
    launched = Counter(int(row) for row in trace.launch if row != NO_ROW)
    assert {int.from_bytes(flow, "little") - 1: count - 1 for flow, count in flows.items()} == dict(launched)
    assert min(flows.values()) == 2
