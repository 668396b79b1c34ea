"""Number formats in which servers store weights and caches of keys and values, by the names that people use."""

from dataclasses import dataclass

from nearpeak.core.work.scheme import SCHEMES, Scheme
from nearpeak.errors import SpecError

WIDE_FORMAT = "bf16"
"""Format of a step whose weights or caches are stored in narrower ones."""
WEIGHTS: dict[str, dict[str, str]] = {
    "fp8": {"fp8": "fp8_row"},
    "fp8_block": {"fp8": "fp8_block"},
    "mxfp8": {"mxfp8": "mxfp8"},
    "int8": {"int8": "int8_row", "bf16": "int8_weight_only"},
    "int4": {"bf16": "int4_weight_only"},
    "nvfp4": {"nvfp4": "nvfp4"},
    "mxfp4": {"bf16": "mxfp4_weight_only", "mxfp4": "mxfp4"},
}
"""Scheme of products by format of the weights and of the activations; the first is usual with these weights.

Sources: vLLM 0.10, docs/features/quantization (fp8 W8A8, int8 W8A8, int4 W4A16); OpenAI 2025, arXiv:2508.10925,
section 2.1 (mxfp4 weights, bf16 activations); NVIDIA 2025, arXiv:2509.25149, section 2 (nvfp4 both).
"""
CACHES: dict[str, str] = {"fp8": "fp8_e4m3", "fp8_e4m3": "fp8_e4m3", "fp8_e5m2": "fp8_e5m2", "int8": "int8"}
"""Format of stored keys and values by name, each with one scale per tensor. Source: vLLM 0.10, `kv_cache_dtype`;
TensorRT-LLM 1.0, numerical precision, section "KV cache quantization"."""
EXPERTS = "experts"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """Quantisation scheme of products with weights, and the weights that it holds for."""

    scheme_name: str
    """Name in SCHEMES."""
    option: str = ""
    """Text that asked for it, for messages."""
    is_experts_only: bool = False
    """Whether products of experts alone are quantised, as gpt-oss ships."""

    @property
    def scheme(self) -> Scheme:
        """Return the scheme."""
        return SCHEMES[self.scheme_name]


def weight_format(weights: str, activations: str | None = None) -> WeightFormat:
    """Return the scheme of `--weights` and `--activations`; a scheme's own name is taken too.

    Args:
        weights: a name of WEIGHTS or SCHEMES, after `experts=` where weights of experts alone are meant.

    Raises:
        SpecError: no such format, or activations that no kernel takes with it.

    >>> weight_format("fp8").scheme_name, weight_format("int8", "bf16").scheme_name
    ('fp8_row', 'int8_weight_only')
    >>> weight_format("experts=mxfp4")
    WeightFormat(scheme_name='mxfp4_weight_only', option='experts=mxfp4', is_experts_only=True)
    """
    scope, sign, name = weights.partition("=")
    name = name if sign else weights
    if sign and scope != EXPERTS:
        raise SpecError(f"--weights {weights!r}: {scope!r} is no part of a model; give a format, or {EXPERTS}=FORMAT")
    if name in WEIGHTS:
        kinds = WEIGHTS[name]
        kind = activations or next(iter(kinds))
        if kind not in kinds:
            raise SpecError(f"--activations {kind!r}: goes not with --weights {name}; it takes {', '.join(kinds)}")
        return WeightFormat(scheme_name=kinds[kind], option=weights, is_experts_only=bool(sign))
    if name in SCHEMES:
        if activations:
            raise SpecError(f"--activations {activations!r}: --weights {name} states them already; leave it out")
        return WeightFormat(scheme_name=name, option=weights, is_experts_only=bool(sign))
    others = ", ".join(other for other in SCHEMES if other not in WEIGHTS)
    raise SpecError(f"--weights {name!r}: is not one of {', '.join(WEIGHTS)}; or of the schemes {others}")


def cache_format(name: str) -> str:
    """Return the number format of `--kv-cache`.

    >>> cache_format("fp8")
    'fp8_e4m3'
    """
    if name not in CACHES:
        raise SpecError(f"--kv-cache {name!r}: is not one of {', '.join(CACHES)}")
    return CACHES[name]
