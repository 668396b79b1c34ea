"""Fake results of PyTorch's quantisation operators, in the format that is stored."""

from collections.abc import Callable, Iterator, Mapping
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


def _joined(parts: Any, dim: int, *_: Any) -> Any:
    import torch

    return torch.cat([_as_stored(part) for part in parts], dim)


def _of_two(x: Any, y: Any, *_: Any) -> Any:
    import torch

    return x.new_empty(torch.broadcast_shapes(x.shape, y.shape))


_ONE_BY_ONE = (
    "hardswish", "sigmoid", "leaky_relu", "elu", "celu", "relu6", "clamp", "threshold", "prelu", "softmax",
    "batch_norm", "batch_norm_relu", "batch_norm1d", "batch_norm2d", "batch_norm2d_relu", "batch_norm3d",
    "batch_norm3d_relu", "layer_norm", "group_norm", "instance_norm", "add_scalar", "mul_scalar",
)  # fmt: skip
"""Functions of one quantised tensor whose result has its shape."""

QUANTISED: Mapping[str, Callable[..., Any]] = {
    "aten.quantize_per_tensor.default": lambda x, _scale, _zero_point, dtype: _quantised(x, dtype),
    "aten.quantize_per_tensor.tensor_qparams": lambda x, _scale, _zero_point, dtype: _quantised(x, dtype),
    "aten.quantize_per_channel.default": lambda x, _scales, _zero_points, _axis, dtype: _quantised(x, dtype),
    "aten.quantize_per_tensor_dynamic.default": lambda x, dtype, _reduce_range: _quantised(x, dtype),
    "aten.dequantize.self": _restored, "aten.int_repr.default": _as_stored,
    "quantized.cat.default": _joined, "quantized.cat_relu.default": _joined,
    **{f"quantized.{name}.default": _of_two for name in ("add", "add_relu", "mul", "mul_relu")},
    **{f"quantized.{name}.default": lambda x, *_, **_options: _as_stored(x) for name in _ONE_BY_ONE},
}  # fmt: skip
"""Results of quantisation by overload."""


def _mean(x: Any, dim: Any = None, keepdim: bool = False, **_: Any) -> Any:
    import torch

    return x.new_empty(torch.mean(torch.empty(x.shape), dim, keepdim).shape)


OF_CODES: Mapping[str, Callable[..., Any]] = {"aten.mean.default": _mean, "aten.mean.dim": _mean}
"""Functions of quantised tensors that plain tensors of the stored format do not have."""


def stand_ins() -> Iterator[tuple[Any, str, Any]]:
    """Yield namespace, name and stand-in of functions to which modules of torch.ao give scales that buffers hold."""
    import torch

    for name in _ONE_BY_ONE:
        if hasattr(torch.ops.quantized, name):
            yield torch.ops.quantized, name, _WithNumbers(getattr(torch.ops.quantized, name))


class _WithNumbers:
    """An operator that takes tensors of one number as numbers, as PyTorch does where they have memory."""

    def __init__(self, operator: Any) -> None:
        self._operator = operator

    def __call__(self, x: Any, *options: Any, **named: Any) -> Any:
        """Run the operator."""
        import torch

        def number(option: Any) -> Any:
            return option.item() if isinstance(option, torch.Tensor) and not option.dim() else option

        return self._operator(x, *map(number, options), **{name: number(option) for name, option in named.items()})

    def __getattr__(self, name: str) -> Any:
        """Return an overload, or what else the operator has."""
        return getattr(self._operator, name)


_BUILT = frozenset({
    "aten._empty_affine_quantized.default", "aten._empty_per_channel_affine_quantized.default",
    "aten.quantize_per_tensor.default", "aten.quantize_per_channel.default", "quantized.linear_prepack.default",
    "quantized.linear_prepack_fp16.default",
    *(f"quantized.{stem}{rank}d_prepack.default" for stem in ("conv", "conv_transpose") for rank in (1, 2, 3)),
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
        real = tree_map_only(FakeTensor, lambda fake: torch.ones(fake.shape, dtype=fake.dtype), (args, kwargs))
        return func(*real[0], **real[1])
