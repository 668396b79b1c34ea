"""Memory of a serving engine against published figures."""

import pytest

from nearpeak.core.systems.transformer import Experts, LatentAttention, TransformerShape
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.systems.serving.cache_memory import cache_blocks, cache_token_bytes, profile_bytes, weight_bytes


def _dense(
    name: str, layers: int, hidden: int, heads: int, kv_heads: int, ffn: int, vocabulary: int
) -> TransformerShape:
    return TransformerShape(
        name=name, layer_count=layers, hidden=hidden, head_count=heads, kv_head_count=kv_heads, head_width=128, ffn=ffn,
        is_gated=True, vocabulary=vocabulary,
    )  # fmt: skip


LLAMA_8B = _dense("llama-3.1-8b", 32, 4096, 32, 8, 14336, 128256)
LLAMA_70B = _dense("llama-3.1-70b", 80, 8192, 64, 8, 28672, 128256)
DEEPSEEK_V3 = TransformerShape(
    name="deepseek-v3", layer_count=61, hidden=7168, head_count=128, kv_head_count=128, head_width=128, ffn=18432,
    is_gated=True, vocabulary=129280,
    experts=Experts(count=256, per_token=8, width=2048, shared_width=2048, dense_layer_count=3),
    latent=LatentAttention(query_rank=1536, cache_rank=512, rotary_width=64, key_width=128, value_width=128),
)  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "token_bytes"),
    [
        (LLAMA_8B, 131_072),
        (LLAMA_70B, 327_680),
        (_dense("llama-3.1-405b", 126, 16384, 128, 8, 53248, 128256), 516_096),
        (_dense("qwen3-32b", 64, 5120, 64, 8, 25600, 151936), 262_144),
        (_dense("qwen3-30b-a3b", 48, 2048, 32, 4, 6144, 151936), 98_304),
        (DEEPSEEK_V3, 70_272),
    ],
)
def test_a_token_takes_the_published_bytes_of_cache(shape: TransformerShape, token_bytes: int) -> None:
    assert cache_token_bytes(shape) == token_bytes
    assert cache_token_bytes(shape, number_format="fp8") == token_bytes // 2


def test_heads_are_split_down_to_one_and_a_compressed_cache_is_not() -> None:
    assert cache_token_bytes(LLAMA_70B, tp=8) == 327_680 // 8
    assert cache_token_bytes(LLAMA_70B, tp=16) == 327_680 // 8
    assert cache_token_bytes(DEEPSEEK_V3, tp=8) == 70_272


def test_blocks_of_an_rtx_4090_are_those_that_the_engine_reports() -> None:
    # LLMServingSim's documents: 25,250,627,584 B, 0.9, Llama-3.1-8B in bf16, 2,588 blocks of 16 tokens;
    # 0.56 GB is what they leave for driver context and the like beside the profile run
    blocks = cache_blocks(
        device_bytes=25_250_627_584, utilisation=0.9, weights_bytes=weight_bytes(LLAMA_8B),
        profile_peak_bytes=profile_bytes(LLAMA_8B, token_budget=2048, sequence_count=256), context_bytes=564_000_000,
        token_bytes=cache_token_bytes(LLAMA_8B),
    )  # fmt: skip
    assert blocks == 2588


def test_weights_are_stored_with_their_scales() -> None:
    whole, ends = weight_bytes(LLAMA_8B), 2 * 2 * 128256 * 4096
    products, norms = 32 * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336), 2 * 65 * 4096
    assert whole == 2 * products + ends + norms
    assert weight_bytes(LLAMA_8B, number_format="int4_weight_only") == products * 17 // 32 + ends + norms
    assert weight_bytes(LLAMA_8B, number_format="nvfp4") == products * 9 // 16 + ends + norms
    assert weight_bytes(DEEPSEEK_V3, ep=8, tp=8) < weight_bytes(DEEPSEEK_V3) / 7


def test_a_model_that_does_not_fit_and_an_unknown_format_are_refused_in_one_line() -> None:
    with pytest.raises(SpecError, match=r"^no room for a KV cache: weights 141.11 GB .* short of one block$"):
        cache_blocks(
            device_bytes=80 * 10**9, utilisation=0.9, weights_bytes=weight_bytes(LLAMA_70B), profile_peak_bytes=0,
            token_bytes=cache_token_bytes(LLAMA_70B),
        )  # fmt: skip
    with pytest.raises(NotModelledError, match=r"^no rule for the stored size of 'fp3'"):
        weight_bytes(LLAMA_8B, number_format="fp3")
