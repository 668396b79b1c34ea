"""Fake results of PyTorch's quantisation operators, in the format that is stored."""

from collections.abc import Callable, Mapping
from typing import Any

_STORED = {"qint8": "int8", "quint8": "uint8", "qint32": "int32"}
"""Formats in which quantised tensors are stored, by the name of PyTorch's own."""
_OPAQUE = "bits8"
"""Format that stands for packed sub-byte formats, for which no operator has a rule."""


def _quantised(x: Any, dtype: Any) -> Any:
    """Return a tensor of the shape of `x` as `dtype` stores it."""
    import torch

    name = str(dtype).removeprefix("torch.")
    return torch.empty(x.shape, dtype=getattr(torch, _STORED.get(name, _OPAQUE)))


def _restored(x: Any) -> Any:
    import torch

    return torch.empty(x.shape, dtype=torch.float32)


def _as_stored(x: Any) -> Any:
    import torch

    return torch.empty_like(x)


QUANTISED: Mapping[str, Callable[..., Any]] = {
    "aten.quantize_per_tensor.default": lambda x, _scale, _zero_point, dtype: _quantised(x, dtype),
    "aten.quantize_per_tensor.tensor_qparams": lambda x, _scale, _zero_point, dtype: _quantised(x, dtype),
    "aten.quantize_per_channel.default": lambda x, _scales, _zero_points, _axis, dtype: _quantised(x, dtype),
    "aten.quantize_per_tensor_dynamic.default": lambda x, dtype, _reduce_range: _quantised(x, dtype),
    "aten.dequantize.self": _restored, "aten.int_repr.default": _as_stored,
}  # fmt: skip
"""Results of quantisation by overload."""
