"""PyTorch dtypes of the number formats."""

from collections.abc import Mapping
from typing import Any

from nearpeak.errors import NotModelledError

TORCH_NAMES: Mapping[str, str] = {
    "fp64": "float64", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp8_e4m3": "float8_e4m3fn",
    "fp8_e5m2": "float8_e5m2", "fp8_e8m0": "float8_e8m0fnu", "fp8_e4m3fnuz": "float8_e4m3fnuz",
    "fp8_e5m2fnuz": "float8_e5m2fnuz", "fp4_e2m1_x2": "float4_e2m1fn_x2",
}  # fmt: skip
"""Names below `torch` by canonical name; formats that are not listed are called the same."""

_STAND_INS = {"fp4_e2m1": "fp8_e4m3", "int4": "int8", "uint4": "uint8"}
"""Formats that hold every value of those that PyTorch has only packed."""


def torch_dtype(torch: Any, name: str) -> Any:
    """Return PyTorch's format of the canonical `name`.

    Raises:
        NotModelledError: PyTorch has none that holds one such number at a time.

    >>> from types import SimpleNamespace
    >>> torch_dtype(SimpleNamespace(bfloat16="its bf16"), "bf16")
    'its bf16'
    """
    dtype = getattr(torch, TORCH_NAMES.get(name, name), None)
    if dtype is None:
        raise NotModelledError(f"PyTorch {torch.__version__} has no number format {name}")
    return dtype


def torch_format(name: str) -> Any:
    """Return PyTorch's format that holds the values of `name`."""
    import torch

    return torch_dtype(torch, _STAND_INS.get(name, name))


def in_wider(torch: Any, tensors: Mapping[str, Any], out_dtype: str) -> dict[str, Any]:
    """Return operands in a format that holds theirs and `out_dtype`; as they are where all of these agree.

    What is computed from them is rounded to `out_dtype` once, at the end.
    """
    wide = torch_dtype(torch, out_dtype)
    if all(tensor.dtype == wide for tensor in tensors.values()):  # a quick test, as it is timed with the call
        return dict(tensors)
    for tensor in tensors.values():
        wide = _holding(torch, wide, tensor.dtype)
    return {name: tensor.to(wide) for name, tensor in tensors.items()}


def resized(vector: Any, count: int) -> Any:
    """Return a vector repeated or cut to `count` elements, as `numpy.resize` does."""
    return vector if len(vector) == count else vector.repeat(-(-count // len(vector)))[:count]


def _holding(torch: Any, left: Any, right: Any) -> Any:
    """Return a format that holds the values of both: PyTorch promotes no 8-bit floats."""
    narrow = [dtype for dtype in (left, right) if dtype.is_floating_point and dtype.itemsize == 1]
    if left == right or not narrow:
        return torch.promote_types(left, right)
    return torch.promote_types(torch.float32 if left in narrow else left, torch.float32 if right in narrow else right)
