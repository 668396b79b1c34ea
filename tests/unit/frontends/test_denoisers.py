"""Image generators: published parameter counts, exact work of a small network, options without a meaning."""

from dataclasses import replace

import pytest

from nearpeak.core.work.capture_options import CaptureOptions
from nearpeak.errors import SpecError
from nearpeak.frontends.huggingface.published_models import MODELS

pytest.importorskip("torch")

from nearpeak.frontends.diffusion.denoiser_capture import DENOISERS, capture_denoiser, denoiser_parameters
from nearpeak.ops import work_of

NAMES = [name for name in MODELS if MODELS[name].model_type in DENOISERS]
TINY_FLUX = {
    "in_channels": 8, "image_tokens": 16, "text_tokens": 4, "context_in_dim": 32, "vec_in_dim": 16, "hidden_size": 64,
    "mlp_ratio": 4.0, "num_heads": 2, "depth": 1, "depth_single_blocks": 1, "guidance_embed": True,
}  # fmt: skip
TINY_UNET = {
    "sample_size": 8, "in_channels": 4, "block_out_channels": [32, 64], "layers_per_block": 1,
    "transformer_layers_per_block": [0, 1], "head_dim": 32, "cross_attention_dim": 48, "text_tokens": 7,
    "projection_class_embeddings_input_dim": 24,
}  # fmt: skip


def flop_of(workload, *ops):
    return sum(
        count * sum(flop for unit, flop in work_of(case).flop.items() if unit.startswith("matrix"))
        for case, count in workload.case_counts().items() if case.op in ops
    )  # fmt: skip


def captured(name, config, **options):
    return capture_denoiser(replace(MODELS[name], config=config), CaptureOptions(**options))


@pytest.mark.parametrize("name", NAMES)
def test_a_network_has_the_published_number_of_parameters(name):
    assert denoiser_parameters(MODELS[name]) == MODELS[name].parameters_count


def test_a_transformer_of_two_streams_does_the_work_of_its_products():
    workload = captured("flux.1-dev", TINY_FLUX, batch=3)
    width, ffn, text, image = 64, 256, 4, 16
    per_token = width * (
        3 * width + width + 2 * ffn
    )  # qkv, projection, two wide layers, the same in both kinds of block
    tokens = 2 * 3 * (text + image) * 2 * per_token + 2 * 3 * width * (text * 32 + 2 * image * 8)
    once = width * (6 * width * 2 + 3 * width + 2 * width) + 2 * width * (256 + width) + width * (16 + width)
    assert flop_of(workload, "gemm") == tokens + 2 * 3 * once
    assert flop_of(workload, "attention") == 2 * 4 * 3 * (text + image) ** 2 * width
    assert "img 3×16×8" in workload.origin["inputs"]
    assert any("One denoising step" in sentence for sentence in workload.assumptions)


def test_a_u_net_attends_to_text_and_to_itself_at_the_resolutions_that_its_dimensions_state():
    workload = captured("sdxl", TINY_UNET)
    # one stage down, one in the middle and two up, at 4×4 latents of 64 channels, each with one block
    own, cross, blocks = 16 * 16, 16 * 7, 4
    assert flop_of(workload, "attention") == blocks * 4 * (own + cross) * 64


def test_options_that_a_denoiser_has_no_use_for_are_refused():
    with pytest.raises(SpecError, match="makes no tokens one by one"):
        captured("sdxl", TINY_UNET, step="decode")
    with pytest.raises(SpecError, match="--sequence 8: sdxl takes image latents"):
        captured("sdxl", TINY_UNET, sequence=8)


def test_a_training_step_of_a_denoiser_has_all_its_phases():
    workload = captured("sdxl", TINY_UNET, step="train", batch=2)
    assert {call.phase for call in workload.calls} == {"forward", "backward", "optimizer"}
