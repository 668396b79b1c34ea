"""Traits of model types that their configurations leave open: norms, biases, activation, positions."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Layers of a model type, as its class in transformers (5.23) or in the stated repository defines them."""

    norm: str = "rms_norm"
    """`rms_norm` or `layer_norm`."""
    is_gated: bool = True
    """Whether the feed-forward part has a gate."""
    bias: str = ""
    """Projections that add biases unless the configuration says otherwise: empty, `all`, `qkv`, `ffn`."""
    bias_settings: tuple[str, ...] = ("attention_bias", "mlp_bias")
    """Settings that turn biases on."""
    has_norm_bias: bool = False
    """Whether layer norms add biases."""
    has_qk_norm: bool = False
    """Whether queries and keys are normalised."""
    norm_count: int = 2
    """Norms of a layer across its hidden width."""
    is_parallel: bool = False
    """Whether attention and feed-forward part read the same input."""
    positions: str = "rotary"
    """`rotary`, `learned` or `none`."""
    activation: str = "silu"
    """Activation where no setting names it."""
    is_tied: bool = False
    """Whether the head is the embedding where no setting says so."""
    is_causal: bool = True
    """Whether attention is causal."""
    has_sinks: bool = False
    """Whether attention has sinks."""
    window_step: int = 1
    """One layer in so many is not windowed where no list of layers is given; 1 for none, 0 for all windowed."""


_LLAMA = Family()
_GPT = Family(norm="layer_norm", is_gated=False, bias="all", has_norm_bias=True, activation="gelu")
_GPT_LEARNED = Family(
    norm="layer_norm", is_gated=False, bias="all", has_norm_bias=True, activation="gelu", positions="learned",
    is_tied=True,
)  # fmt: skip
_BERT = Family(
    norm="layer_norm", is_gated=False, bias="all", has_norm_bias=True, activation="gelu", positions="learned",
    is_tied=True, is_causal=False,
)  # fmt: skip
_GEMMA_3 = Family(norm_count=4, has_qk_norm=True, activation="gelu", is_tied=True, window_step=6)
_COHERE = Family(norm="layer_norm", norm_count=1, is_parallel=True, is_tied=True)

FAMILIES: Mapping[str, Family] = {
    "apertus": Family(is_gated=False, has_qk_norm=True),
    "aquila": _LLAMA,
    "arcee": Family(is_gated=False, activation="relu"),
    "baichuan": _LLAMA,
    "bert": _BERT,
    "bloom": Family(
        norm="layer_norm", is_gated=False, bias="all", has_norm_bias=True, activation="gelu", positions="none",
        is_tied=True,
    ),
    "chatglm": Family(bias="qkv", bias_settings=("add_bias_linear",)),
    "cohere": _COHERE,
    "cohere2": Family(norm="layer_norm", norm_count=1, is_parallel=True, is_tied=True, window_step=4),
    "dbrx": Family(norm="layer_norm"),
    "deci": _LLAMA,
    "deepseek": _LLAMA,
    "deepseek_v2": _LLAMA,
    "deepseek_v3": _LLAMA,
    "ernie4_5": Family(is_tied=True, bias_settings=("use_bias",)),
    "ernie4_5_moe": Family(is_tied=True, bias_settings=("use_bias",)),
    "exaone4": Family(has_qk_norm=True, window_step=4),
    "falcon": Family(
        norm="layer_norm", is_gated=False, bias_settings=("bias",), has_norm_bias=True, norm_count=1,
        is_parallel=True, activation="gelu", is_tied=True,
    ),
    "gemma": Family(activation="gelu", is_tied=True),
    "gemma2": Family(norm_count=4, activation="gelu", is_tied=True, window_step=2),
    "gemma3": _GEMMA_3,
    "gemma3_text": _GEMMA_3,
    "glm": Family(bias="qkv"),
    "glm4": Family(bias="qkv", norm_count=4),
    "glm4_moe": Family(bias="qkv"),
    "gpt2": _GPT_LEARNED,
    "gpt_bigcode": _GPT_LEARNED,
    "gpt_neo": Family(
        norm="layer_norm", is_gated=False, bias="ffn", has_norm_bias=True, activation="gelu", positions="learned",
        is_tied=True,
    ),
    "gpt_neox": Family(
        norm="layer_norm", is_gated=False, bias="all", has_norm_bias=True, activation="gelu", is_parallel=True
    ),
    "gpt_oss": Family(bias="all", has_sinks=True, window_step=2),
    "gptj": Family(
        norm="layer_norm", is_gated=False, bias="ffn", has_norm_bias=True, norm_count=1, is_parallel=True,
        activation="gelu",
    ),
    "granite": Family(is_tied=True),
    "granitemoe": Family(is_tied=True),
    "grok": Family(norm_count=4, activation="gelu", is_tied=True),
    "hunyuan_v1_dense": Family(has_qk_norm=True, is_tied=True),
    "internlm2": Family(bias_settings=("bias",)),
    "kimi_k2": _LLAMA,
    "llama": _LLAMA,
    "llama4": Family(window_step=4),
    "llama4_text": Family(window_step=4),
    "megatron_gpt": _GPT_LEARNED,
    "minicpm": _LLAMA,
    "minimax_m2": Family(has_qk_norm=True),
    "ministral": Family(window_step=4),
    "mistral": Family(window_step=0),
    "mixtral": Family(window_step=0),
    "modernbert": Family(norm="layer_norm", activation="gelu", is_tied=True, is_causal=False, window_step=3),
    "mpt": Family(norm="layer_norm", is_gated=False, activation="gelu", positions="none", is_tied=True),
    "mpt_learned": Family(
        norm="layer_norm", is_gated=False, bias="all", has_norm_bias=True, activation="gelu", positions="learned",
        is_tied=True,
    ),
    "nemotron": Family(norm="layer_norm", is_gated=False, has_norm_bias=True, activation="relu"),
    "olmo": Family(norm="layer_norm"),
    "olmo2": Family(has_qk_norm=True),
    "olmo3": Family(has_qk_norm=True, window_step=4),
    "olmoe": Family(has_qk_norm=True),
    "opt": Family(
        norm="layer_norm", is_gated=False, bias="all", has_norm_bias=True, activation="relu", positions="learned",
        is_tied=True,
    ),
    "persimmon": Family(norm="layer_norm", is_gated=False, bias="all", has_norm_bias=True, activation="relu"),
    "phi": Family(
        norm="layer_norm", is_gated=False, bias="all", has_norm_bias=True, norm_count=1, is_parallel=True,
        activation="gelu",
    ),
    "phi3": Family(window_step=0),
    "phimoe": Family(norm="layer_norm", has_norm_bias=True, window_step=0),
    "qwen": Family(bias="qkv"),
    "qwen2": Family(bias="qkv", window_step=0),
    "qwen2_moe": Family(bias="qkv", window_step=0),
    "qwen3": Family(has_qk_norm=True, window_step=0),
    "qwen3_moe": Family(has_qk_norm=True, window_step=0),
    "roberta": _BERT,
    "seed_oss": Family(bias="qkv"),
    "smollm3": Family(is_tied=True),
    "solar": _LLAMA,
    "stablelm": Family(norm="layer_norm", has_norm_bias=True),
    "starcoder2": Family(
        norm="layer_norm", is_gated=False, bias="all", has_norm_bias=True, activation="gelu", is_tied=True,
        window_step=0,
    ),
    "yi": _LLAMA,
}  # fmt: skip
"""Families by `model_type`; `megatron_gpt` is Megatron-LM's GPT, `mpt_learned` llm-foundry's MPT with learned positions
and biases, as its benchmarks train it."""
