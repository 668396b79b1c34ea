"""Verdicts on sensor rigs: brute force over every offset, and timelines that really miss."""

import pytest
from benchmarks.stream_rigs import FAMILIES, compare

from nearpeak.core.edge.stream_rig import Rig, RigStage, SensorStream
from nearpeak.errors import SpecError
from nearpeak.systems.edge.schedulability import judge_streams, sliced


def stream(name, period, time, **options):
    stages = tuple(RigStage(engine=engine, time_ns=ticks) for engine, ticks in time.items())
    return SensorStream(**{"name": name, "period_ns": period, "deadline_ns": period, "stages": stages, **options})


def rig(*streams):
    return Rig(name="rig", streams=streams)


def test_verdicts_on_300_small_rigs_equal_brute_force():
    tally = compare(300)
    assert all(row["differ"] == 0 for row in tally.values())
    assert [tally[family]["open"] for family in FAMILIES[:2]] == [0, 0]
    assert tally[FAMILIES[2]]["open"] <= 15


def test_the_golden_is_refuted_by_a_timeline_and_proved_in_slices():
    golden = rig(stream("camera", 33, {"gpu": 11}), stream("radar", 100, {"gpu": 45}))
    outcome = judge_streams(golden, "edf")
    assert (outcome.verdict, outcome.missed, outcome.late_ns) == ("refuted", "camera", 22)
    assert outcome.offsets_ns == (1, 0)
    assert [(run.stream, run.start_ns, run.stop_ns) for run in outcome.timeline][:2] == [
        ("radar", 0, 45), ("camera", 45, 56),
    ]  # fmt: skip
    cut = sliced(golden)
    assert cut.streams[1].stages[0].slice_count == 2
    assert judge_streams(cut, "slices").verdict == "proved"


def test_overload_and_a_chain_longer_than_its_deadline_are_refuted():
    full = judge_streams(rig(stream("a", 4, {"gpu": 3}), stream("b", 4, {"gpu": 2})), "edf")
    assert (full.verdict, full.reason) == ("refuted", "gpu is asked for more than all of its time")
    assert full.timeline
    long = judge_streams(rig(stream("a", 9, {"h2d": 3, "gpu": 3}, deadline_ns=5)), "streams")
    assert "alone" in long.reason


def test_the_legacy_default_stream_makes_work_wait_that_would_fit():
    alone = rig(stream("a", 10, {"h2d": 4}, offset_ns=0), stream("b", 10, {"gpu": 9}, offset_ns=0))
    assert judge_streams(alone, "streams").verdict == "proved"
    mixed = rig(stream("a", 10, {"h2d": 4}, offset_ns=0, is_default=True), alone.streams[1])
    assert judge_streams(mixed, "streams").verdict == "refuted"


def test_offsets_are_stated_for_all_or_for_none():
    with pytest.raises(SpecError, match="state that of every stream"):
        judge_streams(rig(stream("a", 4, {"gpu": 1}, offset_ns=0), stream("b", 4, {"gpu": 1})), "edf")
