"""Streams of several processes and contexts of one device stay apart, whatever their numbers."""

import json

import numpy as np
import pytest

from nearpeak.core.traces.executed_run import NOTHING
from nearpeak.core.traces.trace import EventKind, SyncKind, TraceHeader
from nearpeak.traces import MISSING, NO_ROW
from nearpeak.traces.executed.executed_steps import executed_of
from nearpeak.traces.export.chrome_trace import write_chrome
from nearpeak.traces.export.perfetto_trace import write_perfetto
from nearpeak.traces.reading.table_rows import EventRows
from nearpeak.traces.timeline.critical_path import critical_path
from nearpeak.traces.timeline.device_time import timelines
from nearpeak.traces.timeline.lanes import lanes_of

_RARE = ("context", "sync", "wait_stream")


def trace_of(*events):
    """A trace of (kind, start, end, {column: value})."""
    rows = EventRows()
    for kind, start, end, given in events:
        whole = {name: np.array([value]) for name, value in given.items()}
        rare = {name: whole.pop(name) for name in _RARE if name in whole}
        rows.add(kind, [f"{kind.name} {start}"], np.array([start]), np.array([end]), rare=rare, **whole)
    return rows.trace(TraceHeader(format="made"))


def launched(process, number, at, start, end, **more):
    """A call of a process and its kernel on stream 7, whose process only the call tells."""
    call = (EventKind.HOST_API, at, at + 1, {"process": process, "thread": process, "correlation": number})
    return call, (EventKind.KERNEL, start, end, {"device": 0, "stream": 7, "correlation": number, **more})


TWO = (*launched(100, 1, 0, 10, 50), *launched(200, 2, 1, 20, 60), *launched(100, 3, 5, 50, 70))
"""Two processes whose streams have one number, side by side."""


def test_the_process_of_the_call_tells_streams_of_one_number_apart():
    trace = trace_of(*TWO)
    lanes = lanes_of(trace, trace.device_rows())
    assert lanes.labels == ("stream 7 of process 100", "stream 7 of process 200")
    assert lanes.numbers.tolist() == [0, 1, 0]
    assert timelines(trace)[0].stream_busy_ns == {"stream 7 of process 100": 60, "stream 7 of process 200": 40}


def test_contexts_of_one_process_and_devices_are_apart_and_a_lone_stream_needs_no_more_than_its_number():
    trace = trace_of(*launched(1, 1, 0, 10, 20, context=1), *launched(1, 2, 1, 12, 30, context=2))
    assert lanes_of(trace, trace.device_rows()).labels == ("stream 7 of context 1", "stream 7 of context 2")
    trace = trace_of(*launched(1, 1, 0, 10, 20, device=1), *launched(1, 2, 1, 12, 30))
    lanes = lanes_of(trace, trace.device_rows())
    assert (lanes.labels, lanes.numbers.tolist()) == (("stream 7", "stream 7"), [1, 0])


def test_work_without_a_call_joins_its_stream_where_there_is_no_choice_and_no_other_where_there_is():
    lone = (EventKind.KERNEL, 90, 95, {"device": 0, "stream": 7})
    trace = trace_of(*launched(100, 1, 0, 10, 50), lone)
    assert lanes_of(trace, trace.device_rows()).numbers.tolist() == [0, 0]
    trace = trace_of(*TWO, lone)
    lanes = lanes_of(trace, trace.device_rows())
    assert lanes.keys[lanes.of(int(trace.device_rows()[-1]))] == (0, 7, MISSING, MISSING)
    assert len(lanes.labels) == 3


def test_no_events_have_no_lanes():
    trace = trace_of(TWO[0])
    assert lanes_of(trace, trace.device_rows()).labels == ()


def test_a_stream_waits_for_the_stream_of_its_own_process():
    wait = (EventKind.SYNC, 52, 53, {"device": 0, "stream": 9, "process": 200, "sync": int(SyncKind.STREAM_WAIT),
                                     "wait_stream": 7})  # fmt: skip
    trace = trace_of(*TWO, wait)
    lanes = lanes_of(trace, trace.rows(EventKind.KERNEL, EventKind.SYNC))
    row = int(trace.rows(EventKind.SYNC)[0])
    assert lanes.keys[lanes.beside(row, 7)] == (0, 7, 200, MISSING)
    assert lanes.beside(row, 8) == NO_ROW


def test_the_critical_path_follows_the_stream_of_one_process():
    path = critical_path(trace_of(*TWO))
    assert [(part.start_ns, part.end_ns) for part in path.parts if part.what == "kernel"] == [(10, 50), (50, 70)]


def test_queues_and_picture_have_a_lane_for_each_process():
    executed = executed_of(trace_of(*TWO))
    works = [item for item in executed.items if item.event != NOTHING]
    assert len({item.lane for item in works}) == 2
    drawn = {one.row for one in executed.slices if executed.rows[one.row].startswith("stream")}
    assert [executed.rows[row] for row in sorted(drawn)] == ["stream 7 of process 100", "stream 7 of process 200"]
    assert min(item.lag_ns for item in works) >= 0  # nothing runs before its stream is free


@pytest.mark.parametrize("write", [write_chrome, write_perfetto])
def test_exports_draw_a_track_for_each(write, tmp_path):
    write(trace_of(*TWO), tmp_path / "out")
    data = (tmp_path / "out").read_bytes()
    assert b"stream 7 of process 100" in data
    assert b"stream 7 of process 200" in data
    if write is write_chrome:
        names = {event["tid"] for event in json.loads(data)["traceEvents"] if event["cat"] == "kernel"}
        assert len(names) == 2
