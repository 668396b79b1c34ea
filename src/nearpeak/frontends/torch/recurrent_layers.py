"""Recurrent layers kept whole, over padded sequences and over packed ones of unequal length."""

from collections.abc import Callable, Mapping
from functools import cache
from itertools import groupby
from typing import Any

from nearpeak.errors import CaptureError

LAYERS = ("lstm", "gru", "rnn_tanh", "rnn_relu")
"""Recurrent layers of PyTorch."""


def recurrent_layers() -> Mapping[str, Callable[..., Any]]:
    """Return what stands for recurrent layers and for the packing of sequences, by ATen overload."""
    return {
        **{f"{name}.input": _padded_layer(name) for name in LAYERS},
        **{f"{name}.data": _packed_layer(name) for name in LAYERS},
        "_pack_padded_sequence": _pack, "_pad_packed_sequence": _pad,
    }  # fmt: skip


def _padded_layer(name: str) -> Callable[..., Any]:
    """Return the whole recurrent layer `name` in the signature of its ATen overload."""

    def whole(x: Any, hx: Any, params: Any, *options: Any) -> Any:
        states = list(hx) if isinstance(hx, (list, tuple)) else [hx]
        return _recurrent()(name, len(states), options, x, *states, *params)

    return whole


def _packed_layer(name: str) -> Callable[..., Any]:
    """Return the layer over packed sequences: one call for each run of steps that as many sequences take part in."""

    def whole(data: Any, batch_sizes: Any, hx: Any, params: Any, *options: Any) -> Any:
        import torch

        states = list(hx) if isinstance(hx, (list, tuple)) else [hx]
        outputs, ended, first = [], [], 0
        for count, run in groupby(_known_lengths(batch_sizes)):
            steps = len(list(run))
            if count < states[0].shape[1]:
                ended.append([state[:, count:] for state in states])
                states = [state[:, :count] for state in states]
            rows = data[first : first + count * steps].reshape(steps, count, *data.shape[1:])
            out, *states = _recurrent()(name, len(states), (*options, False), rows, *states, *params)
            outputs.append(out.flatten(0, 1))
            first += count * steps
        if ended:
            states = [torch.cat(parts, 1) for parts in zip(states, *reversed(ended), strict=True)]
        return (torch.cat(outputs) if len(outputs) > 1 else outputs[0], *states)

    return whole


def _pack(x: Any, lengths: Any, batch_first: bool) -> tuple[Any, Any]:
    """Return the steps of sequences of falling length, one behind the other, and how many take part in each."""
    import torch

    counts = _known_lengths(lengths)
    x = x.transpose(0, 1) if batch_first else x
    sizes = [sum(length > step for length in counts) for step in range(max(counts))]
    return x.flatten(0, 1).index_select(0, _rows(sizes, x.shape[1])), torch.tensor(sizes)


def _pad(data: Any, batch_sizes: Any, batch_first: bool, value: Any, total: int) -> tuple[Any, Any]:
    """Return the sequences padded to the longest, or to `total` steps, and their lengths."""
    import torch

    sizes = _known_lengths(batch_sizes)
    steps = max(total, len(sizes))
    blank = data.new_full((steps * sizes[0], *data.shape[1:]), value)
    padded = blank.index_copy(0, _rows(sizes, sizes[0]), data).unflatten(0, (steps, sizes[0]))
    lengths = torch.tensor([sum(size > row for size in sizes) for row in range(sizes[0])])
    return padded.transpose(0, 1) if batch_first else padded, lengths


def _rows(sizes: list[int], width: int) -> Any:
    """Return the row of each packed step in a padded tensor of `width` sequences."""
    import torch

    return torch.tensor([step * width + row for step, size in enumerate(sizes) for row in range(size)])


def _known_lengths(lengths: Any) -> list[int]:
    if getattr(lengths, "constant", lengths) is None:
        raise CaptureError(
            "the lengths of packed sequences are not known, and they decide what is computed: give them as numbers, or "
            "in a tensor with values"
        )
    return whole_numbers(lengths)


def whole_numbers(lengths: Any) -> list[int]:
    """Return the whole numbers in a tensor; where they are not known, each is what capture answers for the largest."""
    from torch.utils._python_dispatch import _disable_current_modes

    known = getattr(lengths, "constant", lengths)
    if known is None:
        return [int(lengths.max())] * lengths.numel()
    with _disable_current_modes():
        numbers: list[int] = known.flatten().tolist()
        return numbers


@cache
def _recurrent() -> Any:
    """Return the differentiable function around whole recurrent layers; its first argument names which."""
    import torch

    ops = torch.ops.nearpeak

    class Recurrent(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped here
        @staticmethod
        def forward(ctx: Any, name: str, states: int, options: Any, x: Any, *tensors: Any) -> Any:
            out = getattr(ops, name)(x, list(tensors[:states]), list(tensors[states:]), *options)
            ctx.save_for_backward(x, out[0], *tensors)
            ctx.name, ctx.states, ctx.options = name, states, (*options, ctx.needs_input_grad[3])
            ctx.set_materialize_grads(False)
            return tuple(out)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            x, out, *tensors = ctx.saved_tensors
            upstream = [grad for grad in grads if grad is not None]
            backward = getattr(ops, f"{ctx.name}_backward")
            hx, params = tensors[: ctx.states], tensors[ctx.states :]
            gradients = backward(upstream, x, hx, params, out, *ctx.options)
            return (None, None, None, *([] if ctx.options[-1] else [None]), *gradients)

    return Recurrent.apply
