"""Kernels and collectives of transformer layers: work is conserved over ranks, and degree 1 talks to nobody."""

from dataclasses import replace
from math import prod

import pytest

from nearpeak.core.systems.transformer import Experts
from nearpeak.errors import SpecError
from nearpeak.frontends.huggingface.transformer_models import shape_from_extents, shape_of
from nearpeak.ops import work_of
from nearpeak.systems.transformer.attention_core import live_pairs
from nearpeak.systems.transformer.layer import layer_calls
from nearpeak.systems.transformer.layout import FUSIONS, Formats, Layout, training_formats, validated
from nearpeak.systems.transformer.model_ends import embedding_calls, head_calls
from nearpeak.systems.transformer.pass_calls import joined
from nearpeak.systems.transformer.token_batch import ServingBatch, TrainingBatch, row_count

BATCH = TrainingBatch(sequences=2, length=1024)
SHAPES = ["llama-3-8b", "gpt2", "qwen3-30b-a3b", "deepseek-v2-lite", "gemma-2-9b", "falcon-7b", "gpt-oss-20b"]
PRODUCTS = ("gemm", "grouped_gemm", "scaled_gemm")


def product_flop(calls):
    total = 0
    for call in calls:
        axes = dict(call.case.axes) if call.case and call.case.op in PRODUCTS else {}
        total += call.count * 2 * prod(axes[axis] for axis in "mnk") * axes.get("batch", 1) if axes else 0
    return total


def flop(calls, op):
    return sum(call.count * sum(work_of(call.case).flop.values()) for call in calls if call.case and call.case.op == op)


def transfers(calls):
    return [call.transfer for call in calls if call.transfer]


def whole(shape, layout, batch=BATCH, **options):
    layer = layer_calls(shape, layout, batch, has_experts=bool(shape.experts), **options)
    return joined(embedding_calls(shape, layout, batch), layer, head_calls(shape, layout, batch))


@pytest.mark.parametrize("name", SHAPES)
def test_one_rank_talks_to_nobody(name):
    calls = whole(shape_of(name), Layout())
    assert not transfers((*calls.forward, *calls.backward, *calls.weight))


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("fusions", FUSIONS)
def test_fusions_change_kernels_but_no_products(name, fusions):
    calls, fused = (
        whole(shape_of(name), Layout(fusions=FUSIONS[fusions] | {"attention"})),
        whole(shape_of(name), Layout()),
    )
    for part in ("forward", "backward", "weight"):
        assert product_flop(getattr(calls, part)) == product_flop(getattr(fused, part))


def test_a_dense_layer_multiplies_each_weight_once_a_pass():
    shape, tokens = shape_of("llama-3-8b"), BATCH.tokens
    calls = layer_calls(shape, Layout(), BATCH)
    weights = 4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14_336
    assert [product_flop(getattr(calls, part)) for part in ("forward", "backward", "weight")] == [
        2 * tokens * weights
    ] * 3


@pytest.mark.parametrize("is_split", [False, True])
@pytest.mark.parametrize("name", ["llama-3-8b", "gpt3-175b", "qwen3-30b-a3b"])
def test_tensor_parallel_ranks_share_the_products(name, is_split):
    shape = shape_of(name)
    one = whole(shape, Layout())
    ranks = Layout(tp=4, sequence_parallel=is_split, etp=4)
    parts = whole(shape, ranks)
    # The router runs on each rank: on all rows, or on those of the rank.
    router = [call for call in parts.forward if call.name == "experts.router"]
    repeated = (4 * product_flop(router) - 2 * BATCH.tokens * shape.hidden * shape.experts.count) if router else 0
    padding = 2 * BATCH.tokens * shape.hidden * (-shape.vocabulary % 4)
    assert 4 * product_flop(parts.forward) == product_flop(one.forward) + repeated + padding


def test_gather_and_scatter_move_what_a_reduction_moves():
    shape = shape_of("llama-3-8b")
    plain = transfers(layer_calls(shape, Layout(tp=8), BATCH).forward)
    split = transfers(layer_calls(shape, Layout(tp=8, sequence_parallel=True), BATCH).forward)
    assert [t.kind for t in plain] == ["all_reduce"] * 2
    assert [t.kind for t in split] == ["all_gather", "reduce_scatter"] * 2
    assert {t.bytes for t in plain} == {t.bytes for t in split} == {BATCH.tokens * 4096 * 2}


def test_key_heads_are_replicated_beyond_their_number():
    shape = shape_of("llama-3-70b")
    case = next(c.case for c in layer_calls(shape, Layout(tp=16), BATCH).forward if c.name == "attention")
    assert (dict(case.axes)["heads"], dict(case.axes)["kv_heads"]) == (4, 1)
    product = next(c.case for c in layer_calls(shape, Layout(tp=16), BATCH).forward if c.name == "attention.qkv")
    assert dict(product.axes)["n"] == (4 + 2) * 128


@pytest.mark.parametrize("cp", [2, 4])
def test_context_parallel_ranks_share_causal_attention_exactly(cp):
    shape = shape_of("llama-3-8b")
    one = flop(layer_calls(shape, Layout(), BATCH).forward, "attention")
    calls = layer_calls(shape, Layout(cp=cp), BATCH).forward
    assert cp * flop(calls, "attention") == pytest.approx(one, rel=1e-12)
    hops = [t for t in transfers(calls) if t.dim == "cp"]
    assert len(hops) == cp - 1
    assert hops[0].bytes == BATCH.sequences * BATCH.length // cp * 2 * 8 * 128 * 2


def test_all_to_all_context_parallelism_splits_heads():
    calls = layer_calls(shape_of("llama-3-8b"), Layout(cp=4, cp_kind="all_to_all"), BATCH).forward
    case = next(c.case for c in calls if c.case and c.case.op == "attention")
    assert (dict(case.axes)["heads"], dict(case.axes)["q"]) == (8, 1024)
    assert [t.kind for t in transfers(calls)] == ["all_to_all"] * 4


def test_as_many_experts_as_a_token_takes_are_a_dense_part():
    dense = shape_from_extents(hidden=256, layers=2, heads=4, vocabulary=1000, ffn=1024)
    sparse = replace(dense, experts=Experts(count=4, per_token=4, width=256))
    calls = layer_calls(sparse, Layout(), BATCH, has_experts=True)
    router = 2 * BATCH.tokens * 256 * 4
    assert product_flop(calls.forward) - router == product_flop(layer_calls(dense, Layout(), BATCH).forward)


def test_expert_parallel_ranks_exchange_the_rows_of_their_tokens():
    shape = shape_of("qwen3-30b-a3b")
    calls = layer_calls(shape, Layout(ep=8), BATCH, has_experts=True)
    sent = [t for t in transfers(calls.forward) if t.kind == "all_to_all"]
    assert [t.bytes for t in sent] == [BATCH.tokens * 8 * 2048 * 2] * 2
    up = next(c.case for c in calls.forward if c.name == "experts.up")
    assert (dict(up.axes)["groups"], dict(up.axes)["m"]) == (16, BATCH.tokens * 8)


def test_a_random_load_makes_one_rank_the_busiest():
    shape, batch = shape_of("qwen3-30b-a3b"), TrainingBatch(sequences=1, length=512)
    rows = [
        next(dict(c.case.axes)["m"] for c in calls.forward if c.name == "experts.up")
        for load in ("balanced", "uniform seed=0", "zipf exponent=0.5 seed=0")
        for calls in [layer_calls(shape, Layout(ep=8, expert_load=load), batch, has_experts=True)]
    ]
    assert rows[0] == 512 * 8
    assert rows[0] < rows[1] < rows[2]


def test_a_decode_over_latent_attention_reads_the_compressed_cache():
    step = ServingBatch(decode_count=4, decode_cached_tokens=4000)
    calls = layer_calls(shape_of("deepseek-v3"), Layout(tp=8, fusions=FUSIONS["serving"]), step)
    case = next(c.case for c in calls.forward if c.name == "attention.decode")
    assert (dict(case.axes)["heads"], dict(case.axes)["kv_heads"], dict(case.axes)["dim"]) == (16, 1, 576)
    assert (calls.backward, calls.weight) == ((), ())
    assert 4000 * 576 * 2 < work_of(case).read_bytes < 1.1 * 4000 * 576 * 2


def test_a_step_mixes_prefills_and_decodes_in_one_product():
    step = ServingBatch(prefills=((512, 0), (100, 1000)), decode_count=8, decode_cached_tokens=10_000)
    calls = layer_calls(shape_of("llama-3-8b"), Layout(fusions=FUSIONS["serving"]), step).forward
    assert [dict(c.case.axes)["m"] for c in calls if c.case.op == "gemm"] == [620] * 4
    prefill = next(c.case for c in calls if c.name == "attention.prefill")
    assert dict(prefill.axes)["live_pairs"] == 512 * 513 // 2 + 100 * 1000 + 100 * 101 // 2


def test_windows_cut_pairs_as_enumeration_does():
    for new, prefix, window in ((5, 0, 3), (5, 7, 3), (4, 2, 4), (6, 1, 100)):
        pairs = sum(min(prefix + query + 1, window) for query in range(new))
        assert live_pairs(new, prefix, window) == pairs


def test_narrow_products_quantise_inputs_each_time_and_weights_once_a_step():
    calls = layer_calls(shape_of("llama-3-8b"), Layout(formats=training_formats("fp8-current")), BATCH)
    assert sum(c.name.endswith("quantise") for c in calls.forward) == 4
    assert sum(c.name.endswith("quantise") for c in calls.step) == 4
    split = Layout(tp=8, sequence_parallel=True, formats=training_formats("fp8-current"))
    kinds = [(t.kind, t.bytes) for t in transfers(layer_calls(shape_of("llama-3-8b"), split, BATCH).forward)]
    gathered = BATCH.tokens * 4096
    assert kinds == [("all_reduce", 4), ("all_gather", gathered + 4), ("reduce_scatter", 2 * gathered)] * 2


def test_weights_of_a_served_model_are_not_quantised_again():
    formats = Formats(attention="int4_weight_only", ffn="int4_weight_only", cache="fp8_e4m3")
    step = ServingBatch(decode_count=8, decode_cached_tokens=800)
    calls = layer_calls(shape_of("llama-3-8b"), Layout(fusions=FUSIONS["serving"], formats=formats), step).forward
    assert not [c for c in calls if c.case.op == "quantise"]
    assert sum(c.case.op == "scaled_gemm" for c in calls) == 4


@pytest.mark.parametrize(
    ("name", "layout", "message"),
    [
        ("llama-3-8b", Layout(tp=5), "tp=5 does not divide 32 heads; tp=4 would"),
        ("falcon-7b", Layout(tp=2), "tp=2 does not divide 71 heads; tp=1 would"),
        ("qwen3-30b-a3b", Layout(ep=12), "ep=12 does not divide 128 experts; ep=8 would"),
        ("qwen3-30b-a3b", Layout(etp=5), "etp=5 does not divide 768 expert width; etp=4 would"),
        ("llama-3-8b", Layout(ep=2), "ep=2, but it has no experts; ep=1 would work"),
    ],
)  # fmt: skip
def test_a_degree_that_does_not_divide_names_the_nearest_that_does(name, layout, message):
    with pytest.raises(SpecError, match=message):
        validated(shape_of(name), layout)


def test_unknown_kinds_are_refused_in_one_line():
    for options in ({"cp_kind": "mesh"}, {"exchange": "post"}, {"fusions": frozenset({"magic"})}, {"tp": 0}):
        with pytest.raises(SpecError, match=r"^layout: "):
            Layout(**options)
    with pytest.raises(SpecError, match="no multiple of 2 × cp 3; 1020 would be"):
        row_count(BATCH, 3)
    with pytest.raises(SpecError, match="hold at least 8 tokens"):
        ServingBatch(decode_count=8, decode_cached_tokens=3)
    with pytest.raises(SpecError, match="ffn='fp7' is not one of"):
        Formats(ffn="fp7")


def test_experts_without_a_grouped_kernel_launch_one_product_each():
    shape, formats = shape_of("qwen3-30b-a3b"), training_formats("mxfp8")
    alone, grouped = (
        layer_calls(shape, Layout(ep=8, formats=formats, fusions=fusions), BATCH, has_experts=True).forward
        for fusions in (FUSIONS["megatron-lm"], FUSIONS["megatron-lm"] | {"grouped"})
    )
    counts = [[c.kernel_count for c in calls if c.name.startswith("experts.up")] for calls in (alone, grouped)]
    assert counts == [[16, 16], [1, 1]]  # quantisation, product


def test_kernels_over_the_rows_of_experts_are_dynamic_and_the_router_is_not():
    calls = layer_calls(shape_of("qwen3-30b-a3b"), Layout(ep=8), BATCH, has_experts=True)
    by_name = {call.name: call.is_dynamic for call in calls.forward}
    assert by_name["experts.up"]
    assert by_name["experts.permute"]
    assert not by_name["experts.router"]
    assert not any(call.is_dynamic for call in layer_calls(shape_of("llama-3-8b"), Layout(), BATCH).forward)


def test_rows_with_scales_of_their_own_are_gathered_wide_and_need_no_agreed_magnitude():
    rows = Layout(tp=8, sequence_parallel=True, formats=training_formats("fp8-row"))
    whole = Layout(tp=8, sequence_parallel=True, formats=training_formats("fp8-current"))
    calls, other = (layer_calls(shape_of("llama-3-8b"), layout, BATCH).forward for layout in (rows, whole))
    gathered = [call.transfer.bytes for call in calls if call.name.endswith(".gather")]
    narrow = [call.transfer.bytes for call in other if call.name.endswith(".gather")]
    assert gathered == [2 * (size - 4) for size in narrow] != []  # a scale of 4 B goes with narrow ones
    assert not any(call.name.endswith(".amax") for call in calls)
    assert any(
        call.case.record()["dtype"] == "fp8_row" for call in calls if call.case and call.case.op == "scaled_gemm"
    )
