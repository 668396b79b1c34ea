"""Times that cannot be: the good part of a trace is kept, the bad one counted and named."""

import re

import pytest
from tests.unit.traces.executed.small_traces import BASE_US, complete, launched, mark, steps_of_kernels, written

from nearpeak.errors import SpecError
from nearpeak.reports.document.terminal import to_terminal
from nearpeak.reports.trace.steps_headline import headline_of
from nearpeak.reports.trace.steps_report import document_of
from nearpeak.targets import target_of
from nearpeak.traces import NO_ROW, read_trace
from nearpeak.traces.executed.executed_steps import executed_of
from nearpeak.traces.findings import report_of
from nearpeak.traces.timeline.device_time import timelines


def losses_of(trace, what):
    return {loss.kind: loss.record_count for loss in trace.header.losses if loss.what == what}


@pytest.mark.parametrize("too_long_us", [700, 50_000, 1_600_000])
def test_a_kernel_that_runs_over_later_ones_of_its_stream_is_cut_where_the_next_begins(tmp_path, too_long_us):
    events = steps_of_kernels(3, 10, {0: 50}, 60)
    next(event for event in events if event["cat"] == "kernel")["dur"] = too_long_us
    trace = read_trace(written(tmp_path / "t.json", events))
    assert [kind for kind in losses_of(trace, "repaired") if "later ones of stream 7" in kind]
    line = timelines(trace)[0]
    assert line.kernel_sum_ns == 29 * 50_000 + 60_000
    assert line.span_ns == (29 * 60 + 50) * 1000


def test_the_last_kernel_of_a_stream_ends_with_the_wait_for_the_device(tmp_path):
    events = [*steps_of_kernels(1, 10, {0: 50}, 60), complete("cuda_runtime", "cudaDeviceSynchronize", 590, 30)]
    [event for event in events if event["cat"] == "kernel"][-1]["dur"] = 1_600_000
    trace = read_trace(written(tmp_path / "t.json", events))
    assert [kind for kind in losses_of(trace, "repaired") if "waited" in kind]
    assert timelines(trace)[0].span_ns == (620 - 12) * 1000


def test_several_wrong_kernels_of_a_short_stream_are_all_cut(tmp_path):
    events = steps_of_kernels(1, 10, {0: 50}, 60)
    for event in [event for event in events if event["cat"] == "kernel"][:4]:
        event["dur"] = 2_000_000
    trace = read_trace(written(tmp_path / "t.json", events))
    assert sum(losses_of(trace, "repaired").values()) == 4
    assert timelines(trace)[0].busy_ns == (4 * 60 + 6 * 50) * 1000


def test_kernels_of_one_graph_and_small_overlaps_stay_as_they_are(tmp_path):
    graph = complete("cuda_runtime", "cudaGraphLaunch", 0, 5, correlation=1)
    nodes = [complete("kernel", "k", at, dur, 0, 7, device=0, stream=7, correlation=1)
             for at, dur in ((10, 900), (20, 100), (150, 100))]  # fmt: skip
    early = [*launched("a", 2000, 50, 2), *launched("b", 2047, 50, 3)]
    trace = read_trace(written(tmp_path / "t.json", [graph, *nodes, *early]))
    assert not losses_of(trace, "repaired")
    assert timelines(trace)[0].kernel_sum_ns == (900 + 100 + 100 + 50 + 50) * 1000


def test_a_queue_without_order_keeps_its_times_and_says_so(tmp_path):
    events = [event for number in range(1, 21) for event in launched("k", number * 200, 350 - number % 2 * 250, number)]
    trace = read_trace(written(tmp_path / "t.json", events))
    assert not losses_of(trace, "repaired")
    assert sum(event["dur"] for event in events if event["cat"] == "kernel") * 1000 == timelines(trace)[0].kernel_sum_ns


@pytest.mark.parametrize("length_us", [0, 40])
@pytest.mark.parametrize("share", [0.3, 0.5, 0.8])
def test_events_that_were_never_timed_are_dropped_and_the_others_kept(tmp_path, share, length_us):
    events = steps_of_kernels(2, 10, {0: 50}, 60)
    kernels = [event for event in events if event["cat"] == "kernel"]
    bad = kernels[: round(share * len(kernels))]
    for event in bad:
        event["ts"], event["dur"] = 0, length_us
    trace = read_trace(written(tmp_path / "t.json", events))
    assert len(trace) == len(events) - len(bad)
    assert sum(losses_of(trace, "dropped").values()) == len(bad)
    assert any(f"dropped {len(bad)}" in note for note in executed_of(trace).notes)


def test_a_clock_that_was_set_to_zero_loses_nothing(tmp_path):
    events = [{**event, "ts": event["ts"] - BASE_US} for event in steps_of_kernels(1, 3, {0: 50}, 60)]
    events.append({**events[-1], "ts": 0, "dur": 0, "args": {"device": 0, "stream": 7}})
    assert len(read_trace(written(tmp_path / "t.json", events))) == len(events)


def test_a_file_whose_events_were_all_dropped_says_that_and_not_that_there_are_none(tmp_path):
    events = [{**event, "dur": -5} for event in steps_of_kernels(1, 3, {0: 50}, 60)]
    with pytest.raises(SpecError, match="dropped 7: event whose end is before its start"):
        executed_of(read_trace(written(tmp_path / "t.json", events)))


def test_work_that_starts_long_before_its_call_is_no_work_of_that_call(tmp_path):
    events = steps_of_kernels(2, 10, {0: 50}, 60)
    for event in events:
        if event["cat"] == "kernel":
            event["ts"] -= 5_000
    trace = read_trace(written(tmp_path / "t.json", events))
    assert (trace.launch[trace.device_rows()] == NO_ROW).all()
    assert "the clocks of host and device differ" in executed_of(trace).missing["links"]


def test_marks_that_cover_little_of_the_work_are_said_to(tmp_path):
    events = [event for event in steps_of_kernels(10, 10, {0: 50}, 60) if event["cat"] != "user_annotation"]
    notes = executed_of(read_trace(written(tmp_path / "t.json", [mark(0, 0, 599), *events]))).notes
    assert any(note.startswith("looked into: ") and "10% of its work" in note for note in notes)


@pytest.mark.parametrize("distance_us", [86_400_000_000, -86_400_000_000, 3_600_000_000])
def test_a_few_kernels_that_lie_far_from_all_others_are_left_out_and_named(tmp_path, distance_us):
    events = steps_of_kernels(3, 10, {0: 50}, 60)
    for event in [event for event in events if event["cat"] == "kernel"][3:5]:
        event["ts"] += distance_us
    trace = read_trace(written(tmp_path / "t.json", events))
    assert [count for kind, count in losses_of(trace, "dropped").items() if "ten minutes" in kind] == [2]
    assert timelines(trace)[0].kernel_sum_ns == 28 * 50_000


def test_a_second_window_of_a_trace_keeps_its_steps_however_late_it_begins(tmp_path):
    events = steps_of_kernels(10, 10, {0: 50}, 60)
    for event in events:
        if event["ts"] >= BASE_US + 8 * 600:
            event["ts"] += 1_200_000_000
    trace = read_trace(written(tmp_path / "t.json", events))
    assert losses_of(trace, "dropped") == {}
    assert timelines(trace)[0].kernel_sum_ns == 100 * 50_000


def test_a_device_whose_clock_is_a_day_late_keeps_its_work_and_no_step_takes_hours(tmp_path):
    events = steps_of_kernels(2, 10, {0: 50}, 60)
    for event in events:
        if event["cat"] == "kernel":
            event["ts"] += 86_400_000_000
    executed = executed_of(read_trace(written(tmp_path / "t.json", events)))
    assert "the clocks of host and device differ" in executed.missing["links"]
    assert max(executed.step_ns) < 10_000_000


def test_a_kernel_that_stands_twice_counts_once(tmp_path):
    events = steps_of_kernels(2, 10, {0: 50}, 60)
    events += [dict(event) for event in events if event["cat"] == "kernel"]
    trace = read_trace(written(tmp_path / "t.json", events))
    assert losses_of(trace, "dropped") == {"event of a device that stands in the file twice": 20}
    assert timelines(trace)[0].kernel_sum_ns == 20 * 50_000


def test_a_step_whose_mark_is_missing_makes_no_other_step_longer(tmp_path):
    events = steps_of_kernels(4, 10, {0: 50}, 60)
    marks = [event for event in events if event["cat"] == "user_annotation"]
    marks[2]["dur"] = -5
    lengths = executed_of(read_trace(written(tmp_path / "t.json", events))).step_ns
    assert max(lengths) < 1.1 * min(lengths)


def test_idle_time_after_launches_without_a_kernel_is_no_finding(tmp_path):
    events = steps_of_kernels(4, 5, {0: 90}, 100)
    kernels = [event for event in events if event["cat"] == "kernel"]
    for place in (2, 7, 8, 13):
        kernels[place]["dur"] = -3
    for name, kept in (("negative", events), ("absent", [e for e in events if e.get("dur") != -3])):
        executed = executed_of(read_trace(written(tmp_path / f"{name}.json", kept)))
        assert executed.missing["work"].startswith("4 of 20 launches have no kernel in the file")
        report = report_of(executed)
        assert report.verdict.startswith("no conclusion")
        assert not report.findings


def test_launches_that_the_device_had_not_come_to_or_that_a_graph_captures_are_no_loss(tmp_path):
    events = steps_of_kernels(4, 5, {0: 90}, 100)
    kernels = [event for event in events if event["cat"] == "kernel"]
    late = [event for event in events if event not in kernels[-3:]]
    captured = [event for event in events if event not in kernels[7:9]]
    captured.append(complete("cuda_runtime", "cudaStreamBeginCapture", 650, 1))
    for name, kept in (("late", late), ("captured", captured)):
        assert "work" not in executed_of(read_trace(written(tmp_path / f"{name}.json", kept))).missing


def test_device_events_without_length_are_not_called_absent(tmp_path):
    events = steps_of_kernels(2, 5, {0: 90}, 100)
    for event in events:
        if event["cat"] == "kernel":
            event["dur"] = 0
    with pytest.raises(SpecError, match="has 10 device events, all of length 0"):
        executed_of(read_trace(written(tmp_path / "t.json", events)))


def test_marks_without_length_end_the_step_before_them(tmp_path):
    events = steps_of_kernels(4, 5, {0: 90}, 100)
    for event in events:
        if event["cat"] == "user_annotation":
            event["dur"] = 0
    assert executed_of(read_trace(written(tmp_path / "t.json", events))).step_ns == (500_000,) * 3


def test_work_that_ends_long_after_its_marks_is_told_beside_them(tmp_path):
    events = steps_of_kernels(4, 5, {0: 90}, 100)
    for event in events:
        if event["cat"] == "kernel":
            event["ts"] += 5_000_000
    report = report_of(executed_of(read_trace(written(tmp_path / "t.json", events))))
    assert any(note.startswith("the last work of these steps ends 5 s after") for note in report.executed.notes)
    assert "by their marks) over 4 steps" in headline_of(report)


def test_operators_faster_than_their_bound_are_told(tmp_path):
    product = {"Input Dims": [[4096, 4096], [4096, 4096]], "Input type": ["c10::BFloat16"] * 2}
    events = []
    for number in range(1, 5):
        operator = complete("cpu_op", "aten::mm", number * 300 - 20, 20, **product, **{"Concrete Inputs": ["", ""]})
        events += [operator, *launched("gemm", number * 300, 200 if number < 3 else 20, number)]
    for name, said in (("all", [True]), ("slow", [])):
        kept = events if name == "all" else events[:6]
        executed = executed_of(read_trace(written(tmp_path / f"{name}.json", kept)), target=target_of("h100_sxm"))
        assert ["faster than the bound" in note for note in executed.notes if "faster" in note] == said


def test_calls_of_a_step_are_rounded_where_steps_differ(tmp_path):
    events = steps_of_kernels(3, 3, {0: 90}, 100)
    for event in [event for event in events if event["cat"] == "cuda_runtime"][:-1]:
        events.append(complete("cpu_op", "aten::mm", event["ts"] - BASE_US - 1, 8))
    report = report_of(executed_of(read_trace(written(tmp_path / "t.json", events))))
    assert re.search(r"aten::mm +2\.67 ", to_terminal(document_of(report)))
