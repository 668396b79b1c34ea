"""Low-rank adapters: frozen weights have no gradients, and the adapters' parameters are the published ones."""

from dataclasses import replace

import pytest

from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.frontends.huggingface.transformer_models import shape_of
from nearpeak.systems.training.programs.stage_program import rank_program
from nearpeak.systems.transformer.layer import layer_calls
from nearpeak.systems.transformer.layout import Adapters, Layout
from nearpeak.systems.transformer.token_batch import TrainingBatch

SHAPE = shape_of("llama-2-70b")
BATCH = TrainingBatch(sequences=1, length=1024)
ADAPTERS = Adapters(rank=16)


def products(calls):
    axes = [dict(call.case.axes) for call in calls if call.case and call.case.op == "gemm"]
    return [(extents["m"], extents["n"], extents["k"]) for extents in axes]


def test_only_adapters_have_gradients_of_weights():
    calls = layer_calls(SHAPE, Layout(adapters=ADAPTERS), BATCH)
    assert {call.name for call in calls.weight} == {"attention.qkv.adapter", "attention.output.adapter"}
    assert sorted(products(calls.weight)) == sorted(
        [(10_240, 16, 1024), (16, 8192, 1024), (8192, 16, 1024), (16, 8192, 1024)]
    )
    norms = [call.case for call in calls.backward if call.case and call.case.op == "rms_norm"]
    assert not any(dict(case.attributes)["grad_weight"] for case in norms)


def test_each_pass_has_two_narrow_products_beside_each_target():
    plain, adapted = (layer_calls(SHAPE, Layout(adapters=adapters), BATCH) for adapters in (None, ADAPTERS))
    for part in ("forward", "backward"):
        extra = list(products(getattr(adapted, part)))
        for product in products(getattr(plain, part)):
            extra.remove(product)
        assert len(extra) == 4
        assert all(16 in product for product in extra)


def test_tensor_parallel_ranks_reduce_the_narrow_result():
    calls = layer_calls(SHAPE, Layout(tp=4, adapters=ADAPTERS), BATCH)
    narrow = [c.transfer.bytes for c in calls.forward if c.transfer and ".adapter." in c.name]
    assert narrow == [BATCH.tokens * 16 * 2] * 2


@pytest.mark.parametrize("sharding", ["none", "fsdp"])
def test_gradients_and_updates_are_those_of_the_adapters(sharding):
    # MLCommons training_policies, llama2_70b_lora: rank 16 beside queries, keys, values and the output projection.
    plan = TrainingPlan(dp=8, micro_batch=1, global_batch=8, sequence=8192, sharding=sharding)
    program = rank_program(SHAPE, replace(plan, adapter_rank=16))
    reduced = sum(
        c.transfer.bytes for c in (*program.weight, *program.gradient) if c.transfer and "gather" not in c.name
    )
    assert reduced == 4 * 44_564_480
    whole = rank_program(SHAPE, plan).parameter_count
    assert program.parameter_count == whole + 44_564_480
