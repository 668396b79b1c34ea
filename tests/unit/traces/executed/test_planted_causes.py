"""Traces with a planted cause, through files: the right finding first, its gain, silence without evidence."""

import dataclasses
import json

import pytest

pytest.importorskip("torch")
from benchmarks import _planted_traces as planted
from benchmarks.planted_traces import reported

from nearpeak.traces import read_trace
from nearpeak.traces.executed.executed_steps import executed_of
from nearpeak.traces.executed.queue_replay import replayed_ns

SEED = 77


@pytest.mark.parametrize("cause", planted.CAUSES)
def test_a_planted_cause_is_found_first_with_its_gain(cause, tmp_path):
    make, wanted, _ = planted.CAUSES[cause]
    program = make(SEED)
    report = reported(program, tmp_path / "trace.json")
    first = report.findings[0]
    truth_s = (planted.step_ns(program) - planted.step_ns(planted.cured(program))) * 1e-9
    assert first.id == wanted
    assert first.gain_s == pytest.approx(truth_s, rel=0.25)
    assert first.gain_low_s <= first.gain_s <= first.gain_high_s <= report.step_s * 1.0001
    assert any(figure.events for figure in first.evidence)
    assert first.falsifier


@pytest.mark.parametrize("cause", planted.CAUSES)
def test_without_its_evidence_a_cause_is_left_open_and_the_report_says_so(cause, tmp_path):
    make, wanted, evidence = planted.CAUSES[cause]
    report = reported(make(SEED), tmp_path / "trace.json", evidence)
    assert wanted not in {one.id for one in report.findings}
    assert wanted in {one.id for one in report.abstentions}


@pytest.mark.parametrize("seed", range(5))
def test_healthy_traces_are_called_healthy(seed, tmp_path):
    report = reported(planted.healthy(seed), tmp_path / "trace.json")
    assert report.findings == ()
    assert report.verdict.startswith("healthy")


@pytest.mark.parametrize("cause", ["host_sync", "exposed_comm", "overlap_missed", "pageable_copy"])
def test_the_replay_of_what_ran_takes_as_long_as_it_did_and_the_terms_add_up(cause, tmp_path):
    report = reported(planted.CAUSES[cause][0](SEED), tmp_path / "trace.json")
    executed = report.executed
    lead = max((item.device_ns for item in executed.items if item.kind == "backlog"), default=0)
    assert replayed_ns(executed.items, executed.latency_ns) - lead == pytest.approx(executed.window_ns, abs=2)
    assert report.shortfall is not None
    assert report.shortfall.residual_ns == 0
    line = executed.timeline
    assert sum(item.exclusive_ns for item in executed.items) == line.busy_ns
    assert sum(line.idle_by_cause_ns.values()) == line.idle_ns


def test_gains_that_take_the_same_time_away_are_not_added(tmp_path):
    report = reported(planted.tensor_creation(SEED), tmp_path / "trace.json")
    assert report.together_s <= min(report.step_s, sum(one.gain_s for one in report.findings) + 1e-12)


def test_every_event_of_the_evidence_exists(tmp_path):
    file = tmp_path / "trace.json"
    report = reported(planted.cast_storm(SEED), file)
    trace = read_trace(file)
    rows = [row for one in report.findings for figure in one.evidence for row in figure.events]
    assert rows
    assert all(0 <= row < len(trace) for row in rows)


def shifted(file, ns):
    whole = json.loads(file.read_text())
    for event in whole["traceEvents"]:
        event["ts"] += ns / 1000
    whole["traceEvents"].reverse()
    file.write_text(json.dumps(whole))
    return file


def test_order_of_the_file_and_a_shift_in_time_change_nothing(tmp_path):
    file = planted.write(planted.cast_storm(SEED), tmp_path / "trace.json")
    before = executed_of(read_trace(file))
    after = executed_of(read_trace(shifted(file, 7_000_000)))
    alike = {"name": "", "clocks": (), "timeline": before.timeline}
    left, right = dataclasses.replace(before, **alike), dataclasses.replace(after, **alike)
    assert [item[2:] for item in left.items] == [item[2:] for item in right.items]
    assert left.operators == right.operators
    assert after.window_ns == before.window_ns
