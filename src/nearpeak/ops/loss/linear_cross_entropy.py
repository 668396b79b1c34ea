"""Fused linear layer and cross entropy, which never stores the logits or their gradients."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import INDEX, contraction, unit
from nearpeak.ops.shared.definition.array_arithmetic import maximum
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.loss_reductions import checked, of_targets, upstream_of


@free_when_empty
def linear_cross_entropy(
    rows: int, hidden: int, classes: int, dtype: DType, reduction: str = "mean", bias: bool = False,
    grad_input: bool = False, grad_weight: bool = False,
) -> Work:  # fmt: skip
    """Return the least work of the cross entropy of the logits x[rows,hidden] W[classes,hidden]^T with targets.

    Counts: 2 * rows * hidden * classes FLOP for the logits and for each gradient that is formed on the way; per logit
    those of cross entropy, and 2 FLOP and one special evaluation more where a gradient is formed.

    Args:
        reduction: none, mean or sum; gradients are formed on the way only when there is one upstream number.
        bias: one number per class is added.
        grad_input: the gradient of x is written too; grad_weight: that of W, and of the bias.

    Source: definition; Wijmans et al. 2024, arXiv:2411.09009.

    >>> linear_cross_entropy(2, 4, 8, DType(name="fp32", bits_count=32)).flop["matrix.fp32"]
    128
    """
    none, logits = checked(reduction) == "none", rows * classes
    products = (1 + grad_input + grad_weight) * logits * hidden
    gradient = grad_input or grad_weight
    vector = rows * maximum(3 * classes - 1, 0) + (0 if none else maximum(rows - 1, 0)) + logits * bias
    gradient_bytes = dtype.bytes(rows * hidden * grad_input + (classes * hidden + classes * bias) * grad_weight)
    products_flop = contraction(dtype, products)
    return Work(
        flop=products_flop
        | {unit(dtype): vector + 2 * logits * gradient + rows * gradient + products_flop.get(unit(dtype), 0)},
        special_count=logits + rows + logits * gradient + int(reduction == "mean"),
        read_bytes=dtype.bytes(rows * hidden + classes * hidden + classes * bias) + INDEX.bytes(rows),
        write_bytes=dtype.bytes(rows if none else 1) + gradient_bytes,
    )


def _inputs(rows: int, hidden: int, classes: int, dtype: str, bias: bool, **_: Any) -> dict[str, Tensor]:
    tensors = {
        "x": Tensor(shape=(rows, hidden), dtype=dtype),
        "weight": Tensor(shape=(classes, hidden), dtype=dtype),
        "target": Tensor(shape=(rows,), dtype="int64"),
    }
    return tensors | ({"bias": Tensor(shape=(classes,), dtype=dtype)} if bias else {})


def _reference(
    arrays: dict[str, Any], rows: int, reduction: str, grad_input: bool, grad_weight: bool, **_: Any
) -> dict[str, Any]:
    logits = arrays["x"] @ arrays["weight"].T + arrays.get("bias", 0.0)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_likely, target = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)), arrays["target"]
    outputs = {"y": of_targets(log_likely, target, reduction)}
    likely = np.exp(log_likely)
    likely[np.arange(rows), np.maximum(target, 0)] -= 1
    likely *= upstream_of(target, 1.0, reduction)[:, None]
    outputs |= {"grad_x": likely @ arrays["weight"]} if grad_input else {}
    outputs |= {"grad_weight": likely.T @ arrays["x"]} if grad_weight else {}
    return outputs | ({"grad_bias": likely.sum(axis=0)} if grad_weight and "bias" in arrays else {})


def _torch_call(
    tensors: dict[str, Any], reduction: str, grad_input: bool, grad_weight: bool, **_: Any
) -> dict[str, Any]:
    import torch

    wanted = {"x": grad_input, "weight": grad_weight, "bias": grad_weight}
    leaves = {name: t.detach().requires_grad_(wanted.get(name, False)) if t.is_floating_point() else t
              for name, t in tensors.items()}  # fmt: skip
    grad_names = [name for name in leaves if wanted.get(name)]
    with torch.enable_grad():  # gradients are results here, even without a later backward pass
        logits = torch.nn.functional.linear(leaves["x"], leaves["weight"], leaves.get("bias"))
        y = torch.nn.functional.cross_entropy(logits, leaves["target"], reduction=reduction)
        grads = torch.autograd.grad(y, [leaves[name] for name in grad_names]) if grad_names else ()
    return {"y": y.detach(), **{f"grad_{name}": grad for name, grad in zip(grad_names, grads, strict=True)}}


def _from_aten(site: AtenSite) -> Match:
    """Match the fused loss of torch.nn; weights of classes and smoothing are not counted."""
    x, weight = site.args["input"], site.args["linear_weight"]
    hidden = x.shape[-1]
    arguments: dict[str, Value] = {
        "rows": x.elements // hidden if hidden else 0, "hidden": hidden, "dtype": x.dtype,
        "classes": weight.elements // hidden if hidden else 0, "bias": site.args["linear_bias"] is not None,
        "reduction": site.args.get("reduction", "none"), "grad_input": bool(site.args.get("compute_input_grad")),
        "grad_weight": bool(site.args.get("compute_linear_weight_grad")),
    }  # fmt: skip
    return Match(arguments=arguments, touched_bytes={"weight": 0})


OPERATOR = Operator(
    forward=linear_cross_entropy,
    family="product",
    degree_count=3,
    assumptions=("A20",),
    tolerance=Tolerance(
        kind="normalisation",
        reduction="hidden classes",
        below={"target": "classes"},
        ignored=("target",),
        steps_count=2,
        gates="always",
        rounds=("large",),
    ),
    inputs=_inputs,
    reference=_reference,
    torch_call=_torch_call,
    aten={f"torch_nn._linear_cross_entropy_batch_chunked{kind}.default": _from_aten for kind in ("", "_no_reduction")},
)
