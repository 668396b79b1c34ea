"""Memory of a rank against published formulas and vectors."""

from dataclasses import replace

import pytest
from tests.sampling import sampled

from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.systems.transformer import Experts, LatentAttention, TransformerShape
from nearpeak.errors import SpecError
from nearpeak.systems.training.memory.framework_rules import adapter_rules
from nearpeak.systems.training.memory.memory_peak import rank_memory
from nearpeak.systems.training.memory.saved_tensors import ActivationRules, TokenAxes, layer_input, layer_steps
from nearpeak.systems.training.memory.stage_layers import chunks_in_flight
from nearpeak.systems.training.memory.tensor_lifetimes import layer_memory
from nearpeak.systems.training.pipeline_order import held
from nearpeak.systems.training.schedules import schedule_of
from nearpeak.systems.transformer.parameters import parameter_count

GPT3 = TransformerShape(
    name="gpt-3", layer_count=96, hidden=12288, head_count=96, kv_head_count=96, head_width=128, ffn=4 * 12288,
    is_gated=False, vocabulary=51200, norm="layer_norm", has_bias=True, positions="learned", position_count=2048,
    activation="gelu",
)  # fmt: skip
LLAMA_70B = TransformerShape(
    name="llama-3-70b", layer_count=80, hidden=8192, head_count=64, kv_head_count=8, head_width=128, ffn=28672,
    is_gated=True, vocabulary=128256,
)  # fmt: skip
DEEPSEEK_V3 = TransformerShape(
    name="deepseek-v3", layer_count=61, hidden=7168, head_count=128, kv_head_count=128, head_width=128, ffn=18432,
    is_gated=True, vocabulary=129280,
    experts=Experts(count=256, per_token=8, width=2048, shared_width=2048, dense_layer_count=3),
    latent=LatentAttention(query_rank=1536, cache_rank=512, rotary_width=64, key_width=128, value_width=128),
)  # fmt: skip
PLAN = TrainingPlan(tp=8, pp=4, dp=2, micro_batch=1, global_batch=32, sequence=4096, sequence_parallel=True)


@pytest.mark.parametrize(
    ("tp", "is_sequence_parallel", "is_fused", "gigabytes"),
    [(1, False, False, 2.869), (8, False, False, 0.579), (8, True, False, 0.359), (8, True, True, 0.1070)],
)
def test_a_layer_of_gpt_keeps_what_the_published_formula_says(
    tp: int, is_sequence_parallel: bool, is_fused: bool, gigabytes: float
) -> None:
    # Korthikanti et al. 2022, table 2: s b h (34 + 5 a s / h) and its tensor-parallel forms
    rules = ActivationRules(is_attention_fused=is_fused, has_dropout=True)
    axes = TokenAxes(token_count=2048, key_count=2048, tp=tp, is_sequence_parallel=is_sequence_parallel)
    memory = layer_memory(layer_steps(GPT3, axes, rules, has_experts=False), layer_input(GPT3, axes, rules))
    assert memory.saved_bytes / 1e9 == pytest.approx(gigabytes, rel=1.5e-3)


@pytest.mark.parametrize(
    ("framework", "sharding", "dp", "gigabytes"),
    [("ddp", "none", 1, 1130), ("deepspeed", "zero1", 8, 388), ("deepspeed", "zero3", 64, 17.7)],
)
def test_a_model_of_70_billion_takes_the_published_states(
    framework: str, sharding: str, dp: int, gigabytes: float
) -> None:
    # Rajbhandari et al. 2019, section 3: 16 N; 4 N + 12 N / d; 16 N / d
    plan = TrainingPlan(
        dp=dp, micro_batch=1, global_batch=dp, sequence=64, framework=framework, sharding=sharding, precision="bf16"
    )
    own = rank_memory(LLAMA_70B, replace(plan, global_batch=4 * dp)).parts
    casts = 2 * 80 * (70_553_706_496 - 2 * 128256 * 8192 - 8192) // 80 if framework == "ddp" else 0
    states = own["weights"] + own["optimizer"] + (own["gradients"] if sharding != "zero3" else 0) - casts
    if sharding == "zero3":
        states += 2 * parameter_count(LLAMA_70B) // dp
    assert states / 1e9 == pytest.approx(gigabytes, rel=5e-3)


def test_bytes_per_parameter_fall_from_18_to_6_plus_12_over_d() -> None:
    whole = rank_memory(LLAMA_70B, replace(PLAN, sharding="none")).parts
    shared = rank_memory(LLAMA_70B, replace(PLAN, sharding="zero1")).parts
    assert whole["weights"] * 2 == whole["gradients"]
    assert whole["optimizer"] == 6 * whole["weights"]
    assert shared["optimizer"] * 2 == pytest.approx(whole["optimizer"])


def test_activations_in_flight_follow_the_schedule() -> None:
    assert [chunks_in_flight(PLAN, stage) for stage in range(4)] == [4, 3, 2, 1]
    few = replace(PLAN, global_batch=4)
    assert [chunks_in_flight(few, stage) for stage in range(4)] == [2, 2, 2, 1]
    own = rank_memory(LLAMA_70B, PLAN, in_flight=lambda plan, stage: 2 * (plan.pp - stage))
    assert own.parts["activations"] == 2 * rank_memory(LLAMA_70B, PLAN).parts["activations"]


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "dualpipe", "dualpipev"])
def test_formulas_of_activations_in_flight_count_what_the_schedules_hold(name: str) -> None:
    chunks = {"interleaved": 3, "dualpipev": 2}.get(name, 1)
    for ranks, batches in ((2, 8), (4, 8), (4, 16), (6, 12)):
        plan = replace(PLAN, pp=ranks, dp=1, global_batch=batches, chunk_count=chunks, schedule=name)
        ops = schedule_of(name, ranks, batches, chunks).ranks
        assert [chunks_in_flight(plan, stage) for stage in range(ranks)] == [max(held(own, lambda _: 1)) for own in ops]


def test_interleaving_raises_the_first_stage_by_its_published_share() -> None:
    # Korthikanti et al. 2022, section 4.2.3: (1 + (p - 1) / (p v)) of 1F1B
    plain = rank_memory(LLAMA_70B, replace(PLAN, global_batch=64))
    chunked = rank_memory(LLAMA_70B, replace(PLAN, global_batch=64, chunk_count=5, schedule="interleaved"))
    assert chunked.parts["activations"] / plain.parts["activations"] == pytest.approx(1 + 3 / (4 * 5))


def test_full_recomputation_keeps_the_inputs_alone() -> None:
    own = rank_memory(LLAMA_70B, replace(PLAN, recompute="full"))
    assert own.parts["activations"] == 4 * 20 * 2 * 4096 * 8192 // 8


def test_the_last_stage_holds_logits_and_one_micro_batch() -> None:
    last = rank_memory(LLAMA_70B, PLAN, 3)
    assert last.place == "loss"
    assert last.parts["logits"] == 6 * 4096 * 129024 // 8


def test_experts_are_sharded_over_their_own_replicas() -> None:
    plan = replace(PLAN, tp=1, pp=16, dp=64, ep=64, global_batch=1024, sequence_parallel=False, sharding="zero1")
    layers = [4] * 13 + [3] * 3
    own = rank_memory(DEEPSEEK_V3, plan, 3, layers=layers)
    experts, others = 4 * 4 * 3 * 7168 * 2048, 4 * (187_107_328 + 256 * 7168 + 3 * 7168 * 2048 + 2 * 7168)
    assert own.parts["weights"] == 2 * (experts + others)
    assert own.parts["optimizer"] == pytest.approx(12 * (experts + others / 64), rel=1e-6)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tp": 3}, "tp=3 does not divide 4096|tp=3 does not divide 64 heads|no multiple of 3 pieces"),
        ({"pp": 64, "chunk_count": 2}, "leave some without one of its 80 layers; pp=40 would not"),
        ({"ep": 2}, "it has no experts; ep=1 would work"),
    ],
)
def test_degrees_that_do_not_divide_are_refused_in_one_line(changes: dict[str, int], message: str) -> None:
    with pytest.raises(SpecError, match="^[^\n]*" + message):
        rank_memory(LLAMA_70B, replace(PLAN, **changes))


@pytest.mark.parametrize("seed", sampled(range(40), 12))
def test_more_ranks_never_need_more(seed: int) -> None:
    import random

    draw = random.Random(seed)
    plan = replace(
        PLAN, tp=draw.choice([1, 2, 4]), pp=draw.choice([1, 2, 5]), dp=draw.choice([1, 2]), global_batch=32,
        sharding=draw.choice(["zero1", "zero2", "zero3"]), recompute=draw.choice(["none", "selective", "full"]),
        framework=draw.choice(["megatron-lm", "deepspeed"]), micro_batch=draw.choice([1, 2]),
    )  # fmt: skip
    own, *others = (
        rank_memory(LLAMA_70B, one, allocator="none").allocated_bytes
        for one in (plan, replace(plan, tp=2 * plan.tp), replace(plan, dp=2 * plan.dp), replace(plan, recompute="full"))
    )
    assert max(others) <= own


def test_adapters_of_llama_2_take_what_a_public_run_logged() -> None:
    # MLPerf Training 5.0, llama2_70b_lora on 64 B200: 82.319 GB; one batch of 8 sequences of 8,192 tokens on 64 ranks
    shape = replace(LLAMA_70B, vocabulary=32000)
    plan = TrainingPlan(cp=8, micro_batch=1, global_batch=1, sequence=8192, precision="fp8-delayed")
    rules, activations = adapter_rules(shape, plan, rank=16, has_narrow_weights=True, inner_bytes=1)
    own = rank_memory(shape, plan, rules=rules, activations=activations)
    assert own.allocated_bytes / 1e9 == pytest.approx(82.319, rel=0.01)
    wide = rank_memory(shape, replace(plan, adapter_rank=16))  # the activation's input in bf16
    assert 0 < wide.parts["activations"] - own.parts["activations"] == 80 * 1024 * 2 * 28672
    assert wide.parts["weights"] == own.parts["weights"]


def test_reserved_memory_is_a_few_percent_above_allocated() -> None:
    for changes in ({}, {"recompute": "full"}, {"chunk_count": 5, "schedule": "interleaved"}):
        plan = replace(PLAN, **changes)
        plain, expandable = (rank_memory(LLAMA_70B, plan, allocator=name) for name in ("segments", "expandable"))
        assert plain.allocated_bytes <= expandable.reserved_bytes <= plain.reserved_bytes
        assert plain.reserved_bytes < 1.05 * plain.allocated_bytes
