"""Composite operators of the namespace `nearpeak` (attention, recurrent layers, RMS norm): schemas and shapes."""

from collections.abc import Callable
from functools import cache
from typing import Any

_RNN_OPTIONS = "bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first"
_RNN_BACKWARD = (
    f"(Tensor[] grads, Tensor input, Tensor[] hx, Tensor[] params, Tensor output, {_RNN_OPTIONS}, "
    "bool input_requires_grad) -> Tensor[]"
)
_RNN_FORWARD = f"(Tensor input, Tensor[] hx, Tensor[] params, {_RNN_OPTIONS}) -> Tensor[]"
_SCHEMAS = {
    "attention": "(Tensor query, Tensor key, Tensor value, Tensor? mask, float dropout_p, bool is_causal, "
    "float? scale) -> Tensor",
    "attention_backward": "(Tensor grad, Tensor query, Tensor key, Tensor value, Tensor? mask, Tensor output, "
    "float dropout_p, bool is_causal, float? scale, bool mask_requires_grad) -> Tensor[]",
    "rms_norm": "(Tensor input, int[] normalized_shape, Tensor? weight, float? eps) -> (Tensor, Tensor)",
    "rms_norm_backward": "(Tensor grad_out, Tensor input, int[] normalized_shape, Tensor rstd, Tensor? weight, "
    "bool[] output_mask) -> Tensor[]",
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), _RNN_FORWARD),
    **dict.fromkeys(("lstm_backward", "gru_backward", "rnn_tanh_backward", "rnn_relu_backward"), _RNN_BACKWARD),
}


@cache
def operators() -> Any:
    """Return the library that defines the whole operators, with their shapes."""
    import torch

    library = torch.library.Library("nearpeak", "FRAGMENT")
    shapes: dict[str, Callable[..., Any]] = {
        "attention": _attention_shape,
        "attention_backward": _attention_backward_shape,
        "rms_norm": lambda x, shape, *_: (_like(x), x.new_empty((*x.shape[: -len(shape)], *[1] * len(shape)))),
        "rms_norm_backward": lambda _g, x, _s, _r, weight, mask: [
            _like(t) for t, wanted in zip((x, weight), mask, strict=True) if wanted
        ],
    }
    for name, schema in _SCHEMAS.items():
        # The tag keeps fake tensors that carry values from asking for a kernel, of which there is none.
        library.define(name + schema, tags=(torch.Tag.nondeterministic_seeded,))
        whole = shapes.get(name, _recurrent_backward_shape if name.endswith("backward") else _recurrent_shape)
        torch.library.register_fake(f"nearpeak::{name}", whole, lib=library)
    return library


def _like(tensor: Any) -> Any:
    return tensor.new_empty(tensor.shape)


def _heads_inside(tensor: Any, shape: tuple[int, ...]) -> Any:
    """Return a new tensor whose heads lie between position and feature, as fused kernels write it."""
    batch, heads, rows, features = shape
    return tensor.new_empty((batch, rows, heads, features)).transpose(1, 2)


def _attention_shape(query: Any, key: Any, value: Any, mask: Any, *_: Any) -> Any:
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        shapes = ", ".join(str(tuple(t.shape)) for t in (query, key, value))
        raise ValueError(f"attention: query, key and value do not fit together: {shapes}")
    if query.shape[1] % key.shape[1] or key.shape[1] != value.shape[1]:
        raise ValueError(f"attention: {query.shape[1]} query heads over {key.shape[1]} and {value.shape[1]} heads")
    if mask is not None and {mask.shape[-1], key.shape[-2]} - {1, key.shape[-2]}:
        raise ValueError(f"attention: mask {tuple(mask.shape)} over {key.shape[-2]} keys")
    batch = max(query.shape[0], key.shape[0])
    return _heads_inside(query, (batch, *query.shape[1:3], value.shape[-1]))


def _attention_backward_shape(
    _grad: Any,
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    _out: Any,
    _p: float,
    _causal: bool,
    _scale: Any,
    want: bool,
) -> list[Any]:
    gradients = [_heads_inside(t, t.shape) for t in (query, key, value)]
    return [*gradients, _like(mask)] if want else gradients


def _recurrent_shape(
    x: Any, hx: list[Any], _params: Any, _b: bool, _layers: int, _p: float, _t: bool, bidirectional: bool, _first: bool
) -> list[Any]:
    output = x.new_empty((*x.shape[:-1], hx[0].shape[-1] * (2 if bidirectional else 1)))
    return [output, *(_like(state) for state in hx)]


def _recurrent_backward_shape(_grads: Any, x: Any, hx: list[Any], params: list[Any], *options: Any) -> list[Any]:
    input_requires_grad = options[-1]
    return [_like(tensor) for tensor in (*([x] if input_requires_grad else []), *hx, *params)]
