"""Extents of a transformer, read from the plain fields of a Hugging Face configuration."""

import difflib
from collections.abc import Mapping
from typing import Any

from nearpeak.core.systems.transformer import Experts, LatentAttention, TransformerShape
from nearpeak.errors import NotModelledError, SpecError, UnknownNameError
from nearpeak.frontends.huggingface.transformer_families import FAMILIES, Family

_TEXT_PARTS = ("text_config", "language_config", "llm_config")
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "hidden": ("hidden_size", "n_embd", "d_model"),
    "layers": ("num_hidden_layers", "n_layer", "n_layers", "num_layers"),
    "heads": ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    "kv_heads": ("num_key_value_heads", "num_kv_heads", "n_head_kv", "multi_query_group_num", "kv_n_heads"),
    "head_width": ("head_dim", "kv_channels", "attention_head_dim"),
    "ffn": ("intermediate_size_mlp", "intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "d_ff"),
    "vocabulary": ("vocab_size", "padded_vocab_size"),
    "positions": ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "n_ctx"),
    "activation": ("hidden_act", "hidden_activation", "activation_function", "ffn_act_fn"),
    "experts": ("n_routed_experts", "num_local_experts", "num_experts", "moe_num_experts"),
    "per_token": ("num_experts_per_tok", "moe_topk", "moe_top_k", "moe_k", "num_selected_experts"),
    "expert_width": ("moe_intermediate_size", "expert_intermediate_size"),
}
"""Names under which configurations state each extent, the most specific one first."""
_NO_ATTENTION = ("linear_attention", "conv", "mamba", "recurrent")
"""Kinds of layers that no rule here splits."""
_ACTIVATIONS = ("silu", "gelu", "relu")


def shape_of_config(name: str, model_type: str, config: Mapping[str, Any]) -> TransformerShape:
    """Return the shape of a decoder-only or encoder-only transformer from its configuration.

    Args:
        config: fields as a config.json has them; a model with a language part inside (`text_config`) gives that one.

    Raises:
        UnknownNameError: no such model type is known.
        SpecError: the configuration does not state an extent.
        NotModelledError: some of its layers are no attention layers.

    >>> tiny = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    ...         "intermediate_size": 128, "vocab_size": 1000}
    >>> shape_of_config("tiny", "llama", tiny).head_width
    16
    """
    for part in _TEXT_PARTS:
        if isinstance(config.get(part), Mapping):
            inner = config[part]
            return shape_of_config(name, inner.get("model_type", model_type), inner)
    family = _family(name, model_type)
    # Fields of `attn_config` and `ffn_config` (MPT, DBRX) count as the model's own.
    config = {**(config.get("attn_config") or {}), **(config.get("ffn_config") or {}), **config}
    kinds = set(config.get("layer_types") or ())
    if kinds & set(_NO_ATTENTION):
        raise NotModelledError(f"{name}: layers of kind {sorted(kinds)[0]!r} are no attention; no rule splits them")
    hidden, heads = _extent(name, config, "hidden"), _extent(name, config, "heads")
    latent = _latent(config)
    ffn = _first(config, "ffn") or config.get("expansion_ratio", 4) * hidden
    if isinstance(ffn, list):
        raise NotModelledError(f"{name}: its feed-forward parts differ in width ({len(set(ffn))} widths)")
    return TransformerShape(
        name=name, layer_count=_extent(name, config, "layers"), hidden=hidden, head_count=heads,
        kv_head_count=heads if latent else _kv_heads(config, heads), head_width=_head_width(config, hidden, heads),
        ffn=int(ffn), vocabulary=_extent(name, config, "vocabulary"), **_traits(family, config),
        **_biases(family, config), **_window(family, config),
        rotary_width=_rotary_width(config, _head_width(config, hidden, heads)), experts=_experts(name, config),
        latent=latent,
    )  # fmt: skip


def _family(name: str, model_type: str) -> Family:
    if model_type in FAMILIES:
        return FAMILIES[model_type]
    near = difflib.get_close_matches(model_type, FAMILIES, n=1, cutoff=0.0)[0]
    raise UnknownNameError(
        f"{name}: model type {model_type!r} is not among the {len(FAMILIES)} whose layers are known, nearest {near!r}; "
        "state the extents instead: shape_from_extents(hidden=…, layers=…, heads=…)"
    )


def _first(config: Mapping[str, Any], extent: str) -> Any:
    return next((config[field] for field in _FIELDS[extent] if config.get(field) is not None), None)


def _extent(name: str, config: Mapping[str, Any], extent: str) -> int:
    value = _first(config, extent)
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    if value is not None:
        raise SpecError(f"{name}: {extent} is {value!r}; must be a whole number of at least 1")
    fields = _FIELDS[extent]
    near = difflib.get_close_matches(fields[0], config, n=1, cutoff=0.6)
    hint = f"; did you mean {fields[0]!r} by {near[0]!r}?" if near else ""
    raise SpecError(f"{name}: the configuration does not state {fields[0]!r} (or {', '.join(fields[1:])}){hint}")


def _kv_heads(config: Mapping[str, Any], heads: int) -> int:
    if config.get("multi_query") and not config.get("new_decoder_architecture"):
        return 1
    if config.get("multi_query_attention") is False:  # ChatGLM: the groups count only where they are used
        return heads
    layers = config.get("num_key_value_heads_per_layer")
    return int(max(layers)) if layers else int(_first(config, "kv_heads") or heads)


def _head_width(config: Mapping[str, Any], hidden: int, heads: int) -> int:
    return int(_first(config, "head_width") or hidden // heads)


def _traits(family: Family, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return norms, positions, activation and what else a configuration or its family fixes."""
    activation = str(_first(config, "activation") or family.activation)
    is_silu = any(word in activation for word in ("swi", "silu", "swish"))
    is_new_falcon = config.get("new_decoder_architecture") and config.get("num_ln_in_parallel_attn", 2) == 2
    positions = "learned" if config.get("learned_pos_emb") else family.positions
    return {
        "is_gated": "glu" in activation or family.is_gated,
        "activation": "silu" if is_silu else next((kind for kind in _ACTIVATIONS if kind in activation), "gelu"),
        "is_tied": bool(config.get("tie_word_embeddings", family.is_tied)),
        "norm": family.norm,
        "has_norm_bias": family.has_norm_bias and not config.get("no_bias", False),
        "has_qk_norm": bool(
            config.get("use_qk_norm", config.get("qk_layernorm", config.get("qk_norm", family.has_qk_norm)))
        ),
        "norm_count": 2 if is_new_falcon or config.get("parallel_attn") is False else family.norm_count,
        "is_parallel": bool(config.get("parallel_attn", config.get("use_parallel_residual", family.is_parallel))),
        "positions": "none" if config.get("alibi") else positions,
        "position_count": int(_first(config, "positions") or 0),
        "has_sinks": family.has_sinks,
        "has_softcap": bool(config.get("attn_logit_softcapping")),
        "is_causal": family.is_causal,
    }


def _biases(family: Family, config: Mapping[str, Any]) -> dict[str, Any]:
    default = family.bias
    if config.get("no_bias") or config.get("bias") is False or config.get("use_bias") is False:
        default = ""
    stated = {setting: config[setting] for setting in family.bias_settings if config.get(setting) is not None}
    attention, ffn = stated.get("attention_bias", False), stated.get("mlp_bias", False)
    everything = any(value for setting, value in stated.items() if setting not in ("attention_bias", "mlp_bias"))
    if default == "all" or everything or (attention and ffn):
        return {"has_bias": True, "has_qkv_bias": False, "has_ffn_bias": False}
    if default == "qkv" and stated.get("attention_bias") is False:
        default = ""
    qkv = default == "qkv" or bool(attention) or bool(config.get("add_qkv_bias") or config.get("use_qkv_bias"))
    return {"has_bias": False, "has_qkv_bias": qkv, "has_ffn_bias": default == "ffn" or bool(ffn)}


def _rotary_width(config: Mapping[str, Any], head_width: int) -> int:
    if config.get("rotary_dim"):
        return int(config["rotary_dim"])
    nested = config.get("rope_parameters") or {}
    share = next(
        (source[field] for source in (config, nested) for field in ("partial_rotary_factor", "rotary_pct")
         if source.get(field) is not None), 1,
    )  # fmt: skip
    return int(share * head_width) if share != 1 else 0


def _window(family: Family, config: Mapping[str, Any]) -> dict[str, Any]:
    layers = int(_first(config, "layers"))
    chunk = config.get("attention_chunk_size")
    width = config.get("sliding_window") or chunk or config.get("local_attention") or 0
    if not width or config.get("use_sliding_window") is False or family.window_step == 1:
        return {}
    kinds = config.get("layer_types") or ()
    step = config.get("sliding_window_pattern") or config.get("global_attn_every_n_layers") or family.window_step
    windowed = sum(kind != "full_attention" for kind in kinds) if kinds else layers - (layers // step if step else 0)
    if config.get("max_window_layers") is not None and not kinds:  # Qwen: the layers from there on
        windowed = max(layers - int(config["max_window_layers"]), 0)
    return {"window": int(width), "window_layer_count": windowed, "has_chunks": bool(chunk)}


def _latent(config: Mapping[str, Any]) -> LatentAttention | None:
    if not config.get("kv_lora_rank"):
        return None
    return LatentAttention(
        query_rank=int(config.get("q_lora_rank") or 0), cache_rank=int(config["kv_lora_rank"]),
        rotary_width=int(config["qk_rope_head_dim"]), key_width=int(config["qk_nope_head_dim"]),
        value_width=int(config["v_head_dim"]),
    )  # fmt: skip


def _experts(name: str, config: Mapping[str, Any]) -> Experts | None:
    count = _first(config, "experts")
    if not count or count == 1:
        return None
    per_token = _first(config, "per_token")
    if not per_token:
        raise SpecError(f"{name}: states {count} experts but not how many a token takes ('num_experts_per_tok')")
    width = int(_first(config, "expert_width") or config.get("intermediate_size") or _first(config, "ffn"))
    shared = config.get("shared_expert_intermediate_size") or width * (
        config.get("n_shared_experts") or config.get("moe_num_shared_experts") or config.get("num_shared_experts") or 0
    )
    if "intermediate_size_mlp" in config:  # Llama 4: one shared expert of an expert's width
        shared = width
    step = int(config.get("interleave_moe_layer_step") or config.get("decoder_sparse_step") or 1)
    dense = int(config.get("first_k_dense_replace") or len(config.get("mlp_only_layers") or ()))
    return Experts(
        count=int(count), per_token=int(per_token), width=width, shared_width=int(shared), dense_layer_count=dense,
        layer_step=step,
    )  # fmt: skip
