"""Rank programs by rule: nothing is lost between ranks, stages and replicas, and one rank alone talks to nobody."""

from dataclasses import replace
from math import prod

import pytest

from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.errors import SpecError
from nearpeak.frontends.huggingface.transformer_models import shape_names, shape_of
from nearpeak.systems.training.programs.backward_order import interleaved_backward
from nearpeak.systems.training.programs.data_parallelism import data_parallelism
from nearpeak.systems.training.programs.plan_layout import plan_layout
from nearpeak.systems.training.programs.rank_parameters import embedding_tensors, head_tensors, layer_tensors
from nearpeak.systems.training.programs.stage_program import rank_program, rank_programs
from nearpeak.systems.transformer.layer import layer_kinds
from nearpeak.systems.transformer.layout import Layout
from nearpeak.systems.transformer.parameters import parameter_count

LLAMA = shape_of("llama-3-8b")
PRODUCTS = ("gemm", "grouped_gemm", "scaled_gemm")


def plan_of(micro_batches=1, **options):
    batch = options.get("dp", 1) * micro_batches
    return TrainingPlan(**{"micro_batch": 1, "global_batch": batch, "sequence": 2048} | options)


def product_flop(calls):
    cases = [(call, dict(call.case.axes)) for call in calls if call.case and call.case.op in PRODUCTS]
    return sum(call.count * 2 * axes.get("batch", 1) * prod(axes[axis] for axis in "mnk") for call, axes in cases)


def transfers(calls):
    return [call.transfer for call in calls if call.transfer]


def every_call(program):
    return (*program.micro_batch_calls(), *program.gradient, *program.optimizer)


@pytest.mark.parametrize("name", shape_names())
def test_tensors_of_one_rank_are_the_parameters_of_the_model(name):
    shape, layout = shape_of(name), Layout()
    ends = (*embedding_tensors(shape, layout), *head_tensors(shape, layout, holds_embedding=True))
    count = sum(tensor.elements for tensor in ends)
    for (has_experts, _), layers in layer_kinds(shape).items():
        count += layers * sum(tensor.elements for tensor in layer_tensors(shape, layout, has_experts=has_experts))
    assert count == parameter_count(shape)


@pytest.mark.parametrize("framework", ["megatron-lm", "deepspeed", "fsdp2", "ddp"])
def test_one_rank_alone_talks_to_nobody(framework):
    assert not transfers(every_call(rank_program(LLAMA, plan_of(framework=framework))))


@pytest.mark.parametrize("name", ["llama-3-8b", "gpt2", "qwen3-30b-a3b"])
@pytest.mark.parametrize("chunk_count", [1, 2])
def test_stages_together_are_the_model(name, chunk_count):
    shape = shape_of(name)
    alone = rank_program(shape, plan_of())
    stages = rank_programs(shape, plan_of(pp=2, chunk_count=chunk_count))
    assert sum(stage.layer_count for stage in stages) == shape.layer_count
    for part in ("forward", "backward", "weight"):
        flop = sum(product_flop(getattr(stage, part)) for stage in stages)
        assert flop == product_flop(getattr(alone, part))
    copy = embedding_tensors(shape, plan_layout(shape, plan_of()))[0].elements if shape.is_tied else 0
    held = sum(stage.parameter_count + stage.expert_parameter_count for stage in stages)
    assert held == alone.parameter_count + alone.expert_parameter_count + copy


def test_neighbouring_stages_exchange_activations_and_their_gradients():
    stages = rank_programs(LLAMA, plan_of(pp=4, tp=2, sequence_parallel=True))
    sent = [
        [sum(t.dim == "pp" for t in transfers(getattr(s, part))) for s in stages] for part in ("forward", "backward")
    ]
    assert sent == [[1, 1, 1, 0], [0, 1, 1, 1]]
    assert transfers(stages[0].forward)[-1].bytes == 2048 // 2 * 4096 * 2


def test_a_tied_embedding_is_summed_over_the_ends_of_the_pipeline():
    first, middle, last = rank_programs(shape_of("gpt2"), plan_of(pp=3, sequence=1024))
    sums = [[t for t in transfers(stage.gradient) if t.dim == "pp"] for stage in (first, middle, last)]
    assert [len(found) for found in sums] == [1, 0, 1]
    assert sums[0][0].bytes == 50_304 * 768 * 4  # 50,257 rows padded to a multiple of 128, in fp32


def test_layers_can_be_split_unevenly():
    stages = rank_programs(LLAMA, plan_of(pp=4), layer_counts=[7, 9, 9, 7])
    assert [stage.layer_count for stage in stages] == [7, 9, 9, 7]
    qwen = rank_programs(shape_of("qwen3-235b-a22b"), plan_of(pp=8))
    assert [stage.layer_count for stage in qwen] == [12] * 6 + [11] * 2


@pytest.mark.parametrize("sharding", ["none", "zero1", "zero2", "zero3"])
def test_gradients_travel_once_whatever_is_sharded(sharding):
    program = rank_program(LLAMA, plan_of(dp=8, sharding=sharding))
    reductions = [t for t in transfers((*program.weight, *program.gradient)) if t.dim == "dp"]
    assert {t.kind for t in reductions} == {"all_reduce" if sharding == "none" else "reduce_scatter"}
    assert sum(t.bytes for t in reductions) == 4 * program.parameter_count
    update = next(call.case for call in program.optimizer if call.name == "optimizer.dense.update")
    share = 1 if sharding == "none" else 8
    assert dict(update.axes)["parameters"] == program.parameter_count // share


def test_sharded_parameters_are_gathered_in_both_passes_or_once_after_the_update():
    whole = 2 * rank_program(LLAMA, plan_of()).parameter_count
    once = rank_program(LLAMA, plan_of(dp=8, sharding="zero1"))
    assert sum(t.bytes for t in transfers(once.optimizer) if t.kind == "all_gather") == whole
    unit_wise = rank_program(LLAMA, plan_of(dp=8, sharding="fsdp", framework="fsdp2"))
    ends = 2 * (2 * 128_256 * 4096 + 4096)
    gathered = [sum(t.bytes for t in transfers(calls)) for calls in (unit_wise.forward, unit_wise.backward)]
    padding = 2 * 128_256 * 4096 * 2 - 2 * 2 * 128_256 * 4096
    assert gathered == [2 * (8_030_261_248) + padding, 2 * 8_030_261_248 + padding - ends]


def test_hybrid_shards_scatter_within_a_group_and_reduce_across():
    program = rank_program(LLAMA, plan_of(dp=16, sharding="hsdp", shard_count=8, framework="fsdp2"))
    dims = {(t.kind, t.dim) for t in transfers((*program.forward, *program.weight))}
    assert dims == {("all_gather", "dp_shard"), ("reduce_scatter", "dp_shard"), ("all_reduce", "dp_replica")}
    scattered, reduced = (
        sum(t.bytes for t in transfers(program.weight) if t.dim == dim) for dim in ("dp_shard", "dp_replica")
    )
    assert scattered == 8 * reduced


def test_buckets_are_closed_in_reverse_order_of_the_parameters():
    plan = plan_of(dp=4, framework="ddp")
    style = replace(data_parallelism(plan), bucket_elements=300_000_000, first_bucket_elements=0)
    sizes = [t.bytes // 2 for t in transfers(rank_program(LLAMA, plan, style=style).gradient)]
    assert sizes[0] == 128_256 * 4096  # the head, last defined, is reduced first
    assert sum(sizes) == 8_030_261_248
    assert all(size >= 300_000_000 for size in sizes[:-1])


def test_gradients_of_each_micro_batch_fill_buckets():
    program = rank_program(LLAMA, plan_of(dp=8, sharding="zero2", framework="deepspeed"))
    sizes = [t.bytes // 2 for t in transfers(program.weight) if t.dim == "dp"]
    assert sum(sizes) == program.parameter_count
    assert all(size >= 500_000_000 for size in sizes[:-1])
    assert sizes[0] == 128_256 * 4096 + 4096  # the head and the norm before it


def test_experts_are_reduced_over_their_own_replicas():
    shape = shape_of("qwen3-30b-a3b")
    program = rank_program(shape, plan_of(dp=16, ep=8))
    by_dim = {dim: sum(t.bytes for t in transfers(program.gradient) if t.dim == dim) for dim in ("dp", "edp")}
    assert by_dim == {"dp": 4 * program.parameter_count, "edp": 4 * program.expert_parameter_count}
    assert program.expert_parameter_count == 48 * 128 // 8 * 3 * 2048 * 768
    assert not [t for t in transfers(rank_program(shape, plan_of(dp=8, ep=8)).gradient) if t.dim == "edp"]


def test_sequence_parallelism_sums_the_gradients_of_norms():
    program = rank_program(LLAMA, plan_of(tp=8, sequence_parallel=True))
    assert [(t.kind, t.dim, t.bytes) for t in transfers(program.gradient)] == [("all_reduce", "tp", 4 * 65 * 4096)]


def test_recomputation_runs_the_layers_or_the_core_of_attention_again():
    plain = rank_program(LLAMA, plan_of())
    full, selective = (rank_program(LLAMA, plan_of(recompute=kind)).recomputed for kind in ("full", "selective"))
    head = 2 * 2048 * 4096 * 128_256
    assert product_flop(full) == product_flop(plain.forward) - head
    assert {call.name for call in selective} == {"attention"}
    assert len(selective) == 32


def test_narrow_weights_are_quantised_once_a_step():
    program = rank_program(LLAMA, plan_of(precision="fp8-current", micro_batches=4))
    quantised = [call for call in program.optimizer if call.name.endswith("weight.quantise")]
    assert len(quantised) == 32 * 4


def test_gradients_of_weights_follow_those_of_their_inputs_under_the_reduction():
    program = rank_program(LLAMA, plan_of(tp=8))
    order = interleaved_backward(program.backward, program.weight)
    assert len(order) == len(program.backward) + len(program.weight)
    names = [(call.name, bool(call.transfer)) for call in order]
    place = names.index(("attention.qkv", False))
    assert names[place : place + 4] == [
        ("attention.qkv", False), ("attention.input.gradient", True), ("attention.qkv", False),
        ("attention.norm", False),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tp": 3}, r"tp=3 does not divide 32 heads; tp=2 would"),
        ({"pp": 33}, r"pp=33 × chunk_count=1 leave some of 33 chunks without one of its 32 layers; pp=32 would not"),
        ({"tp": 2, "sequence_parallel": True, "sequence": 2047}, r"no multiple of 2 pieces .*; 2046 would be"),
        ({"framework": "ddp", "sharding": "zero2", "dp": 2}, r"sharding=zero2 is no mode of ddp"),
    ],
)  # fmt: skip
def test_a_plan_that_does_not_fit_the_shape_names_what_would(options, message):
    with pytest.raises(SpecError, match=message):
        rank_program(LLAMA, plan_of(**options))


def test_stages_and_layer_counts_that_do_not_exist_are_refused():
    with pytest.raises(SpecError, match="stage 4, chunk 0: the plan has stages 0 to 3"):
        rank_program(LLAMA, plan_of(pp=4), stage=4)
    with pytest.raises(SpecError, match="4 layer counts that add up to 31; 4 that add up to 32"):
        rank_program(LLAMA, plan_of(pp=4), layer_counts=[7, 8, 8, 8])
