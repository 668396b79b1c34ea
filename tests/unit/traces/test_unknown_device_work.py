"""Work of devices that no rule knows is read as work where it names a device and a stream, and is named."""

import sqlite3

import pytest
from benchmarks._trace_files import WRITERS, planned
from tests.unit.traces.executed.small_traces import complete, mark, steps_of_kernels, written

from nearpeak.api.trace_analysis import analyze_trace
from nearpeak.core.traces.trace import READ_AS_WORK, EventKind
from nearpeak.traces import read_trace


def stepped(category, **place):
    """Four steps of five operators, each with work of a category of 160 of 200 us."""
    events = []
    for step in range(4):
        events.append(mark(step, step * 1000, 999))
        for number in range(5):
            at = step * 1000 + number * 200
            events.append(complete("cpu_op", "aten::mm", at, 8, **{"Input Dims": [[64, 64], [64, 64]]}))
            events.append(complete(category, "mm_fused", at + 12, 160, 0, 7, **place))
    return events


@pytest.mark.parametrize("category", ["mtia_ccp_events", "hpu_op", "some_new_thing"])
def test_an_unknown_category_with_device_and_stream_is_device_work_and_named(tmp_path, category):
    report = analyze_trace(written(tmp_path / "t.json", stepped(category, device=9, stream=1), devices=()))
    assert report.executed.timeline.compute_ns == 20 * 160_000
    assert not report.executed.cpu_alone
    assert report.verdict.startswith("no conclusion")
    assert any(f"category {category!r}, {READ_AS_WORK}" in note for note in report.executed.notes)


def test_an_unknown_category_that_names_no_stream_leaves_nothing_to_conclude_of_the_cpu(tmp_path):
    report = analyze_trace(written(tmp_path / "t.json", stepped("hpu_op"), devices=()))
    assert report.findings == ()
    assert report.verdict.startswith("no conclusion")
    reasons = {abstention.id: abstention.reason for abstention in report.abstentions}
    assert "category 'hpu_op'" in reasons["idle.framework"]


def test_categories_of_waits_and_ranges_are_no_work(tmp_path):
    trace = read_trace(written(tmp_path / "t.json", stepped("new_sync", device=9, stream=1)))
    assert not len(trace.device_rows())


def test_other_writers_of_chrome_events_are_read_alike(tmp_path):
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [{"ph": "X", "cat": "npu", "name": "Memcpy in", "pid": 1, "tid": 1, "ts": 5, '
                    '"dur": 3, "args": {"device": 0, "stream": 1}}, {"ph": "X", "cat": "mine", "name": "r", "pid": 1, '
                    '"tid": 1, "ts": 5, "dur": 3}]}')  # fmt: skip
    assert sorted(read_trace(path).kind.tolist()) == [EventKind.HOST_RANGE, EventKind.MEMCPY]


def test_a_table_of_nsight_systems_that_no_rule_knows_is_read_where_it_names_a_stream(tmp_path):
    suffix, write = WRITERS["nsys_sqlite"]
    path = tmp_path / f"t{suffix}"
    write(path, planned(3, 5))
    before = len(read_trace(path).device_rows())
    with sqlite3.connect(path) as base:
        base.execute("create table CUPTI_ACTIVITY_KIND_CDP_KERNEL (start, end, deviceId, streamId)")
        base.execute("insert into CUPTI_ACTIVITY_KIND_CDP_KERNEL values (1428625731896179, 1428625731896999, 0, 99)")
    trace = read_trace(path)
    assert len(trace.device_rows()) == before + 1
    assert any(loss.kind.endswith(READ_AS_WORK) for loss in trace.header.losses)


def test_calls_of_an_unknown_driver_are_no_work_of_the_device_whose_stream_they_name(tmp_path):
    events = steps_of_kernels(2, 10, {0: 50}, 60)
    events += [complete("hip_driver_api", "hipModuleLaunchKernel", 100, 40, device=0, stream=7)]
    assert len(read_trace(written(tmp_path / "t.json", events)).device_rows()) == 20
