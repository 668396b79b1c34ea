"""Quantised layers of torch.ao as operators on plain tensors, as PyTorch alone reads the weights that they pack."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple

_CONVOLUTION = (
    "quantised_convolution(Tensor input, Tensor weight, Tensor? bias, Tensor? added, int[] stride, int[] padding, "
    "int[] dilation, bool transposed, int[] output_padding, int groups) -> Tensor"
)


class Substitute(NamedTuple):
    """The call that stands for one of a packed layer."""

    function: Callable[..., Any]
    """Operator, or composition of operators, on plain tensors."""
    arguments: tuple[Any, ...]
    """What it takes: input, weight, bias or none, and more."""


class PackedLayers:
    """Weights of packed layers as tensors, the same for every call of a layer."""

    def __init__(self) -> None:
        self._weights: dict[int, tuple[Any, Any, Any]] = {}  # holds each object, since freed identities are reused

    def substitute(self, name: str, args: Any, kwargs: Mapping[str, Any]) -> Substitute | None:
        """Return what stands for a call of the overload `name`; none where it is no packed layer."""
        make = _LAYERS.get(name.removeprefix("quantized.").split(".")[0])
        if make is None:
            return None
        tensors = [*args, *kwargs.values()]
        packed = next(value for value in tensors if hasattr(value, "unpack"))
        added = tensors[1] if hasattr(tensors[1], "dim") else None
        return make(tensors[0], packed, *self._unpacked(packed, is_half="fp16" in name), added)

    def _unpacked(self, packed: Any, *, is_half: bool) -> tuple[Any, Any]:
        """Return weight and bias of a layer as tensors without memory."""
        import torch
        from torch.utils._python_dispatch import _disable_current_modes

        known = self._weights.get(hash(packed))
        if known is None:
            operators()
            with _disable_current_modes():
                weight, bias = packed.unpack()
            stored = torch.float16 if is_half else torch.int8
            shapes = (weight.shape, None if bias is None else bias.shape)
            plain = torch.empty(shapes[0], dtype=stored)
            known = self._weights[hash(packed)] = (packed, plain, None if bias is None else torch.empty(shapes[1]))
        return known[1], known[2]


@cache
def operators() -> Any:
    """Return the library that defines what stands for packed layers, with their shapes."""
    import torch

    library = torch.library.Library("nearpeak", "FRAGMENT")
    # The tag keeps fake tensors that carry values from asking for a kernel, of which there is none.
    tags = (torch.Tag.nondeterministic_seeded,)
    library.define("quantised_linear(Tensor input, Tensor weight, Tensor? bias) -> Tensor", tags=tags)
    library.define(_CONVOLUTION, tags=tags)
    torch.library.register_fake("nearpeak::quantised_linear", _linear_shape, lib=library)
    torch.library.register_fake("nearpeak::quantised_convolution", _convolution_shape, lib=library)
    return library


def _linear_shape(x: Any, weight: Any, _bias: Any) -> Any:
    return x.new_empty((*x.shape[:-1], weight.shape[0]))


def _convolution_shape(x: Any, weight: Any, _bias: Any, _added: Any, *options: Any) -> Any:
    """Return the result in the format of the input; its shape is that of a convolution in single precision."""
    import torch

    wide = (torch.empty(tensor.shape) for tensor in (x, weight))
    return x.new_empty(torch.ops.aten.convolution(*wide, None, *options).shape)


def _linear(x: Any, _packed: Any, weight: Any, bias: Any, _added: Any) -> Substitute:
    import torch

    return Substitute(torch.ops.nearpeak.quantised_linear, (x, weight, bias))


def _convolution(x: Any, packed: Any, weight: Any, bias: Any, added: Any, *, is_row: bool = False) -> Substitute:
    """Return the convolution; PyTorch packs those over one dimension as those over two, the first of extent 1."""
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():
        options = (
            list(packed.stride()), list(packed.padding()), list(packed.dilation()), bool(packed.transpose()),
            list(packed.output_padding()), int(packed.groups()),
        )  # fmt: skip
    run = torch.ops.nearpeak.quantised_convolution
    if not is_row:
        return Substitute(run, (x, weight, bias, added, *options))
    return Substitute(lambda row, *rest: run(row.unsqueeze(-2), *rest).squeeze(-2), (x, weight, bias, added, *options))


_LINEAR = ("linear", "linear_relu", "linear_leaky_relu", "linear_tanh", "linear_dynamic", "linear_relu_dynamic",
           "linear_dynamic_fp16", "linear_relu_dynamic_fp16")  # fmt: skip
_ENDS = ("d", "d_relu", "d_add", "d_add_relu", "d_dynamic")
_LAYERS: Mapping[str, Callable[..., Substitute]] = {
    **dict.fromkeys(_LINEAR, _linear),
    **{f"{stem}{rank}{end}": partial(_convolution, is_row=rank == 1)
       for stem in ("conv", "conv_transpose") for rank in (1, 2, 3) for end in _ENDS},
}  # fmt: skip
"""Makes the substitute of a layer, by PyTorch's name without namespace and overload."""
