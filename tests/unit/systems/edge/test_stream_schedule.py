"""Plans of streams: bounds of a makespan, responses, overlap and its causes, ages, rates that break, modes."""

import itertools
import random
from dataclasses import replace

import pytest

from nearpeak.core.edge.stream_rig import Fusion, Rig, RigStage, SensorStream
from nearpeak.systems.edge.schedulability import is_proved
from nearpeak.systems.edge.stream_schedule import compare_modes, makespans, plan_streams

MS = 1_000_000


def stream(name, period, *stages, **options):
    rows = tuple(RigStage(engine=engine, time_ns=round(ms * MS), share=share) for engine, ms, share in stages)
    return SensorStream(
        name=name, period_ns=period * MS, deadline_ns=options.pop("deadline", period) * MS, stages=rows, **options
    )


def test_a_makespan_lies_between_its_floor_and_the_sum_and_no_order_beats_the_floor():
    draw = random.Random(1)
    for _ in range(20):
        streams = [
            stream(str(row), 100, *((engine, draw.randint(1, 5), 1000) for engine in draw.sample(["h2d", "gpu"], 2)))
            for row in range(3)
        ]
        found = [makespans(Rig(name="r", streams=order), "streams") for order in itertools.permutations(streams)]
        for floor, makespan, serial in found:
            assert floor <= makespan <= serial
        more = makespans(Rig(name="r", streams=(*streams, stream("x", 100, ("gpu", 2, 1000)))), "streams")
        assert more[0] >= found[0][0]


@pytest.mark.parametrize(("first", "second", "options", "reason"), [
    (("gpu", 4, 1000), ("gpu", 4, 300), {}, "the kernel of a fills the device"),
    (("gpu", 4, 600), ("gpu", 4, 600), {}, "their kernels need 120 % of the device together"),
    (("gpu", 4, 500), ("gpu", 4, 500), {}, ""),
    (("h2d", 4, 1000), ("h2d", 4, 1000), {}, "one copy engine per direction"),
    (("gpu", 4, 500), ("gpu", 4, 500), {"is_default": True}, "a is on the legacy default stream"),
    (("cpu", 4, 1000), ("cpu", 4, 1000), {}, "the host was busy with the other"),
])  # fmt: skip
def test_missing_overlap_has_its_cause(first, second, options, reason):
    rig = Rig(name="r", streams=(stream("a", 10, first, **options), stream("b", 10, second)))
    (overlap,) = plan_streams(rig, "board").overlaps
    assert overlap.reason.startswith(reason)
    assert bool(overlap.reason) == (overlap.both_s < 0.9 * overlap.most_s)


def test_a_pageable_copy_holds_the_host():
    copy = replace(stream("a", 10, ("h2d", 4, 1000)).stages[0], is_pageable=True)
    rig = Rig(name="r", streams=(replace(stream("a", 10, ("h2d", 4, 1000)), stages=(copy,)),
                                 stream("b", 10, ("cpu", 4, 1000))))  # fmt: skip
    assert plan_streams(rig, "board").overlaps[0].reason.startswith("a copy from pageable memory")


def test_responses_limits_and_ages_of_two_streams_are_those_of_the_hand_calculation():
    rig = Rig(
        name="r", streams=(stream("a", 10, ("gpu", 4, 1000)), stream("b", 20, ("gpu", 5, 1000))),
        fusions=(Fusion(name="f", streams=("a", "b")),),
    )  # fmt: skip
    planned = plan_streams(rig, "board")
    assert planned.outcome.verdict == "proved"
    assert planned.is_whole_cycle
    first, second = planned.responses
    assert (first.worst_s, second.worst_s) == (0.004, 0.009)
    assert first.limit_s == pytest.approx(0.009, abs=1e-8)  # b arrived one nanosecond before
    assert second.limit_s == pytest.approx(0.009)
    assert planned.busy_ratio["gpu"] == pytest.approx(0.65)
    assert {(row.stream, row.worst_s) for row in planned.ages} == {("a", 0.004), ("b", 0.024)}


def test_the_rate_that_breaks_is_the_last_one_that_is_proved():
    rig = Rig(name="r", streams=(stream("a", 10, ("gpu", 4, 1000)), stream("b", 50, ("gpu", 5, 1000), deadline=50)))
    planned = plan_streams(rig, "board", "edf")
    ratio = planned.responses[0].break_ratio
    for factor, expected in ((ratio * 0.99, True), (ratio * 1.001, False)):
        period = int(10 * MS / factor)
        faster = replace(rig.streams[0], period_ns=period, deadline_ns=period)
        assert is_proved(rig.with_streams((faster, rig.streams[1])), "edf") is expected
    assert ratio == pytest.approx(10 / 9, abs=1e-3)  # 4 ms behind 5 ms of the other


def test_cores_are_dealt_out_and_the_least_mode_is_named():
    def slow(factor):
        streams = tuple(stream(name, 10, ("cpu", 2 * factor, 1000)) for name in "abc")
        return Rig(name="r", streams=streams, engine_count={"cpu": 3})

    factors = {"m:15W": 6, "m:30W": 3, "m:50W": 1}
    modes, least = compare_modes([("m:50W", 50.0), ("m:15W", 15.0), ("m:30W", 30.0)], lambda name: slow(factors[name]),
                                 "edf")  # fmt: skip
    assert [row.verdict for row in modes] == ["refuted", "proved", "proved"]
    assert least == "m:30W"
