"""Steps are sampled over the whole trace, all step times come from the marks, and what was left out is said."""

import dataclasses

import pytest
from tests.unit.traces.executed.small_traces import steps_of_kernels, written

from nearpeak.api.trace_analysis import analyze_trace
from nearpeak.core.traces.executed_run import CUT
from nearpeak.traces.executed import step_sample
from nearpeak.traces.executed.queue_replay import lead_ns, replayed_ns
from nearpeak.traces.finding_scene import Scene
from nearpeak.traces.findings import graph_not_used


def uneven(step_count=8, slow=3, kernel_count=20):
    """Steps of kernels, one of which takes twice as long as the others."""
    events = steps_of_kernels(step_count, kernel_count, {0: 20}, 30)
    begin = next(event for event in events if event["name"] == f"ProfilerStep#{slow}")["ts"]
    length = kernel_count * 30
    for event in events:
        if event["ts"] >= begin + length:
            event["ts"] += length
        elif event["ts"] >= begin and event["cat"] != "user_annotation":
            event["ts"] += event["ts"] - begin
    next(event for event in events if event["name"] == f"ProfilerStep#{slow}")["dur"] += length
    return events


@pytest.fixture
def sampled(tmp_path, monkeypatch):
    monkeypatch.setattr(step_sample, "MOST_ITEMS", 60)
    return analyze_trace(written(tmp_path / "t.json", uneven()))


def test_all_step_times_are_known_though_some_are_not_looked_into(sampled):
    executed = sampled.executed
    assert len(executed.step_ns) == 8
    assert executed.step_count == 3
    assert max(executed.step_ns) >= 1.9 * min(executed.step_ns)
    assert executed.mean_step_s == pytest.approx(sum(executed.step_ns) * 1e-9 / 8)
    assert any("3 of 8 steps are looked into" in note for note in executed.notes)
    assert any("ProfilerStep#3 takes" in note for note in executed.notes)


def test_sampled_steps_lie_apart_and_their_replay_is_what_was_recorded(sampled):
    executed = sampled.executed
    assert sum(item.kind == CUT for item in executed.items) == 2
    replayed = replayed_ns(executed.items, executed.latency_ns) - lead_ns(executed.items)
    assert replayed == pytest.approx(executed.window_ns, rel=0.02)
    line = executed.timeline
    assert line.busy_ns + line.idle_ns == line.span_ns
    assert sum(line.idle_by_cause_ns.values()) == line.idle_ns
    assert line.kernel_count == 60
    assert sum(term.time_s for term in sampled.terms) == pytest.approx(sampled.step_s)


def test_a_sample_answers_as_the_whole_trace_does(tmp_path, monkeypatch):
    path = written(tmp_path / "t.json", steps_of_kernels(9, 20, {0: 20}, 60))
    whole = analyze_trace(path)
    monkeypatch.setattr(step_sample, "MOST_ITEMS", 60)
    part = analyze_trace(path)
    assert [finding.id for finding in part.findings] == [finding.id for finding in whole.findings]
    assert part.findings[0].gain_s == pytest.approx(whole.findings[0].gain_s, rel=0.1)


def test_nobody_is_asked_to_record_more_where_steps_were_left_out(sampled):
    scene = Scene(dataclasses.replace(sampled.executed, step_count=2))
    assert "8 were recorded" in scene.more_steps
    assert "record" not in scene.more_steps.replace("recorded", "")
    assert graph_not_used.ID not in {item.id for item in sampled.abstentions if "record more" in item.reason}


def test_a_step_of_usual_length_stands_for_each_part_of_the_trace():
    assert step_sample._chosen(__import__("numpy").array([9, 1, 1, 1, 9, 1]), [30_000] * 6) == [1]
