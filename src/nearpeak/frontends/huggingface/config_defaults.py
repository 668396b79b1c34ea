"""Default values for model configurations that leave sub-configurations, sizes or the backbone open."""

import re
from typing import Any

from nearpeak.frontends.huggingface.config_parts import parts

_LIKE = {
    "num_key_value_heads": "num_attention_heads", "num_attention_heads": "n_heads", "dropout": "hidden_dropout_prob",
    "shared_expert_intermediate_size": "intermediate_size", "moe_intermediate_size": "intermediate_size",
    "hidden_size": "d_model", "context_length": "prediction_length",
}  # fmt: skip
"""Setting with the same or a similar meaning."""
_USUAL: tuple[tuple[str, Any], ...] = (
    (r"\w*dropout\w*|\w*_p", 0.0), (r"rope_theta", 10000.0), (r"(\w+_)?prediction_length", 24),
    (r"(num_|n_)(\w*_)?experts|num_local_experts", 8), (r"\w*experts_per_tok\w*|(moe_)?top_?k(_experts)?", 2),
    (r"n_group|topk_group|n_shared_experts", 1), (r"vocab_size", 32000), (r"sliding_window", 512),
    (r"index(er)?_n_heads", 4), (r"index(er)?_kv_heads", 1), (r"index(er)?_head_dim", 128),
    (r"index(er)?_(budget|topk)", 2048), (r"index(er)?_compress_ratio", 4), (r"first_k_dense_replace", 0),
)  # fmt: skip
"""Usual values of required settings, by name pattern."""


def missing_setting(config: Any, part: Any, name: str) -> Any:
    """Return a value for a setting: from a similar setting, another part, or the usual value; else none.

    >>> class Part: model_type, to_dict = "x", None
    >>> part = Part(); part.num_attention_heads = 16
    >>> missing_setting(part, part, "num_key_value_heads")
    16
    """
    settings = vars(part)
    like = settings.get(_LIKE.get(name, ""))
    if like is not None:
        return like
    others = (vars(other).get(name) for _, other in parts(config) if other is not part)
    usual = (value for pattern, value in _USUAL if re.fullmatch(pattern, name))
    return next((value for value in (*others, *usual) if value is not None), None)


def open_settings(config: Any) -> tuple[tuple[str, str, Any], ...]:
    """Return values for the sizes that a configuration leaves open, each with path and name."""
    patterns = "|".join(f"(?:{pattern})" for pattern, _ in _USUAL[2:])
    settings = (
        (path, name, missing_setting(config, part, name))
        for path, part in parts(config)
        for name, value in vars(part).items()
        if value is None and not name.startswith("_") and (name in _LIKE or re.fullmatch(patterns, name))
    )
    return tuple(setting for setting in settings if setting[2] is not None)


def default_parts(config: Any) -> tuple[tuple[str, str, Any], ...]:
    """Return a default configuration for each part that is left out, with path and name."""
    settings = (
        (path, name, _specified(part, name) or _named_alike(config, name))
        for path, part in parts(config)
        for name in getattr(type(part), "sub_configs", {})
        if getattr(part, name, None) is None
    )
    return tuple(setting for setting in settings if setting[2] is not None)


def specified_parts(config: Any) -> tuple[tuple[str, str, Any], ...]:
    """Return the parts that configuration classes specify where different ones are set, with path and name."""
    specified = (
        (path, name, _specified(part, name))
        for path, part in parts(config)
        for name in getattr(type(part), "sub_configs_defaults", {})
    )
    every = dict(parts(config))
    there = ((path, name, made, getattr(every[path], name)) for path, name, made in specified if made is not None)
    return tuple(
        (path, name, made) for path, name, made, part in there if part is not None and part.to_dict() != made.to_dict()
    )


def _specified(part: Any, name: str) -> Any:
    """Return the part that a configuration class specifies under a name; none if any type is allowed."""
    import transformers

    stated = getattr(type(part), "sub_configs_defaults", {}).get(name) or type(part).sub_configs.get(name)
    kind = getattr(stated, "config_class", stated)
    options = getattr(stated, "init_kwargs", {})
    if kind is not transformers.AutoConfig:
        return kind(**options) if callable(kind) else None
    named = getattr(stated, "model_type", None)
    return transformers.AutoConfig.for_model(named, **options) if named else None


def _named_alike(config: Any, name: str) -> Any:
    """Return the default configuration of the type `<model>_<part>`, if there is one."""
    import transformers

    stem = config.model_type.removesuffix("_text")
    wanted = (f"{stem}_{name.removesuffix('_config')}", f"{stem}_{name.removesuffix('_config')}_model")
    return next(
        (
            transformers.CONFIG_MAPPING[model_type]()
            for model_type in wanted
            if model_type in transformers.CONFIG_MAPPING
        ),
        None,
    )


def without_timm(config: Any) -> tuple[tuple[str, str, Any], ...]:
    """Return changes that put transformers' own ResNet-50 in the place of a backbone of the package timm."""
    import transformers

    changes: list[tuple[str, str, Any]] = []
    for path, part in parts(config):
        settings = vars(part)
        backbone = settings.get("backbone_config")
        if getattr(backbone, "model_type", "timm_backbone") != "timm_backbone" or "backbone_config" not in settings:
            continue
        levels = settings.get("num_feature_levels", 1) or 1
        stages = [f"stage{stage}" for stage in range(5 - min(3, levels), 5)]
        changes.append((path, "backbone_config", transformers.ResNetConfig(out_features=stages)))
        changes += [(path, "use_timm_backbone", False)] if "use_timm_backbone" in settings else []
    return tuple(changes)
