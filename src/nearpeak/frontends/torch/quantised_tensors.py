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


def _linear(x: Any, packed: Any, _scale: float, _zero_point: int) -> Any:
    """Return the result of a statically quantised linear layer, whose packed weight alone knows its width."""
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():
        weight, _ = packed.unpack()
    return torch.empty((*x.shape[:-1], weight.shape[0]), dtype=torch.uint8)


QUANTISED: Mapping[str, Callable[..., Any]] = {
    "aten.quantize_per_tensor.default": lambda x, _scale, _zero_point, dtype: _quantised(x, dtype),
    "aten.quantize_per_tensor.tensor_qparams": lambda x, _scale, _zero_point, dtype: _quantised(x, dtype),
    "aten.quantize_per_channel.default": lambda x, _scales, _zero_points, _axis, dtype: _quantised(x, dtype),
    "aten.quantize_per_tensor_dynamic.default": lambda x, dtype, _reduce_range: _quantised(x, dtype),
    "aten.dequantize.self": _restored, "aten.int_repr.default": _as_stored,
    "quantized.linear.default": _linear, "quantized.linear_relu.default": _linear,
}  # fmt: skip
"""Results of quantisation by overload."""

_BUILT = frozenset({
    "aten._empty_affine_quantized.default", "aten._empty_per_channel_affine_quantized.default",
    "aten.quantize_per_tensor.default", "aten.quantize_per_channel.default", "quantized.linear_prepack.default",
    "quantized.linear_prepack_fp16.default", "quantized.conv1d_prepack.default", "quantized.conv2d_prepack.default",
})  # fmt: skip
"""Operators of constructors, which pack weights into objects that only PyTorch can read."""


def built(name: str, func: Any, args: Any, kwargs: Any) -> Any:
    """Return the real result of an operator that makes a layer's packed weights; NotImplemented for others.

    Weights without memory are packed as ones: what is packed has no values for a capture.
    """
    if name not in _BUILT:
        return NotImplemented
    import torch
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.utils._python_dispatch import _disable_current_modes
    from torch.utils._pytree import tree_map_only

    with _disable_current_modes():
        given = tree_map_only(FakeTensor, lambda fake: torch.ones(fake.shape, dtype=fake.dtype), (args, kwargs))
        return func(*given[0], **given[1])
