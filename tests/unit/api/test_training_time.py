"""Tests of the time of training plans with predicted kernels and collectives."""

import random
from dataclasses import replace

import pytest
from tests.sampling import sampled

from nearpeak.api.training.training_time import group_mesh, host_count, training_time
from nearpeak.core.systems.training_answer import PART_NAMES
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.errors import SpecError
from nearpeak.frontends.huggingface.transformer_models import shape_from_extents
from nearpeak.systems.training.stack_files import stack_of
from nearpeak.targets.clusters import cluster_of

SHAPE = shape_from_extents(hidden=1024, layers=4, heads=16, vocabulary=1024, name="small")
PLAN = TrainingPlan(tp=2, dp=4, micro_batch=1, global_batch=16, sequence=1024, sequence_parallel=True)
NODE = cluster_of("8xh100_sxm")


def test_answer_is_complete_and_its_parts_add_up():
    answer = training_time(SHAPE, PLAN, NODE, "megatron-lm", has_spans=True)
    assert tuple(part.name for part in answer.parts) == PART_NAMES
    assert sum(part.time_s for part in answer.parts) == pytest.approx(answer.step_s, rel=1e-9)
    assert all(part.ground for part in answer.parts)
    assert answer.low_s < answer.step_s < answer.high_s
    assert sum(answer.trust.values()) == pytest.approx(1)
    assert answer.token_count == 16 * 1024
    assert 0 < answer.mfu < 1
    assert answer.spans
    assert answer.notes[0].startswith("Host times are those of stack megatron-lm")


def test_two_plans_of_one_installation_share_what_an_unconfirmed_stack_may_be_off():
    stack, plan = stack_of("megatron-bridge"), replace(PLAN, sequence=8192, micro_batch=4)  # kernels decide
    known, unknown = (
        training_time(SHAPE, plan, NODE, replace(stack, is_confirmed=is_confirmed)) for is_confirmed in (True, False)
    )
    assert unknown.high_s - unknown.low_s > 1.5 * (known.high_s - known.low_s)
    assert unknown.resolved_ratio == known.resolved_ratio == (known.high_s - known.low_s) / (2 * known.step_s)


def test_model_flop_is_that_of_the_parameters_and_attention():
    answer = training_time(SHAPE, replace(PLAN, recompute="full"), NODE)
    layer = 4 * 1024**2 + 3 * 1024 * 4096
    attention = 4 * 6 * 1024 * 1025  # causal pairs, two products each, three passes
    products = (6 * (4 * layer + 1024 * 1024) + attention) * 16 * 1024 / 8
    assert answer.model_flop == pytest.approx(products, rel=0.03)


@pytest.mark.parametrize("precision", ["bf16", "fp8-current"])
def test_overlap_and_graphs_never_slow_a_step(precision):
    plan = replace(PLAN, precision=precision)
    eager = training_time(SHAPE, plan, NODE, "megatron-lm").step_s
    plain = training_time(SHAPE, plan, NODE, "megatron-bridge").step_s
    assert plain <= eager
    overlapped = training_time(SHAPE, replace(plan, tp_overlap=True), NODE, "megatron-bridge").step_s
    assert overlapped <= plain * 1.002  # copies between a gather and its product lose a little of what they hid


def test_faster_host_and_fewer_tokens_are_faster():
    slow = replace(stack_of("pytorch-eager"), launch_s=100e-6)
    fast = replace(slow, launch_s=1e-6)
    assert training_time(SHAPE, PLAN, NODE, fast).step_s < training_time(SHAPE, PLAN, NODE, slow).step_s
    half = replace(PLAN, global_batch=8)
    assert training_time(SHAPE, half, NODE, fast).step_s < training_time(SHAPE, PLAN, NODE, fast).step_s


def test_pipeline_of_two_nodes_waits_for_hops_and_bubbles():
    plan = replace(PLAN, tp=8, pp=2, dp=1, sequence_parallel=False)
    answer = training_time(SHAPE, plan, cluster_of("16xh100_sxm", "ib_ndr"), "megatron-lm")
    assert answer.parts_s["bubble"] > 0
    assert answer.parts_s["exposed pp"] > 0
    assert answer.parts_s["straggler"] > 0
    assert len(answer.stages) == 2


def test_experts_wait_for_the_busiest_rank():
    from nearpeak.core.systems.transformer import Experts

    shape = replace(SHAPE, experts=Experts(count=16, per_token=2, width=2048))
    plan = replace(PLAN, tp=1, dp=8, ep=8, sequence_parallel=False)
    balanced = training_time(shape, plan, NODE, "megatron-bridge")
    skewed = training_time(shape, replace(plan, expert_load="zipf exponent=1.0"), NODE, "megatron-bridge")
    assert skewed.step_s > balanced.step_s
    assert skewed.model_flop == balanced.model_flop, "the model is the same whoever runs it"
    assert balanced.parts_s["exposed ep"] > 0


def test_cluster_of_another_size_is_refused():
    with pytest.raises(SpecError, match="= 8 ranks, but the cluster has 4 devices"):
        training_time(SHAPE, PLAN, cluster_of("4xh100_sxm"))


def test_products_in_tf32_are_faster_than_in_fp32():
    rounded, wide = (training_time(SHAPE, replace(PLAN, precision=name), NODE) for name in ("tf32", "fp32"))
    assert rounded.step_s < wide.step_s


def test_meshes_of_groups():
    plan = TrainingPlan(tp=2, cp=2, dp=4, ep=8, micro_batch=1, global_batch=8, sequence=64)
    assert group_mesh(plan, "ep").group("ep", 0) == tuple(range(8))
    assert group_mesh(plan, "dp").group("dp", 0) == tuple(range(0, 16, 2))
    with pytest.raises(SpecError, match="no dimension"):
        group_mesh(plan, "depth")


def test_hosts_are_instances_of_the_innermost_tier():
    assert host_count(NODE) == 1
    assert host_count(cluster_of("512xh100_sxm", "ib_ndr")) == 64


@pytest.mark.parametrize(("schedule", "chunks"), [("dualpipe", 1), ("dualpipev", 2), ("interleaved", 2), ("zb_h1", 1)])
def test_no_rank_is_charged_for_more_work_than_it_runs(schedule, chunks):
    plan = TrainingPlan(pp=4, micro_batch=1, global_batch=16, sequence=1024, schedule=schedule, chunk_count=chunks)
    answer = training_time("llama-3.2-1b", plan, cluster_of("4xh100_sxm"))
    parts = {part.name: part.time_s for part in answer.parts}
    assert parts["bubble"] >= -1e-9 * answer.step_s
    assert parts["proved bound"] + parts["kernels below peak"] < answer.step_s


def drawn_plan(draw):
    """A plan for 16 devices, and 4 layers of 16 heads."""
    tp, pp = draw.choice([1, 2, 4, 8]), draw.choice([1, 2])
    cp = draw.choice([degree for degree in (1, 2) if tp * pp * degree <= 16])
    dp, schedule = 16 // (tp * pp * cp), draw.choice(["gpipe", "1f1b", "interleaved", "zb-h1"]) if pp > 1 else "1f1b"
    return TrainingPlan(
        tp=tp, pp=pp, cp=cp, dp=dp, micro_batch=draw.choice([1, 2]), global_batch=8 * dp, sequence=1024,
        schedule=schedule, chunk_count=2 if schedule == "interleaved" else 1, sequence_parallel=draw.random() < 0.5,
        sharding=draw.choice(["none", "zero1", "zero3"]), recompute=draw.choice(["none", "full"]),
        tp_overlap=draw.random() < 0.5, dp_overlap=draw.random() < 0.5,
    )  # fmt: skip


@pytest.mark.parametrize("seed", sampled(range(1000), 20))
def test_a_better_network_never_slows_a_step(seed):
    draw, cluster = random.Random(seed), cluster_of("16xh100_sxm", "ib_hdr")
    plan, (inner, outer) = drawn_plan(draw), cluster.fabric.tiers
    change = draw.choice([
        {"bandwidth_bytes_per_s": 2 * outer.bandwidth_bytes_per_s}, {"latency_s": outer.latency_s / 4},
        {"reached_ratio": 1.0}, {"reduces": True},
    ])  # fmt: skip
    better = replace(cluster, fabric=replace(cluster.fabric, tiers=(inner, replace(outer, **change))))
    before, after = (training_time(SHAPE, plan, one, "megatron-lm").step_s for one in (cluster, better))
    assert after <= before * (1 + 1e-9), (plan, change)
