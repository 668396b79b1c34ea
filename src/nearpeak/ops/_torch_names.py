"""What PyTorch calls the number formats."""

from collections.abc import Mapping
from typing import Any

TORCH_NAMES: Mapping[str, str] = {
    "fp64": "float64", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2", "fp8_e8m0": "float8_e8m0fnu", "fp8_e4m3fnuz": "float8_e4m3fnuz",
    "fp8_e5m2fnuz": "float8_e5m2fnuz", "fp4_e2m1_x2": "float4_e2m1fn_x2",
}  # fmt: skip
"""Names below `torch` by canonical name; formats that are not listed are called the same."""


def torch_dtype(torch: Any, name: str) -> Any:
    """Return PyTorch's format of the canonical `name`; one that PyTorch lacks is an AttributeError.

    >>> from types import SimpleNamespace
    >>> torch_dtype(SimpleNamespace(bfloat16="its bf16"), "bf16")
    'its bf16'
    """
    return getattr(torch, TORCH_NAMES.get(name, name))
