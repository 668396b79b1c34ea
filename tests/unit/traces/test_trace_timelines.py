"""Timelines obey their laws; steps, the critical path, ranks and exports of traces that are known."""

import random
from dataclasses import replace

import numpy as np
import pytest
from benchmarks._timelines import broken_laws, drawn
from benchmarks._trace_files_json import kineto
from benchmarks._trace_work import planned

from nearpeak.core.traces.timeline import Idle
from nearpeak.core.traces.trace import EventKind, TraceHeader
from nearpeak.errors import SpecError
from nearpeak.traces import MISSING, NO_ROW, read_trace
from nearpeak.traces.export.chrome_trace import tracks_of, write_chrome
from nearpeak.traces.export.parquet_trace import write_parquet
from nearpeak.traces.export.perfetto_trace import write_perfetto
from nearpeak.traces.reading.table_rows import EventRows
from nearpeak.traces.timeline.critical_path import critical_path
from nearpeak.traces.timeline.device_time import timelines
from nearpeak.traces.timeline.hierarchy import forward_of, modules_of, time_by
from nearpeak.traces.timeline.ranks import skew_of
from nearpeak.traces.timeline.trace_steps import steps_of


def trace_of(*events, rank=None):
    """A trace of (kind, name, start, end, {column: value})."""
    rows = EventRows()
    for kind, name, start, end, given in events:
        dense = {
            key: np.array([given[key]])
            for key in ("process", "thread", "device", "stream", "correlation")
            if key in given
        }
        rare = {key: np.array([given[key]]) for key in ("external", "sequence", "forward_thread") if key in given}
        rows.add(kind, [name], np.array([start]), np.array([end]), rare=rare, **dense)
    return rows.trace(TraceHeader(format="made", rank=rank))


HOST = {"process": 1, "thread": 1}
GPU = {"device": 0, "stream": 7}


def call(start, end, number, name="cudaLaunchKernel"):
    return (EventKind.HOST_API, name, start, end, {**HOST, "correlation": number})


def kernel(start, end, number, name="k", **more):
    return (EventKind.KERNEL, name, start, end, {**GPU, "correlation": number, **more})


def test_random_timelines_obey_the_laws():
    for seed in range(120):
        draw = random.Random(seed)
        assert broken_laws(drawn(draw), draw) == [], seed


def test_a_gap_is_split_at_the_return_of_the_call_and_by_what_the_host_did():
    trace = trace_of(
        call(0, 5, 1),
        kernel(5, 10, 1),
        (EventKind.HOST_API, "cudaStreamSynchronize", 8, 40, HOST),
        (EventKind.HOST_OP, "aten::mm", 45, 90, HOST),
        call(60, 70, 2),
        kernel(80, 100, 2),
    )
    one = timelines(trace)[0]
    assert one.idle_by_cause_ns == {
        Idle.QUEUE: 10,
        Idle.SYNC: 30,
        Idle.LAUNCH: 10,
        Idle.FRAMEWORK: 15,
        Idle.HOST_OTHER: 5,
    }
    assert one.queue_delay_ns == 12


def test_a_window_clips_what_it_cuts_and_is_the_span():
    trace = trace_of(kernel(0, 10, 1), kernel(20, 30, 2))
    one = timelines(trace, window_ns=(5, 25))[0]
    assert (one.span_ns, one.compute_ns, one.idle_by_cause_ns) == (20, 10, {Idle.UNKNOWN: 10})


def test_devices_are_never_merged():
    trace = trace_of(kernel(0, 10, 1), kernel(5, 25, 2, device=1))
    assert [(one.device, one.busy_ns) for one in timelines(trace)] == [(0, 10), (1, 20)]


def test_marked_steps_leave_the_long_first_ones_out():
    marks = [
        (EventKind.HOST_RANGE, f"ProfilerStep#{n}", start, start + length, HOST)
        for n, start, length in ((4, 0, 500), (5, 500, 100), (6, 600, 104), (7, 704, 98))
    ]
    found = steps_of(trace_of(*marks))
    assert (found.how, [one.index for one in found.steady]) == ("marker", [5, 6, 7])


def test_steps_without_marks_are_what_repeats():
    events = []
    for step in range(5):
        base = step * 1_000
        events += [
            (EventKind.HOST_OP, name, base + place * 100, base + place * 100 + 50, HOST)
            for place, name in enumerate(("data", "mm", "relu", "mm", "relu"))
        ]
    found = steps_of(trace_of(*events))
    assert (found.how, len(found.steps), found.steps[0].name) == ("operator", 5, "data")
    assert steps_of(trace_of(kernel(0, 1, 1))).how == "none"


def test_the_critical_path_goes_through_what_happened_last():
    trace = trace_of(
        call(0, 10, 1),
        kernel(15, 100, 1),
        call(10, 20, 2),
        kernel(100, 200, 2),
        (EventKind.HOST_API, "cudaDeviceSynchronize", 30, 210, HOST),
        call(220, 230, 3),
        kernel(235, 240, 3),
    )
    path = critical_path(trace)
    assert path.time_by_what_ns == {"kernel": 85 + 100 + 5, "sync": 10, "host": 20, "queue": 5}
    assert sum(path.time_by_what_ns.values()) == 240 - 15
    assert all(one.end_ns == two.start_ns for one, two in zip(path.parts, path.parts[1:], strict=False))


def test_work_belongs_to_its_operator_and_backward_work_to_its_module():
    trace = trace_of(
        (EventKind.HOST_FRAME, "nn.Module: Linear_0", 0, 100, HOST),
        (EventKind.HOST_OP, "aten::mm", 10, 50, {**HOST, "sequence": 9}),
        call(20, 30, 1),
        kernel(40, 60, 1),
        (EventKind.HOST_OP, "MmBackward", 200, 300, {"process": 1, "thread": 2, "sequence": 9, "forward_thread": 1}),
        (EventKind.HOST_API, "cudaLaunchKernel", 210, 220, {"process": 1, "thread": 2, "correlation": 2}),
        kernel(230, 260, 2),
    )
    rows = trace.device_rows()
    assert [trace.name_of(row) for row in modules_of(trace, rows)] == ["nn.Module: Linear_0"] * 2
    assert int((forward_of(trace) != NO_ROW).sum()) == 1
    assert time_by(trace, rows, modules_of(trace, rows)) == {"nn.Module: Linear_0": 50}


def ranked(rank, late, offset=0):
    events = []
    for step in range(6):
        begin = step * 1_000 + (300 if late else 0) + offset
        events.append(kernel(begin, step * 1_000 + 400 + offset, step, name="ncclDevKernel_AllReduce"))
    return trace_of(*events, rank=rank)


def test_the_rank_that_arrives_last_is_named_whatever_its_clock_says():
    found = skew_of([ranked(0, False), ranked(1, True, offset=77_000), ranked(2, False)])
    assert (found.straggler, found.collective_count, found.spread_ns) == (1, 6, 300)
    assert [one.offset_ns for one in found.ranks] == [0, -77_000, 0]
    assert [one.wait_ns for one in found.ranks] == [1_800, 0, 1_800]
    assert [one.transfer_ns for one in found.ranks] == [600, 600, 600]


def test_equal_ranks_have_no_straggler_and_one_rank_no_skew():
    assert skew_of([ranked(0, False), ranked(1, False)]).straggler is None
    with pytest.raises(SpecError, match="one trace has no skew"):
        skew_of([ranked(0, False)])
    with pytest.raises(SpecError, match="two traces are of rank 0"):
        skew_of([ranked(0, False), ranked(0, True)])


def test_chrome_json_reads_back_to_the_same_events(tmp_path):
    kineto(tmp_path / "t.json", planned(5))
    trace = read_trace(tmp_path / "t.json")
    write_chrome(trace, tmp_path / "back.json")
    back = read_trace(tmp_path / "back.json")
    assert back.header.format == "chrome_json"
    assert [back.event(row) for row in range(len(back))] == [trace.event(row) for row in range(len(trace))]


def test_slices_of_one_track_nest():
    draw = random.Random(1)
    events = [
        kernel(start, start + draw.randrange(1, 30), None if start % 2 else start, stream=start % 3)
        for start in range(0, 200, 3)
    ]
    trace = trace_of(
        *[
            (kind, name, start, end, {key: value for key, value in given.items() if value is not None})
            for kind, name, start, end, given in events
        ]
    )
    tracks = tracks_of(trace, np.arange(len(trace)))
    for one in range(len(trace)):
        for two in range(one + 1, len(trace)):
            if (tracks[one], trace.stream[one]) == (tracks[two], trace.stream[two]) and trace.start_ns[
                two
            ] < trace.end_ns[one]:
                assert trace.end_ns[two] <= trace.end_ns[one]


def fields_of(data):
    """The fields of a protocol buffer message: (number, value), bytes of messages not looked into."""
    found, place = [], 0

    def varint():
        nonlocal place
        value = shift = 0
        while True:
            byte = data[place]
            place += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while place < len(data):
        key = varint()
        size = {0: None, 1: 8, 2: -1}[key & 7]
        if size is None:
            found.append((key >> 3, varint()))
            continue
        length = varint() if size < 0 else size
        found.append((key >> 3, data[place : place + length]))
        place += length
    return found


def test_perfetto_slices_begin_and_end_in_order_on_every_track(tmp_path):
    kineto(tmp_path / "t.json", planned(5))
    trace = read_trace(tmp_path / "t.json")
    write_perfetto(trace, tmp_path / "t.pftrace")
    open_now, begun, last = {}, 0, 0
    for number, packet in fields_of((tmp_path / "t.pftrace").read_bytes()):
        assert number == 1
        parts = dict(fields_of(packet))
        if 11 not in parts:
            continue
        event = dict(fields_of(parts[11]))
        assert parts[8] >= last
        last = parts[8]
        stack = open_now.setdefault(event[11], [])
        if event[9] == 1:
            stack.append(event[23].decode())
            begun += 1
        elif event[9] == 2:
            stack.pop()
    assert begun == int((trace.duration_ns > 0).sum())
    assert not any(open_now.values())


def test_parquet_holds_every_event_with_nulls_for_what_is_absent(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    kineto(tmp_path / "t.json", planned(5))
    trace = read_trace(tmp_path / "t.json")
    write_parquet(trace, tmp_path / "t.parquet")
    count, total, devices, grids = duckdb.sql(
        f"select count(*), sum(end_ns - start_ns), count(device), count(grid_x) from '{tmp_path / 't.parquet'}'"
    ).fetchall()[0]
    assert (count, total) == (len(trace), int(trace.duration_ns.sum()))
    assert devices == int((trace.device != MISSING).sum())
    assert grids == len(trace.rows(EventKind.KERNEL))


def test_a_header_is_a_value():
    header = TraceHeader(format="made")
    assert replace(header, rank=3).rank == 3


def test_where_no_call_was_recorded_the_path_does_not_blame_the_queue():
    work = (kernel(100, 200, 1), kernel(300, 400, 2))
    assert critical_path(trace_of(*work)).time_by_what_ns == {"kernel": 200, "not recorded": 100}
    calls = (call(0, 10, 1), call(20, 30, 2))
    assert critical_path(trace_of(*work, *calls)).time_by_what_ns["queue"] == 100
