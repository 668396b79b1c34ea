"""Quantisation that a config.json names, as the value of `--weights` that stores weights so."""

from collections.abc import Mapping
from typing import Any

_GROUPED = {128: "int4", 64: "int4_weight_only_64", 32: "int4_weight_only_32"}
"""Schemes of 4-bit weights by the neighbours that share a scale."""
_BLOCK = [128, 128]


def note_on(quantisation: Mapping[str, Any]) -> str:
    """Return a sentence on the entry `quantization_config` of a config.json.

    >>> note_on({"quant_method": "fp8", "weight_block_size": [128, 128]})
    'config.json names weights as --weights fp8_block stores them; without it they stay in 16 bits.'
    >>> note_on({"quant_method": "hqq"})
    'config.json names a quantisation (hqq) that no --weights covers; weights stay in 16 bits.'
    """
    if name := weights_option(quantisation):
        return f"config.json names weights as --weights {name} stores them; without it they stay in 16 bits."
    method = " ".join(str(quantisation.get("quant_method") or "unnamed").split())[:40]
    return f"config.json names a quantisation ({method}) that no --weights covers; weights stay in 16 bits."


def weights_option(quantisation: Mapping[str, Any]) -> str:
    """Return the value of `--weights` for an entry `quantization_config`; empty where none fits.

    Source: transformers 5, docs/source/en/quantization, and the configurations of DeepSeek-V3 (fp8), gpt-oss (mxfp4),
    AutoAWQ and GPTQ (bits, group_size), compressed-tensors (config_groups) and TensorRT Model Optimizer (quant_algo).

    >>> weights_option({"quant_method": "awq", "bits": 4, "group_size": 128})
    'int4'
    >>> weights_option({"quant_method": "mxfp4"}), weights_option({"quant_method": "modelopt", "quant_algo": "NVFP4"})
    ('experts=mxfp4', 'nvfp4')
    """
    method = str(quantisation.get("quant_method", "")).lower()
    if method in ("fp8", "fbgemm_fp8"):
        return "fp8_block" if quantisation.get("weight_block_size") == _BLOCK else "fp8"
    if method in ("awq", "gptq"):
        return _of_integers(quantisation.get("bits"), quantisation.get("group_size"))
    if method.startswith("modelopt"):
        return {"NVFP4": "nvfp4", "FP8": "fp8_tensor"}.get(str(quantisation.get("quant_algo", "")).upper(), "")
    if method == "compressed-tensors":
        return _of_groups(quantisation.get("config_groups"))
    eight_bits = "int8_weight_only" if quantisation.get("load_in_8bit") else ""
    return {"mxfp4": "experts=mxfp4", "bitsandbytes": eight_bits}.get(method, "")


def _of_integers(bits: Any, group_size: Any) -> str:
    if bits == 4:
        return _GROUPED.get(group_size, "") if isinstance(group_size, int) else ""
    return "int8_weight_only" if bits == 8 and group_size in (-1, None) else ""


def _of_groups(groups: Any) -> str:
    """Return the value for the groups of compressed-tensors; empty where they differ."""
    if not isinstance(groups, Mapping):
        return ""
    options = {_of_group(group) if isinstance(group, Mapping) else "" for group in groups.values()}
    return options.pop() if len(options) == 1 else ""


def _of_group(group: Mapping[str, Any]) -> str:
    weights = group.get("weights")
    if not isinstance(weights, Mapping):
        return ""
    bits, strategy = weights.get("num_bits"), weights.get("strategy")
    has_activations = bool(group.get("input_activations"))
    if weights.get("type") == "float":
        if bits == 4:
            return "nvfp4" if has_activations and weights.get("group_size") == 16 else ""
        by_strategy = {"tensor": "fp8_tensor", "channel": "fp8", "block": "fp8_block"}
        return by_strategy.get(str(strategy), "") if bits == 8 and has_activations else ""
    if bits == 8 and strategy == "channel":
        return "int8" if has_activations else "int8_weight_only"
    return "" if has_activations else _of_integers(bits, weights.get("group_size"))
