"""Files of older and of other PyTorch profilers read as the usual ones do."""

import json

import pytest

from nearpeak.core.traces.trace import EventKind, SyncKind
from nearpeak.traces import MISSING, NO_ROW, read_trace
from nearpeak.traces.timeline.trace_steps import steps_of

BASE_US = 1_620_000_000_000_000


def complete(cat, name, ts, dur, pid=10, tid="10", **args):
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def written(folder, events):
    path = folder / "t.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    return read_trace(path)


def old_step(number):
    """What PyTorch 1.8 wrote: capital categories, whole microseconds, marks among the operators, two spellings."""
    at, own = BASE_US + number * 1000, number * 10
    return [
        complete("Operator", f"ProfilerStep#{number}", at, 990, **{"Device": 10, "External id": own + 1}),
        complete("Operator", "aten::mm", at + 10, 100, **{"External id": own + 2, "Input dims": [[8, 8], [8, 8]]}),
        complete("Runtime", "cudaLaunchKernel", at + 20, 10, **{"correlation": number + 1, "external id": own + 2}),
        {"ph": "s", "id": number, "pid": 10, "tid": "10", "ts": at + 20, "cat": "async", "name": "launch"},
        {"ph": "f", "id": number, "pid": 0, "tid": "stream 7", "ts": at + 40, "cat": "async", "name": "launch"},
        complete(
            "Kernel", "sgemm", at + 40, 200, 0, "stream 7", device=0, stream=7, correlation=number + 1,
            **{"external id": own + 2},
        ),
    ]  # fmt: skip


def test_marks_of_steps_that_older_files_call_operators_are_steps(tmp_path):
    trace = written(tmp_path, [event for number in range(4) for event in old_step(number)])
    found = steps_of(trace)
    assert found.how == "marker"
    assert [(one.index, one.end_ns - one.start_ns) for one in found.steps] == [(one, 990_000) for one in range(4)]
    assert {trace.name_of(row) for row in trace.rows(EventKind.HOST_OP)} == {"aten::mm"}


def test_two_spellings_of_one_field_are_one_field(tmp_path):
    trace = written(tmp_path, old_step(0))
    external = {EventKind(trace.kind[row]): trace.at("external", row) for row in range(len(trace))}
    assert external == {
        EventKind.HOST_RANGE: 1, EventKind.HOST_OP: 2, EventKind.HOST_API: 2, EventKind.KERNEL: 2,
    }  # fmt: skip
    assert not [loss for loss in trace.header.losses if loss.what == "unknown"]


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("Context Sync", SyncKind.CONTEXT),
        ("Stream Sync", SyncKind.STREAM),
        ("Event Sync", SyncKind.EVENT),
        ("Stream Wait Event", SyncKind.STREAM_WAIT),
        ("Something New", SyncKind.UNKNOWN),
    ],
)
def test_what_is_waited_for_is_read_from_its_field_where_the_name_is_another(kind, wanted, tmp_path):
    event = complete("cuda_sync", "cudaWait", 5, 2, 0, 7, cuda_sync_kind=kind, stream=-1, device=0)
    named = complete("cuda_sync", "Stream Sync", 9, 2, 0, 7, stream=7, device=0)
    trace = written(tmp_path, [event, named])
    assert [trace.at("sync", row) for row in trace.rows(EventKind.SYNC)] == [wanted, SyncKind.STREAM]


@pytest.mark.parametrize("category", ["cuda_driver", "hip_driver", "xpu_runtime", "privateuse1_runtime"])
def test_calls_of_every_runtime_launch_their_work(category, tmp_path):
    events = [
        complete(category, "launch", 10, 2, correlation=3),
        complete("kernel", "k", 20.5, 1.25, 0, 0, device=0, stream=0, correlation=3),
    ]
    trace = written(tmp_path, events)
    assert (int(trace.launch[1]), int(trace.start_ns[1]), int(trace.end_ns[1])) == (0, 20_500, 21_750)
    assert (int(trace.stream[1]), int(trace.process[1])) == (0, MISSING)


def of_process(pid, device, number, arrows):
    """A call and its kernel, as one process of several writes them."""
    at = 10 * number
    call = complete("cuda_runtime", "hipLaunchKernel", at, 2, pid, pid, correlation=number)
    work = complete("kernel", f"k{pid}", at + 5, 3, device, 0, device=device, stream=0, correlation=number)
    begin = {"ph": "s", "id": number, "pid": pid, "tid": pid, "ts": at, "cat": "ac2g", "name": "ac2g"}
    end = {"ph": "f", "id": number, "pid": device, "tid": 0, "ts": at + 5, "cat": "ac2g", "name": "ac2g"}
    return [call, work, *([begin, end] if arrows else [])]


@pytest.mark.parametrize("arrows", [False, True])
def test_work_is_given_to_no_call_where_two_processes_of_a_file_could_have_enqueued_it(arrows, tmp_path):
    events = [*of_process(100, 0, 7, arrows), *of_process(200, 1, 7, arrows), *of_process(200, 1, 8, arrows)]
    trace = written(tmp_path, events)
    calls = {
        int(trace.correlation[row]): trace.launch[row] != NO_ROW for row in trace.rows(EventKind.KERNEL)
    }  # fmt: skip
    assert calls == {7: False, 8: True}
    unlinked = [one.record_count for one in trace.header.losses if one.what == "unlinked"]
    assert unlinked == [2]
