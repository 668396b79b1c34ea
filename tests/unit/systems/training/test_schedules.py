"""Pipeline schedules: closed forms, golden steps, PyTorch's own orders, bounds, deadlocks and planted faults."""

import random
from dataclasses import replace
from itertools import pairwise
from types import SimpleNamespace

import pytest

from nearpeak.core.systems.pipeline_schedule import PipelineOp, PipelineSchedule
from nearpeak.errors import SpecError
from nearpeak.systems.training.pipeline_executor import StageTimes, pipeline_step, step_bound_s
from nearpeak.systems.training.schedule_file import read_schedule, schedule_text
from nearpeak.systems.training.schedules import SCHEDULES, schedule_of

DEGREES = ((2, 4), (4, 8), (4, 16), (8, 16), (8, 32))
EACH = [("gpipe", 1), ("1f1b", 1), ("interleaved", 2), ("zb-h1", 1), ("zb-h2", 1), ("dualpipe", 1), ("dualpipev", 2)]


def step(name, ranks, batches, chunks=1, times=None, transfer_s=0.0, **options):
    schedule = schedule_of(name, ranks, batches, chunks)
    times = times or StageTimes.equal(schedule.stage_count, 1.0, 2.0, 1.0)
    return pipeline_step(schedule, times, transfer_s, **options)


@pytest.mark.parametrize(("ranks", "batches"), DEGREES)
@pytest.mark.parametrize(("forward", "backward", "weight"), [(1, 2, 1), (1, 2, 0.75), (3, 5, 2)])
def test_equal_stages_without_transfers_idle_as_the_closed_forms_say(ranks, batches, forward, backward, weight):
    times = StageTimes.equal(ranks, forward, backward, weight)
    whole = forward + backward
    for name, bubble in (("gpipe", whole), ("1f1b", whole), ("zb-h1", whole - 2 * weight)):
        assert max(step(name, ranks, batches, 1, times).idle_s) == pytest.approx((ranks - 1) * bubble), name
    two = step("zb-h2", ranks, batches, 1, times)
    assert max(two.bubble_s) == pytest.approx((ranks - 1) * (whole - 3 * weight))
    assert two.period_s == pytest.approx(batches * whole + max(two.bubble_s))
    for chunks in (1, 2, 4):
        parts = StageTimes.equal(ranks * chunks, forward / chunks, backward / chunks)
        assert max(step("interleaved", ranks, batches, chunks, parts).idle_s) == pytest.approx(
            (ranks - 1) * whole / chunks
        )


@pytest.mark.parametrize(("ranks", "batches"), [(4, 8), (6, 12), (8, 16), (8, 24), (12, 30)])
@pytest.mark.parametrize("pair", [2.0, 2.6, 3.0])
def test_two_way_pipelines_idle_as_the_closed_form_says(ranks, batches, pair):
    bubble = (ranks // 2 - 1) * (pair + 2 - 3 * 1)
    times = StageTimes.equal(ranks, 1.0, 2.0, 1.0, pair)
    both, folded = step("dualpipe", ranks, batches, 1, times), step("dualpipev", ranks // 2, batches, 2, times)
    assert max(both.idle_s) == pytest.approx(bubble) == pytest.approx(max(folded.idle_s))
    assert set(both.in_flight_count) == {ranks + 1} == set(folded.in_flight_count)


def test_golden_steps_are_met_exactly():
    parts = {chunks: StageTimes.equal(ranks * chunks, 1 / chunks, 2 / chunks) for ranks, chunks in ((4, 2), (8, 4))}
    assert [step("1f1b", 4, 8).step_s, step("1f1b", 8, 32).step_s] == [33.0, 117.0]
    assert step("interleaved", 4, 8, 2, parts[2]).step_s == 28.5
    assert step("interleaved", 8, 32, 4, parts[4]).step_s == 101.25
    assert step("interleaved", 8, 8, 2, StageTimes.equal(16, 0.5, 1.0)).step_s == 34.5
    assert [step("zb-h1", 4, 8).step_s, step("zb-h1", 8, 32).step_s] == [27.0, 103.0]
    uneven = StageTimes(forward_s=(1.3, 1, 1, 1.6), backward_s=(2.6, 2, 2, 3.2))
    assert step("1f1b", 4, 8, 1, uneven).step_s == pytest.approx(48.30, abs=1e-9)
    assert [step("1f1b", 4, 8, transfer_s=wait).step_s for wait in (0.25, 1.5)] == [37.0, 57.0]
    assert step("1f1b", 4, 8).in_flight_count == (4, 3, 2, 1)
    assert step("interleaved", 4, 8, 2).in_flight_count == (11, 9, 7, 5)
    assert step("gpipe", 4, 8).in_flight_count == (8,) * 4
    assert step("zb-h1", 4, 8).in_flight_count == (4,) * 4
    assert step("zb-h2", 4, 8).in_flight_count == (7,) * 4
    assert max(step("dualpipe", 8, 16, 1, StageTimes.equal(8, 1, 2, 1, 2.6)).idle_s) == pytest.approx(4.8)


def test_interleaving_with_one_chunk_is_1f1b():
    assert schedule_of("interleaved", 4, 8, 1).ranks == schedule_of("1f1b", 4, 8).ranks


@pytest.mark.parametrize(("name", "chunks"), EACH)
def test_no_schedule_beats_the_work_of_a_rank_or_the_way_of_a_micro_batch(name, chunks):
    draw = random.Random(name)
    for _ in range(20):
        ranks, batches = draw.choice(DEGREES)
        schedule = schedule_of(name, ranks, batches, chunks)
        draws = [[draw.uniform(0.1, 3) for _ in range(schedule.stage_count)] for _ in range(2)]
        times = StageTimes(forward_s=tuple(draws[0]), backward_s=tuple(draws[1]),
                           weight_s=tuple(value * draw.random() for value in draws[1]))  # fmt: skip
        wait = draw.uniform(0, 1)
        result = pipeline_step(schedule, times, wait)
        assert result.step_s >= step_bound_s(schedule, times, wait) - 1e-9
        assert sum(result.busy_s) == pytest.approx(batches * sum(draws[0] + draws[1]))
        assert pipeline_step(schedule, times, wait / 2).step_s <= result.step_s + 1e-9


def test_all_schedules_are_registered_and_cite_a_source():
    assert tuple(SCHEDULES) == ("dualpipe", "dualpipev", "gpipe", "interleaved", "one_f_one_b", "zb_h1", "zb_h2")
    assert all(SCHEDULES[name].source for name in SCHEDULES)


def test_spans_do_not_overlap_on_a_lane_and_add_up_to_the_work():
    result = step("dualpipe", 4, 8, transfer_s=0.1, has_spans=True)
    for rank, busy in enumerate(result.busy_s):
        own = [span for span in result.spans if (span.rank, span.lane) == (rank, "compute")]
        assert all(left.stop_s <= right.start_s + 1e-12 for left, right in pairwise(own))
        assert sum(span.stop_s - span.start_s for span in own) == pytest.approx(busy)
    assert {span.lane for span in result.spans} == {"compute", "pp"}


def test_transfers_may_depend_on_sender_and_receiver():
    slow = step("1f1b", 4, 8, transfer_s=lambda sender, receiver: 1.5 if {sender, receiver} == {1, 2} else 0.0)
    assert step("1f1b", 4, 8).step_s < slow.step_s < step("1f1b", 4, 8, transfer_s=1.5).step_s


def test_durations_may_be_a_function_of_the_op():
    schedule = schedule_of("1f1b", 2, 4)
    result = pipeline_step(schedule, lambda op: 5.0 if (op.stage, op.micro_batch) == (1, 2) else 1.0)
    assert result.busy_s == (8.0, 16.0)


@pytest.mark.parametrize(("name", "chunks"), EACH)
def test_a_schedule_goes_through_a_file_unchanged(name, chunks, tmp_path):
    schedule = schedule_of(name, 4, 8, chunks)
    path = tmp_path / f"{schedule.name}.csv"
    path.write_text(schedule_text(schedule))
    assert read_schedule(path) == schedule


def test_orders_are_those_of_torch_distributed_pipelining():
    torch_schedules = pytest.importorskip("torch.distributed.pipelining.schedules")
    for ranks, batches in ((2, 4), (4, 8), (4, 13)):
        self = SimpleNamespace(pp_group_size=ranks, _n_microbatches=batches)
        for rank, ops in enumerate(schedule_of("dualpipev", ranks, batches, 2).ranks):
            expected = torch_schedules.ScheduleDualPipeV._calculate_single_rank_operations(self, rank)
            assert list(map(str, ops)) == [str(action) for action in expected]
    for ranks, batches, chunks in ((2, 4, 2), (4, 8, 3), (4, 6, 2)):
        rounds = max(1, batches // ranks)
        self = SimpleNamespace(pp_group_size=ranks, _n_microbatches=batches, n_local_stages=chunks,
                               number_of_rounds=rounds, microbatches_per_round=batches // rounds)  # fmt: skip
        for rank, ops in enumerate(schedule_of("interleaved", ranks, batches, chunks).ranks):
            expected = torch_schedules.ScheduleInterleaved1F1B._calculate_single_rank_operations(self, rank)
            assert list(map(str, ops)) == [str(action) for action in expected if action is not None]


def changed(schedule, rank, change):
    ranks = list(schedule.ranks)
    ranks[rank] = tuple(change(list(ranks[rank])))
    return PipelineSchedule(name="changed", ranks=tuple(ranks))


def swap(left, right):
    def change(ops):
        ops[left], ops[right] = ops[right], ops[left]
        return ops

    return change


@pytest.mark.parametrize(
    ("name", "rank", "change", "words"),
    [
        ("1f1b", 0, lambda ops: ops[:-1], "stage 0 lacks a pass of micro-batch 3"),
        ("1f1b", 1, lambda ops: [*ops, ops[-1]], "stands twice"),
        ("zb-h1", 1, lambda ops: [*ops, ops[-1]], "1W3 stands twice"),
        ("zb-h1", 1, lambda ops: [op for op in ops if op.kind != "W"], "lacks a pass"),
        ("1f1b", 1, swap(0, 1), "before the pass of the same rank"),
        ("1f1b", 1, lambda ops: [op for op in ops if op.kind == "F"][::-1] + [op for op in ops if op.kind == "B"],
         "deadlock: rank 0 waits at 0B0 for 1B0"),
    ],
)  # fmt: skip
def test_a_broken_order_is_one_line(name, rank, change, words):
    broken = changed(schedule_of(name, 2, 4), rank, change)
    with pytest.raises(SpecError) as error:
        pipeline_step(broken, StageTimes.equal(2, 1.0, 2.0, 1.0))
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_planted_faults_of_the_times_change_the_step():
    uneven = StageTimes(forward_s=(1, 1, 1, 1.6), backward_s=(2, 2, 2, 3.2), weight_s=(1, 1, 1, 1.6))
    mean = StageTimes.equal(4, 4.6 / 4, 9.2 / 4, 4.6 / 4)
    headless = StageTimes.equal(4, 1, 2, 1)
    for name in ("1f1b", "zb-h1"):
        right = step(name, 4, 8, 1, uneven).step_s
        assert step(name, 4, 8, 1, mean).step_s < right, "mean instead of maximum over ranks"
        assert step(name, 4, 8, 1, headless).step_s < right, "head forgotten on the last stage"
    twice = step("zb-h1", 4, 8, 1, lambda op: {"F": 1.0, "I": 2.0, "W": 1.0}[op.kind])
    assert sum(twice.busy_s) != sum(step("zb-h1", 4, 8).busy_s), "gradients of weights counted twice"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: schedule_of("dualpipe", 3, 12), "even number of ranks"),
        (lambda: schedule_of("dualpipe", 4, 6), "at least 2 p"),
        (lambda: schedule_of("dualpipev", 4, 7, 2), "at least 2 p = 8"),
        (lambda: schedule_of("interleaved", 4, 9, 2), "8 or 12 of them a replica would"),
        (lambda: schedule_of("1f1b", 4, 8, 2), "'interleaved' takes any number"),
        (lambda: schedule_of("zbh1", 4, 8), "did you mean zb_h1"),
        (lambda: step("1f1b", 4, 8, 1, StageTimes.equal(3, 1, 2)), "times are of 3 stages"),
        (lambda: step("zb-h1", 4, 8, 1, StageTimes.equal(4, 1, 2)), "give weight_s"),
        (lambda: StageTimes(forward_s=(1,), backward_s=(2,), weight_s=(3,)), "weight part at most"),
    ],
)
def test_degrees_and_times_that_do_not_fit_are_one_line(call, words):
    with pytest.raises(SpecError, match=r"^[^\n]*$") as error:
        call()
    assert words in str(error.value)


@pytest.mark.parametrize("text", ["0F0,zero\n", "0F99999999999\n", "", "0F0,0UNSHARD\n", "0F999999999,0B0\n"])
def test_a_file_that_is_no_schedule_is_refused(text, tmp_path):
    path = tmp_path / "custom.csv"
    path.write_text(text)
    with pytest.raises(SpecError):
        read_schedule(path)


def test_a_micro_batch_of_the_schedule_may_be_longer_than_the_rest_and_is_waited_for():
    schedule = replace(schedule_of("1f1b", 2, 2), name="two")
    assert pipeline_step(schedule, lambda op: 3.0 if op == PipelineOp("F", 1, 0) else 1.0).step_s == 8.0
