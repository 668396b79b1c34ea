"""Weights and caches in narrower formats: exact bytes, what stays wide, refusals before anything is captured."""

import json

import pytest

from nearpeak import analyze, capture
from nearpeak.bounds.step.compulsory_work import touched_work
from nearpeak.bounds.step.step_bound import least_work
from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.core.work.distinct_calls import touched_bytes
from nearpeak.core.work.stored_formats import WEIGHTS, weight_format
from nearpeak.errors import SpecError
from nearpeak.frontends.files.saved_workload import load_text, save_text
from nearpeak.frontends.huggingface.published_models import published
from nearpeak.frontends.huggingface.published_quantisation import weights_option
from nearpeak.frontends.quantisation.narrow_cache import with_narrow_cache
from nearpeak.frontends.quantisation.quantised_weights import with_quantised_weights
from nearpeak.frontends.source_types import captured, refuse_early
from nearpeak.ops import work_of

pytest.importorskip("torch")
pytest.importorskip("transformers")

from nearpeak.frontends.huggingface.architecture import capture_architecture

KV = 64
LAYERS, HIDDEN, INNER, HEADS, GROUPS, VOCAB = 2, 128, 256, 4, 2, 512
DIM = HIDDEN // HEADS
LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": VOCAB, "hidden_size": HIDDEN,
    "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
    "num_key_value_heads": GROUPS, "max_position_embeddings": 128, "torch_dtype": "bfloat16",
}  # fmt: skip
EXPERTS = {
    **LLAMA, "model_type": "qwen3_moe", "architectures": ["Qwen3MoeForCausalLM"], "num_experts": 8,
    "num_experts_per_tok": 2, "moe_intermediate_size": 128, "decoder_sparse_step": 1, "head_dim": DIM,
}  # fmt: skip
LATENT = {
    **LLAMA, "model_type": "deepseek_v3", "architectures": ["DeepseekV3ForCausalLM"], "q_lora_rank": 64,
    "kv_lora_rank": 64, "qk_rope_head_dim": 16, "qk_nope_head_dim": 32, "v_head_dim": 32, "first_k_dense_replace": 2,
    "num_key_value_heads": HEADS,
}  # fmt: skip
LAYER_WEIGHTS = LAYERS * (2 * HIDDEN * HIDDEN + 2 * HIDDEN * GROUPS * DIM + 3 * HIDDEN * INNER)
"""Weights of the linear layers of LLAMA."""


@pytest.fixture(scope="module")
def decode(tmp_path_factory):
    folder = tmp_path_factory.mktemp("configs")

    def of(config):
        path = folder / f"{config['model_type']}.json"
        path.write_text(json.dumps(config))
        return capture_architecture(path, CaptureOptions(step="decode", kv=KV, batch=2))

    return {name: of(config) for name, config in (("dense", LLAMA), ("experts", EXPERTS), ("latent", LATENT))}


def sizes(workload, kind):
    return sum(buffer.bytes for buffer in workload.buffers if buffer.kind == kind)


@pytest.mark.parametrize("name", WEIGHTS)
def test_products_read_the_bytes_that_their_rule_counts(decode, name):
    step = with_quantised_weights(decode["dense"], weight_format(name))
    products = [call for call in step.calls if call.case and call.case.op == "scaled_gemm"]
    assert len(products) == 7 * LAYERS
    for call in products:
        work = work_of(call.case)
        assert touched_bytes(call.reads) == work.read_bytes
        assert touched_work(touched_bytes(call.reads), touched_bytes(call.writes), work) == work


@pytest.mark.parametrize(("name", "bits"), [("fp8", 8), ("int4", 4), ("nvfp4", 4)])
def test_weights_of_layers_shrink_and_the_others_stay(decode, name, bits):
    wide = decode["dense"]
    step = with_quantised_weights(wide, weight_format(name))
    saved = sizes(wide, "weight") - sizes(step, "weight")
    scales = LAYER_WEIGHTS * (16 - bits) // 8 - saved
    assert 0 < scales < 0.07 * LAYER_WEIGHTS
    head = [call for call in step.calls if call.module == "lm_head"]
    assert [call.case.op for call in head] == ["gemm"]
    assert step.origin["weights"] == weight_format(name).scheme_name


def test_activations_that_products_share_are_quantised_once(decode):
    step = with_quantised_weights(decode["dense"], weight_format("fp8"))
    made = [call for call in step.calls if call.case and call.case.op == "quantise"]
    assert len(made) == 4 * LAYERS  # of q, k and v; of the attention's output; of gate and up; of down
    weights_alone = with_quantised_weights(decode["dense"], weight_format("int8", "bf16"))
    assert not [call for call in weights_alone.calls if call.case and call.case.op == "quantise"]


def test_the_bound_of_a_decode_step_falls_by_the_bytes_saved(decode):
    wide = decode["dense"]
    step = with_narrow_cache(with_quantised_weights(wide, weight_format("fp8")), "fp8_e4m3")
    stored = [sizes(each, "weight") + sizes(each, "kv_cache") for each in (wide, step)]
    works = [least_work(each)[1] for each in (wide, step)]
    for engine in ("as_written", "simplified"):
        before, after = (getattr(work, engine).read_bytes for work in works)
        written = 2 * LAYERS * 2 * GROUPS * DIM  # elements that the step adds to its cache itself
        assert abs((before - after) - (stored[0] - stored[1])) <= written


def test_routers_stay_wide_and_experts_alone_can_be_narrow(decode):
    whole = with_quantised_weights(decode["experts"], weight_format("fp8"))
    routers = {call.case.op for call in whole.calls if call.case and call.module.endswith("mlp.gate")}
    assert "gemm" in routers
    assert "scaled_gemm" not in routers
    some = with_quantised_weights(decode["experts"], weight_format("experts=mxfp4"))
    formats = {dict(call.case.dtypes)["dtype"] for call in some.calls if call.case and call.case.op == "grouped_gemm"}
    assert formats == {"mxfp4_weight_only"}
    assert not [call for call in some.calls if call.case and call.case.op == "scaled_gemm"]
    for call in whole.calls:
        if call.case and call.case.op == "grouped_gemm":
            assert touched_bytes(call.reads) == work_of(call.case).read_bytes


def test_attention_reads_a_narrow_cache_and_new_keys_are_converted(decode):
    step = with_narrow_cache(decode["dense"], "fp8_e4m3")
    assert 2 * sizes(step, "kv_cache") == sizes(decode["dense"], "kv_cache")
    attention = [call.case for call in step.calls if call.case and call.case.op == "attention"]
    assert {dict(case.dtypes)["kv_dtype"] for case in attention} == {"fp8_e4m3"}
    caches = {number for number, buffer in enumerate(step.buffers) if buffer.kind == "kv_cache"}
    writers = [call for call in step.calls if any(use.buffer in caches for use in call.writes)]
    assert {call.case.op for call in writers} == {"cast"}
    assert {layout.dtype for number, layout in step.returned if number in caches} == {"fp8_e4m3"}


def test_what_expands_a_compressed_cache_reads_a_converted_copy(decode):
    step = with_narrow_cache(decode["latent"], "fp8_e4m3")
    caches = {number for number, buffer in enumerate(step.buffers) if buffer.kind == "kv_cache"}
    readers = {call.case.op for call in step.calls if any(use.buffer in caches for use in call.reads)}
    assert readers == {"cast"}


@pytest.mark.parametrize("name", ["dense", "experts", "latent"])
def test_a_narrow_step_is_saved_and_analysed_like_any_other(decode, name):
    step = with_narrow_cache(with_quantised_weights(decode[name], weight_format("fp8_block")), "fp8_e4m3")
    again = load_text(save_text(step), "again")
    assert again.calls == step.calls
    wide, narrow = (analyze(each, "h100_sxm").targets[0] for each in (decode[name], again))
    assert narrow.bound_s < wide.bound_s
    assert all(execution.time_s >= narrow.bound_s for execution in narrow.executions)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": "fp9"}, "--weights 'fp9': is not one of fp8, "),
        ({"weights": "heads=fp8"}, "'heads' is no part of a model"),
        ({"weights": "int4", "activations": "int8"}, "goes not with --weights int4; it takes bf16"),
        ({"weights": "fp8_row", "activations": "fp8"}, "states them already"),
        ({"activations": "fp8"}, "goes with --weights"),
        ({"kv_cache": "fp7", "step": "decode"}, "--kv-cache 'fp7': is not one of fp8, "),
        ({"weights": "fp8", "step": "train"}, "weights that are trained"),
        ({"weights": "fp8", "dtype": "fp32"}, "leave out --dtype fp32"),
        ({"weights": "fp8", "fusion": "inductor"}, "leave out --fusion inductor"),
    ],
)
def test_formats_that_cannot_be_served_are_refused_with_the_options(options, message):
    with pytest.raises(SpecError, match=message):
        CaptureOptions(**options)


@pytest.mark.parametrize(
    ("source", "options", "message"),
    [
        ("llama-3-8b", {"dtype": "fp8"}, "give --weights fp8"),
        ("hf:llama", {"dtype": "int8"}, "give --weights int8"),
        ("llama-3-8b", {"kv_cache": "fp8"}, "give --phase decode"),
        ("step.toml", {"weights": "fp8"}, "--weights has no meaning for it"),
    ],
)
def test_a_source_refuses_formats_before_anything_is_captured(tmp_path, source, options, message):
    with pytest.raises(SpecError, match=message):
        refuse_early(source, CaptureOptions(**options))
    if source != "step.toml":
        with pytest.raises(SpecError, match=message):
            captured(source, CaptureOptions(**options))


def test_a_saved_step_takes_formats_without_another_capture(decode, tmp_path):
    path = tmp_path / "step.json"
    path.write_text(save_text(decode["dense"]))
    step = captured(str(path), CaptureOptions(weights="int4", kv_cache="int8"))
    assert step.origin["weights"] == "int4_weight_only"
    assert step.origin["kv_cache"] == "int8"
    with pytest.raises(SpecError, match="has no bf16 product"):
        with_quantised_weights(step, weight_format("int4"))


@pytest.mark.parametrize(
    ("weights", "activations", "option"),
    [
        ({"num_bits": 8, "type": "float", "strategy": "channel"}, {"num_bits": 8}, "fp8"),
        ({"num_bits": 8, "type": "float", "strategy": "tensor"}, {"num_bits": 8}, "fp8_tensor"),
        ({"num_bits": 8, "type": "int", "strategy": "channel"}, {"num_bits": 8}, "int8"),
        ({"num_bits": 8, "type": "int", "strategy": "channel"}, None, "int8_weight_only"),
        ({"num_bits": 4, "type": "int", "strategy": "group", "group_size": 64}, None, "int4_weight_only_64"),
        ({"num_bits": 4, "type": "float", "strategy": "group", "group_size": 16}, {"num_bits": 4}, "nvfp4"),
        ({"num_bits": 3, "type": "int", "strategy": "group", "group_size": 64}, None, ""),
        (None, None, ""),
    ],
)
def test_a_published_quantisation_is_named_as_the_option_that_stores_weights_so(weights, activations, option):
    groups = {"group_0": {"weights": weights, "input_activations": activations}}
    assert weights_option({"quant_method": "compressed-tensors", "config_groups": groups}) == option
    assert not option or weight_format(option)


def test_a_config_with_a_quantisation_says_how_to_apply_it(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps({**LLAMA, "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}})
    )
    assert published(path).notes == (
        "config.json names weights as --weights int4 stores them; without it they stay in 16 bits.",
    )
    path.write_text(json.dumps({**LLAMA, "quantization_config": "fp8"}))
    assert published(path).notes == ()


@pytest.fixture(scope="module")
def network():
    import torch
    from torch import nn

    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Conv2d(3, 16, 3, padding=1)
            self.layers = nn.ModuleList([nn.Conv2d(16, 16, 3, padding=1), nn.Conv2d(16, 16, 1, stride=2)])
            self.head = nn.Linear(16, 10)

        def forward(self, x):
            x = self.stem(x)
            first, second = (layer(x) for layer in self.layers)
            return self.head((first[..., ::2, ::2] + second).mean((2, 3)))

    return Residual().to(torch.bfloat16), (torch.empty(2, 3, 8, 8, dtype=torch.bfloat16),)


@pytest.mark.parametrize(("name", "dtype"), [("int8", "int8"), ("fp8", "fp8_e4m3")])
def test_convolutions_of_layers_take_8_bits_and_their_shared_input_is_quantised_once(network, name, dtype):
    module, inputs = network
    step = capture(module, inputs=inputs, weights=name)
    formats = [dict(call.case.dtypes) for call in step.calls if call.case and call.case.op == "conv"]
    assert formats == [{"dtype": "bf16", "out_dtype": "bf16"}] + 2 * [{"dtype": dtype, "out_dtype": "bf16"}]
    quantised = [call.case for call in step.calls if call.case and call.case.op == "quantise"]
    assert [dict(case.axes)["columns"] for case in quantised] == [2 * 16 * 8 * 8]
    sizes_of_weights = {buffer.name: buffer.bytes for buffer in step.buffers if buffer.kind == "weight"}
    assert sizes_of_weights["layers.0.weight"] == 16 * 16 * 9 + 4 * 16
    assert sizes_of_weights["stem.weight"] == 2 * 16 * 3 * 9
    assert analyze(step, "h100_sxm").complete


def test_a_format_that_convolutions_do_not_take_is_refused_where_they_hold_the_weights(network):
    module, inputs = network
    with pytest.raises(SpecError, match="leave it out"):
        capture(module, inputs=inputs, weights="int4")


@pytest.mark.parametrize(("name", "kind"), [("int4", "bf16"), ("int8", "int8"), ("fp8", "fp8_e4m3")])
def test_products_with_a_bias_are_formed_in_the_formats_of_their_factors(name, kind):
    import torch

    module = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)).bfloat16()
    step = capture(module, inputs=(torch.empty(64, 256, dtype=torch.bfloat16),), weights=name)
    work = least_work(step)[1]
    products = {f"matrix.{kind}": 2 * 2 * 64 * 256 * 512}
    for engine in (work.as_written, work.simplified):
        assert {unit: flop for unit, flop in engine.flop.items() if unit.startswith("matrix")} == products
