"""Fake results of PyTorch's quantisation operators, in the format that is stored."""

from collections.abc import Callable, Mapping
from typing import Any

_STORED = {"qint8": "int8", "quint8": "uint8", "qint32": "int32"}
"""Formats in which quantised tensors are stored, by the name of PyTorch's own."""
_OPAQUE = "bits8"
"""Stands for formats that pack several numbers into a byte: what is done with them has no rule."""


def _quantised(x: Any, dtype: Any) -> Any:
    """Return a tensor of the shape of `x` as `dtype` stores it."""
    import torch

    name = str(dtype).removeprefix("torch.")
    return torch.empty(x.shape, dtype=getattr(torch, _STORED.get(name, _OPAQUE)))


def _given(x: Any, _scale: Any, _zero_point: Any, dtype: Any) -> Any:
    return _quantised(x, dtype)


def _per_channel(x: Any, _scales: Any, _zero_points: Any, _axis: int, dtype: Any) -> Any:
    return _quantised(x, dtype)


def _dynamic(x: Any, dtype: Any, _reduce_range: bool) -> Any:
    return _quantised(x, dtype)


def _restored(x: Any) -> Any:
    import torch

    return torch.empty(x.shape, dtype=torch.float32)


def _as_stored(x: Any) -> Any:
    import torch

    return torch.empty_like(x)


QUANTISED: Mapping[str, Callable[..., Any]] = {
    "aten.quantize_per_tensor.default": _given, "aten.quantize_per_tensor.tensor_qparams": _given,
    "aten.quantize_per_channel.default": _per_channel, "aten.quantize_per_tensor_dynamic.default": _dynamic,
    "aten.dequantize.self": _restored, "aten.int_repr.default": _as_stored,
}  # fmt: skip
"""Results of quantisation by overload."""
