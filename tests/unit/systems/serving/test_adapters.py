"""Adapters of a served model: two thin products a projection, grouped by adapter, and the memory of their slots."""

from dataclasses import replace

import numpy as np
import pytest

from nearpeak.api.serving.serving_plan import kv_token_count
from nearpeak.core.systems.serving_layout import ServingLayout
from nearpeak.core.systems.step_batch import StepBatch
from nearpeak.errors import NotModelledError
from nearpeak.frontends.huggingface.transformer_models import shape_of
from nearpeak.ops import case, work_of
from nearpeak.systems.serving.adapter_calls import adapter_bytes, adapter_calls, step_adapter_count
from nearpeak.systems.serving.engine_costs import EngineCosts
from nearpeak.systems.serving.step_calls import Rank
from nearpeak.systems.serving.step_latency import StepTable
from nearpeak.targets import target_of

COSTS = EngineCosts(name="none", title="", host_step_s=0.0, host_sequence_s=0.0, host_call_s=0.0, source="")
LLAMA = shape_of("llama-3-8b")
PLAIN = ServingLayout()
ONE = replace(PLAIN, adapter_slot_count=1, adapter_count=1, adapter_rank=16)
WIDTHS = {"attention.qkv": (3 * 4096, 6144), "attention.output": (4096, 4096), "ffn.gate_up": (2 * 4096, 28672),
          "ffn.down": (14336, 4096)}  # fmt: skip
"""Inputs of the shrinking products, one for each piece of a fused projection, and outputs of the expanding ones."""


def by_bytes(cases):
    times = np.array([(work_of(case).read_bytes + work_of(case).write_bytes) / 1e12 for case in cases])
    return np.stack([times, 0.9 * times, 1.1 * times], axis=1)


def step_s(layout, batch, shape=LLAMA):
    return StepTable(Rank(shape, layout, COSTS), by_bytes)(batch)


@pytest.mark.parametrize("batch", [StepBatch.of_decode(8, kv_count=800), StepBatch.of_prompt(100)])
def test_rank_0_is_a_step_without_adapters(batch):
    assert step_s(replace(ONE, adapter_rank=0), batch) == step_s(PLAIN, batch)


def test_one_adapter_is_two_thin_products_beside_each_projection():
    calls = list(adapter_calls(Rank(LLAMA, ONE, COSTS), 8, 1))
    rows = {"m": 8, "dtype": "bf16", "layout": "nt"}
    thin = {
        product for name, (_, outputs) in WIDTHS.items() for product in (
            case("gemm", n={"attention.qkv": 48, "ffn.gate_up": 32}.get(name, 16),
                 k={"ffn.down": 14336}.get(name, 4096), **rows),
            case("gemm", n=outputs, k=16, **rows),
        )
    }  # fmt: skip
    assert {call.case for call in calls} == thin
    assert {call.times for call in calls} == {32}
    batch = StepBatch.of_decode(8, kv_count=800)
    own_s = sum(call.times * float(by_bytes([call.case])[0, 0]) for call in calls)
    assert step_s(ONE, batch) - step_s(PLAIN, batch) == pytest.approx(own_s)


def test_slots_take_their_bytes_of_the_cache():
    elements = 32 * 16 * sum(inputs + outputs for inputs, outputs in WIDTHS.values())
    assert elements == 41_943_040  # what PEFT counts for rank 16 on all linear layers of this model
    four = replace(ONE, adapter_slot_count=4)
    assert adapter_bytes(LLAMA, four) == 4 * 2 * elements
    device = target_of("h100_sxm")
    bare, held = (kv_token_count(Rank(LLAMA, layout, COSTS), device, token_budget=8192) for layout in (PLAIN, four))
    assert 0 <= (bare - held) * 131_072 - 4 * 2 * elements + 16 * 131_072 <= 2 * 16 * 131_072
    assert kv_token_count(Rank(LLAMA, replace(four, adapter_rank=0), COSTS), device, token_budget=8192) == bare


def test_tensor_parallel_ranks_hold_whole_shrinking_sides_of_columns_and_expanding_sides_of_rows():
    two = adapter_bytes(LLAMA, replace(ONE, tp=2))
    per_layer = (3 * 4096 + 3072) + (2048 + 4096) + (2 * 4096 + 14336) + (7168 + 4096)
    assert two == 32 * 16 * per_layer * 2


def test_more_adapters_of_a_batch_read_more_and_share_no_product():
    many = replace(ONE, adapter_slot_count=8, adapter_count=64)
    assert [step_adapter_count(many, count) for count in (1, 2, 300)] == [1, 2, 8]
    calls = list(adapter_calls(Rank(LLAMA, many, COSTS), 32, 8))
    assert {call.case.op for call in calls} == {"grouped_gemm"}
    assert all(dict(call.case.axes)["touched_groups"] == 8 for call in calls)
    batch = StepBatch.of_decode(32, kv_count=3200)
    assert step_s(many, batch) > step_s(ONE, batch) > step_s(PLAIN, batch)
    prompt = StepBatch.of_prompt(32)  # one sequence has one adapter
    assert step_s(many, prompt) == step_s(ONE, prompt)


def test_routed_experts_have_none_and_latent_attention_is_refused():
    moe = shape_of("qwen3-30b-a3b")
    names = {call.name for call in adapter_calls(Rank(moe, ONE, COSTS), 4, 1)}
    assert {name.partition(".")[0] for name in names} == {"attention"}
    with pytest.raises(NotModelledError, match="latent attention"):
        adapter_bytes(shape_of("deepseek-v3"), ONE)
