"""Tests of one engine without preemption: Jeffay's condition to the tick, and backlog against simulation."""

import random

import pytest

from nearpeak.core.edge.stream_rig import Rig, RigStage, SensorStream
from nearpeak.systems.edge.demand_test import EngineTask, OpenTestError, deadline_violation, queue_response
from nearpeak.systems.edge.stream_course import simulate_streams


def jeffay(tasks):
    """Return whether the published condition holds, written as in the paper (tasks by period)."""
    tasks = sorted(tasks, key=lambda task: task.period)
    if sum(task.time / task.period for task in tasks) > 1:
        return False
    return all(
        length >= tasks[i].time + sum((length - 1) // other.period * other.time for other in tasks[:i])
        for i in range(1, len(tasks))
        for length in range(tasks[0].period + 1, tasks[i].period)
    )


def test_the_golden_camera_and_radar_fail_at_34_ticks_and_pass_in_slices():
    camera, radar = EngineTask(11, 33, 33), EngineTask(45, 100, 100)
    violation = deadline_violation([camera, radar])
    assert (violation.length + 1, violation.demand + 1, violation.task) == (34, 56, 1)
    assert deadline_violation([camera, radar._replace(slice=9)]) is None
    assert deadline_violation([camera, radar._replace(slice=23)]) is None
    assert deadline_violation([camera, radar._replace(slice=24)]) is not None


def test_the_demand_test_is_jeffays_condition_where_deadlines_are_periods():
    draw, verdicts = random.Random(3), set()
    for _ in range(400):
        periods = [draw.choice((4, 5, 6, 8, 10, 12, 15, 20)) for _ in range(draw.randint(2, 4))]
        tasks = [EngineTask(draw.randint(1, max(1, period // 2)), period, period) for period in periods]
        if sum(task.time / task.period for task in tasks) <= 1:
            verdict = deadline_violation(tasks) is None
            assert verdict == jeffay(tasks), tasks
            verdicts.add(verdict)
    assert verdicts == {True, False}


def test_the_longest_backlog_is_reached_by_the_arrivals_that_are_named():
    draw = random.Random(5)
    for _ in range(60):
        tasks = [EngineTask(draw.randint(1, 3), period, period) for period in draw.sample((4, 6, 8, 12), 3)]
        if sum(task.time / task.period for task in tasks) > 1:
            continue
        for place, task in enumerate(tasks):
            longest, arrival = queue_response(tasks, place)
            offsets = [arrival % task.period if other == place else 0 for other in range(len(tasks))]
            streams = tuple(
                SensorStream(name=str(row), period_ns=other.period, deadline_ns=1000,
                             stages=(RigStage(engine="gpu", time_ns=other.time),)) for row, other in enumerate(tasks)
            )  # fmt: skip
            course = simulate_streams(Rig(name="r", streams=streams), "streams", offsets)
            first = [run.stop_ns - run.ready_ns for run in course.runs if run.stream == str(place)]
            assert max(first) == longest


def test_an_overloaded_engine_and_too_many_deadlines_stay_open():
    with pytest.raises(OpenTestError):
        queue_response([EngineTask(3, 4, 4), EngineTask(2, 4, 4)], 0)
    with pytest.raises(OpenTestError):
        deadline_violation([EngineTask(1, 2, 2), EngineTask(499_999_999, 1_000_000_001, 1_000_000_001)])
