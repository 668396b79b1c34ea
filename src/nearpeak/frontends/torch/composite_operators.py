"""Composite operators kept whole (attention, recurrent layers, dropout, RMS norm): one call forward, one backward."""

# PyTorch decomposes them on the CPU, differently for each variant. While a capture runs, their implementations are
# replaced by operators of the namespace `nearpeak`, which know only shapes.

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

from nearpeak.frontends.torch.inverse_stft import istft
from nearpeak.frontends.torch.recurrent_layers import recurrent_layers, whole_numbers
from nearpeak.frontends.torch.shape_rules import missing_shapes
from nearpeak.frontends.torch.whole_operators import operators


@contextmanager
def kept_whole() -> Iterator[Mapping[str, Callable[..., Any]]]:
    """Replace the decompositions while the block runs; gives the replacements by ATen name."""
    import torch

    operators()
    missing_shapes()
    replacements = _replacements()
    library = torch.library.Library("aten", "IMPL")
    try:
        for name, function in replacements.items():
            library.impl(name, function, "AutogradCPU")
        yield {name.split(".")[0]: function for name, function in replacements.items()}
    finally:
        library._destroy()


@cache
def _attention() -> Any:
    """Return the differentiable function around whole attention."""
    import torch

    ops = torch.ops.nearpeak

    class Attention(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped here
        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> Any:
            out = ops.attention(*arguments)
            ctx.save_for_backward(*arguments[:4], out)
            ctx.options = arguments[4:]
            return out

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            wanted = ctx.needs_input_grad[3]
            gradients = ops.attention_backward(grad, *ctx.saved_tensors, *ctx.options, wanted)
            return (*gradients[:3], gradients[3] if wanted else None, None, None, None)

    return Attention.apply


@cache
def _rms_norm() -> Any:
    """Return the differentiable function around whole RMS norm."""
    import torch

    ops = torch.ops.nearpeak

    class RmsNorm(torch.autograd.Function):  # type: ignore[misc]  # torch is untyped here
        @staticmethod
        def forward(ctx: Any, x: Any, shape: Any, weight: Any, eps: Any) -> Any:
            out, rstd = ops.rms_norm(x, shape, weight, eps)
            ctx.save_for_backward(x, rstd, weight)
            ctx.shape = shape
            return out

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            x, rstd, weight = ctx.saved_tensors
            mask = [ctx.needs_input_grad[0], ctx.needs_input_grad[2]]
            computed = iter(ops.rms_norm_backward(grad, x, ctx.shape, rstd, weight, mask))
            gradients = [next(computed) if wanted else None for wanted in mask]
            return gradients[0], None, gradients[1], None

    return RmsNorm.apply


def _ctc_loss(
    log_probs: Any, targets: Any, inputs: Any, labels: Any, blank: int = 0, reduction: int = 1,
    zero_infinity: bool = False,
) -> Any:  # fmt: skip
    """Return the CTC loss with lengths taken as known values."""
    import torch

    # PyTorch reads the lengths from memory, and writes the mean's divisors there; fake tensors have none.
    lengths = [row if isinstance(row, (list, tuple)) else whole_numbers(row) for row in (inputs, labels)]
    loss = torch.ops.aten._ctc_loss(log_probs, targets, *lengths, blank, zero_infinity)[0]
    loss = torch.where(loss == float("inf"), 0.0, loss) if zero_infinity else loss
    if reduction == 1:
        return (loss / torch.tensor(lengths[1], dtype=loss.dtype).clamp_min(1).reshape(loss.shape)).mean()
    return loss.sum() if reduction else loss


def _replacements() -> dict[str, Callable[..., Any]]:
    """Return the implementation of each ATen composite that is kept whole, by name."""
    import torch

    def attention(
        query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
        *, scale: float | None = None, enable_gqa: bool = False,
    ) -> Any:  # fmt: skip
        del enable_gqa  # the head counts say it
        lead = query.shape[:-2]
        four = [_four_dimensional(tensor) for tensor in (query, key, value)]
        if four[0].shape[1] < four[1].shape[1] or four[1].shape[1] != four[2].shape[1]:
            # Heads that are broadcast are no form of the operator: products and softmax, as PyTorch spells them out.
            spelled_out = torch.ops.aten._scaled_dot_product_attention_math
            return spelled_out(query, key, value, attn_mask, dropout_p, is_causal, scale=scale)[0]
        fitting_mask = (
            attn_mask
            if attn_mask is None or attn_mask.dim() < 3 or len(lead) == 2
            else _four_dimensional(attn_mask.expand(*lead, *attn_mask.shape[-2:]))
        )
        out = _attention()(*four, fitting_mask, dropout_p, is_causal, scale)
        return out if len(lead) == 2 else out.reshape(*lead, *out.shape[-2:])

    def dropout(x: Any, p: float, train: bool) -> Any:
        # What GPU builds call; the mask is generated, not stored as three more kernels.
        return torch.ops.aten.native_dropout(x, p, True)[0] if train and p > 0 else x

    def rms_norm(x: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None) -> Any:
        return _rms_norm()(x, list(normalized_shape), weight, eps)

    return {
        "scaled_dot_product_attention": attention, "dropout": dropout, "rms_norm": rms_norm,
        "ctc_loss.Tensor": _ctc_loss, "ctc_loss.IntList": _ctc_loss, "istft": istft,
        "tensor_split.tensor_indices_or_sections": _tensor_split,
        **recurrent_layers(),
    }  # fmt: skip


def _tensor_split(x: Any, sections: Any, dim: int = 0) -> Any:
    """Return the parts of `x`; where to split PyTorch would read from memory."""
    import torch

    return torch.tensor_split(x, int(sections) if sections.dim() == 0 else whole_numbers(sections), dim)


def _four_dimensional(tensor: Any) -> Any:
    """Return the tensor as [batch, heads, positions, features]; missing dimensions are 1, extra ones fold."""
    if tensor.dim() > 4:
        return tensor.flatten(0, tensor.dim() - 4)
    while tensor.dim() < 4:
        tensor = tensor.unsqueeze(-3)
    return tensor
