"""Tests of the time of a step with constant durations."""

from dataclasses import replace

import pytest
from tests.unit.systems.training.constant_times import move, product, program, times

from nearpeak.core.systems.training_answer import PART_NAMES
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.errors import SpecError
from nearpeak.systems.training.training_step import Beside, step_time

PLAN = TrainingPlan(micro_batch=1, global_batch=8, sequence=16)


def test_one_device_runs_its_micro_batches():
    found = step_time([program(optimizer=(product(2),))], PLAN, times(micro_batch_s=0.5, step_s=3.0))
    assert found.step_s == 8 * (3 + 0.5) + 2 + 3
    assert found.parts_s["optimizer"] == 2
    assert found.parts_s["host"] == 8 * 0.5 + 3


@pytest.mark.parametrize("stage_count", [1, 2, 4])
@pytest.mark.parametrize("launch_s", [0.0, 0.4, 3.0])
@pytest.mark.parametrize("is_overlapped", [True, False])
def test_parts_add_up_to_the_step(stage_count, launch_s, is_overlapped):
    plan = replace(PLAN, pp=stage_count, dp=2, dp_overlap=is_overlapped)
    programs = [
        program(
            stage, forward=(product(1 + stage), move()), gradient=(move("reduce_scatter", "dp"), move(dim="edp")),
            optimizer=(product(3), move("all_gather", "dp")),
        )
        for stage in range(stage_count)
    ]  # fmt: skip
    found = step_time(programs, plan, times(1.0, 0.7, 4, launch_s=launch_s), hop_s=0.25, host_count=4)
    assert tuple(found.parts_s) == PART_NAMES
    assert sum(found.parts_s.values()) == pytest.approx(found.step_s, rel=1e-12)
    assert min(found.parts_s.values()) > -1e-9


def test_bubble_of_one_forward_one_backward():
    plan = replace(PLAN, pp=4)
    found = step_time([program(stage) for stage in range(4)], plan, times())
    assert found.step_s == 33
    assert found.parts_s["bubble"] == 9


def uneven(longest):
    """Return the programs of four stages that take 1, 1, 1 and `longest` times as long as one kernel per pass."""
    return [program(stage, **{
        name: (product(longest if stage == 3 else 1),) for name in ("forward", "backward", "weight")
    }) for stage in range(4)]  # fmt: skip


def test_what_unequal_stages_cost_is_imbalance_and_equal_ones_leave_the_bubble():
    plan = replace(PLAN, pp=4)
    found = step_time(uneven(3), plan, times())
    mean_s = 3 * (1 + 1 + 1 + 3) / 4
    assert found.parts_s["bubble"] == pytest.approx(3 * mean_s)  # (p - 1) passes through equal stages
    busy_s = found.parts_s["proved bound"] + found.parts_s["kernels below peak"]
    assert busy_s == pytest.approx(8 * mean_s)
    assert found.parts_s["imbalance"] == pytest.approx(found.step_s - 11 * mean_s)
    assert found.parts_s["imbalance"] > 0
    assert step_time(uneven(1), plan, times()).parts_s["imbalance"] == 0


def test_idle_ranks_of_branches_are_a_part_of_their_own():
    # The rank runs 3 s a micro-batch and waits 0.5 s, another runs 1 s: mean work 2 s, 1.5 s of 3.5 s idle.
    other = Beside(program(forward=(product(),), backward=(), weight=()), 1, 0.5)
    found = step_time([program()], PLAN, times(), beside=other)
    assert found.step_s == 8 * 3.5 == pytest.approx(sum(found.parts_s.values()), rel=1e-12)
    assert found.parts_s["branch idle"] == 8 * 1.5
    assert found.parts_s["proved bound"] + found.parts_s["kernels below peak"] == 8 * 2


def test_a_rank_waits_for_branches_that_run_longer_than_it_does():
    other = Beside(program(forward=(product(4),)), 1, 0.0)
    found = step_time([program()], PLAN, times(), beside=other)
    assert found.step_s == 8 * 6
    assert found.parts_s["branch idle"] == 8 * 1.5


def test_gradients_reduced_beside_the_backward_pass_expose_the_last_bucket():
    gradient = tuple(move(dim="dp", is_beside=True) for _ in range(4))
    calls = {"backward": (product(),) * 8, "weight": (product(),) * 8, "gradient": gradient}
    plan = replace(PLAN, dp=2, dp_overlap=True)
    beside = step_time([program(**calls)], plan, times())
    after = step_time([program(**{**calls, "gradient": tuple(move(dim="dp") for _ in range(4))})], plan, times())
    assert after.parts_s["exposed dp"] == 4
    assert beside.parts_s["exposed dp"] == 1


@pytest.mark.parametrize(("chunks", "exposed_s"), [(1, 6.0 + 6.0), (2, 6.0 + (6.0 - 4.0) + 6.0)])
def test_collectives_over_replicas_run_on_under_the_passes_of_other_chunks(chunks, exposed_s):
    """Those of the chunk that begins and ends the step are exposed; four passes of it run beside the next gather."""
    plan = replace(PLAN, pp=4, dp=2, chunk_count=chunks, schedule="interleaved" if chunks > 1 else "1f1b")
    programs = [
        program(
            stage, chunk, gradient=(move("reduce_scatter", "dp", is_beside=True),),
            optimizer=(move("all_gather", "dp", is_beside=True),),
        )
        for chunk in range(chunks) for stage in range(4)
    ]  # fmt: skip
    found = step_time(programs, plan, times(1.0, 6.0))
    assert found.parts_s["exposed dp"] == pytest.approx(exposed_s)


def test_missing_chunks_are_refused():
    with pytest.raises(SpecError, match="none of stage 1, chunk 0"):
        step_time([program()], replace(PLAN, pp=2), times())


def test_synchronous_hosts_wait_for_the_slowest():
    alone, many = (step_time([program()], PLAN, times(), host_count=count) for count in (1, 64))
    assert alone.parts_s["straggler"] == 0
    assert 0.02 < many.parts_s["straggler"] / alone.step_s < 0.03


def test_interleaved_chunks_shrink_the_bubble():
    whole = replace(PLAN, pp=4)
    split = replace(whole, chunk_count=2, schedule="interleaved")
    halves = [program(stage, chunk) for stage in range(4) for chunk in range(2)]
    found = step_time(halves, split, times(kernel_s=0.5))
    assert found.step_s == 28.5
    assert found.parts_s["bubble"] == 4.5


def test_schedules_that_split_the_backward_pass():
    plan = replace(PLAN, pp=4, schedule="zb-h1")
    found = step_time([program(stage) for stage in range(4)], plan, times())
    assert found.step_s == 27


def test_timeline_has_a_rank_for_each_stage():
    plan = replace(PLAN, pp=2)
    found = step_time([program(stage) for stage in range(2)], plan, times(), has_spans=True)
    assert {span.rank for span in found.spans} == {0, 1}


@pytest.mark.parametrize(
    ("schedule", "pp", "chunks"), [("gpipe", 4, 1), ("zb-h1", 4, 1), ("zb-h2", 4, 1), ("dualpipe", 4, 1),
                                   ("dualpipev", 2, 2), ("interleaved", 2, 2)],
)  # fmt: skip
def test_parts_of_every_schedule_add_up_and_no_bubble_is_negative(schedule, pp, chunks):
    plan = replace(PLAN, pp=pp, chunk_count=chunks, schedule=schedule)
    programs = [replace(program(stage, forward=(product(1 + stage + chunk), move(dim="ep"))), chunk=chunk)
                for chunk in range(chunks) for stage in range(pp)]  # fmt: skip
    found = step_time(programs, plan, times(0.5), hop_s=0.25)
    assert sum(found.parts_s.values()) == pytest.approx(found.step_s, rel=1e-12)
    assert min(found.parts_s.values()) > -1e-9


def test_overlapped_passes_hide_the_exchanges_of_experts_and_nothing_else():
    def step(schedule, dim):
        plan = replace(PLAN, pp=4, global_batch=32, schedule=schedule)
        calls = {"forward": (product(), move(dim=dim)), "backward": (product(), move(dim=dim)), "weight": (product(),)}
        return step_time([program(stage, **calls) for stage in range(4)], plan, times())

    assert step("dualpipe", "ep").parts_s["exposed ep"] < step("1f1b", "ep").parts_s["exposed ep"] / 2
    assert step("dualpipe", "tp").parts_s["exposed tp"] == step("1f1b", "tp").parts_s["exposed tp"]
    assert step("dualpipe", "ep").step_s < step("zb-h1", "ep").step_s


def test_a_schedule_of_other_chunks_than_the_plan_is_refused_in_one_line():
    plan = replace(PLAN, pp=2, schedule="dualpipev")
    with pytest.raises(SpecError, match=r"has 4 stages on pp=2, but the plan has 2 chunks; 2 chunk\(s\) per rank"):
        step_time([program(stage) for stage in range(2)], plan, times())
