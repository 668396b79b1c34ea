"""Element-wise losses with gradients: mean squared error, smooth L1, Huber, binary cross entropy, soft margin."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from nearpeak.base.registry import entry_of
from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.array_arithmetic import maximum, unless_empty
from nearpeak.ops.shared.definition.axis_checks import required_at_most
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.loss_reductions import REDUCTIONS, checked, reduced
from nearpeak.ops.shared.reference.formula import formula
from nearpeak.ops.shared.torch_names import resized

_SMOOTH = "where(abs(a - b) < 1, 0.5 * (a - b) * (a - b), abs(a - b) - 0.5)"
_CLIPPED = "g * minimum(maximum(a - b, -1), 1)"
LOSSES: Mapping[str, tuple[str, str, float]] = {
    "mse": ("(a - b) * (a - b)", "g * (a - b)", 2.0),
    "smooth_l1": (_SMOOTH, _CLIPPED, 1.0),
    "huber": (_SMOOTH, _CLIPPED, 1.0),
    "bce": ("-(b * log(a) + (1 - b) * log(1 - a))", "g * (a - b) / (a * (1 - a))", 1.0),
    "bce_logits": ("maximum(a, 0) - a * b + log1p(exp(-abs(a)))", "g * (sigmoid(a) - b)", 1.0),
    "soft_margin": ("log1p(exp(-a * b))", "-g * b * sigmoid(-a * b)", 1.0),
}
"""Formulas of the loss and of the prediction's gradient, and the constant folded into g."""
_TORCH_NAMES = {
    "mse": "mse_loss", "smooth_l1": "smooth_l1_loss", "huber": "huber_loss", "bce": "binary_cross_entropy",
    "bce_logits": "binary_cross_entropy_with_logits", "soft_margin": "soft_margin_loss",
}  # fmt: skip
_WEIGHTED = ("bce", "bce_logits")
"""Losses whose weights PyTorch takes as they are; a mean of others it divides by the sum of the weights."""
_FUNCTIONS = {name: key for key, name in _TORCH_NAMES.items()}


def pointwise_loss(
    elements: int, dtype: DType, function: str = "mse", reduction: str = "mean", weight: int = 0
) -> Work:  # fmt: skip
    """Return the least work of a loss of prediction a[elements] and target b[elements], added up or averaged.

    Counts: the formula's FLOP per element, one more where the losses are weighted; elements - 1 additions; one
    multiplication more for a mean.

    Args:
        function: mse, smooth_l1, huber, bce, bce_logits or soft_margin.
        reduction: none, mean or sum.
        weight: distinct weights that multiply the losses, or the part of bce_logits where the target is one.

    Source: definitions, as PyTorch states them, with beta = delta = 1.

    >>> pointwise_loss(8, DType(name="fp32", bits_count=32)).flop
    {'vector.fp32': 24}
    """
    rule = formula(_loss(function)[0])
    sums = {"none": 0, "sum": maximum(elements - 1, 0), "mean": elements}[checked(reduction)]
    required_at_most("pointwise_loss", {"elements": elements}, weight=weight)
    return Work(
        flop={unit(dtype): (rule.flop_count + (weight > 0)) * elements + sums},
        special_count=rule.special_count * elements,
        read_bytes=2 * dtype.bytes(elements) + dtype.bytes(weight),
        write_bytes=dtype.bytes(elements if reduction == "none" else 1),
    )


def _backward(
    elements: int, dtype: DType, function: str = "mse", reduction: str = "mean", weight: int = 0
) -> Work:  # fmt: skip
    """Return the least work of the prediction's gradient; constant factors fold into the upstream gradient."""
    rule = formula(_loss(function)[1])
    upstream = elements if checked(reduction) == "none" else unless_empty(elements, 1)
    required_at_most("pointwise_loss", {"elements": elements}, weight=weight)
    return Work(
        flop={unit(dtype): (rule.flop_count + (weight > 0)) * elements},
        special_count=rule.special_count * elements,
        read_bytes=2 * dtype.bytes(elements) + dtype.bytes(upstream) + dtype.bytes(weight),
        write_bytes=dtype.bytes(elements),
    )


def _loss(function: str) -> tuple[str, str, float]:
    return entry_of("loss", LOSSES, function)


def _inputs(elements: int, dtype: str, weight: int = 0, **_: Any) -> dict[str, Tensor]:
    sizes = {"a": elements, "b": elements} | ({"weight": weight} if weight else {})
    return {name: Tensor(shape=(size,), dtype=dtype) for name, size in sizes.items()}


def _weights(arrays: dict[str, Any]) -> Any:
    """Return the weight of each element, one where there are none."""
    return np.resize(arrays["weight"], len(arrays["a"])) if "weight" in arrays else 1.0


def _reference(arrays: dict[str, Any], function: str, reduction: str, **_: Any) -> dict[str, Any]:
    losses = np.asarray(formula(_loss(function)[0])(a=arrays["a"], b=arrays["b"]))
    return {"y": reduced(losses * _weights(arrays), reduction)}


def _backward_reference(arrays: dict[str, Any], function: str, reduction: str, **_: Any) -> dict[str, Any]:
    gradient, factor = _loss(function)[1:]
    upstream = arrays["grad_y"] * factor * _weights(arrays) / (len(arrays["a"]) if reduction == "mean" else 1)
    return {"grad_a": formula(gradient)(a=arrays["a"], b=arrays["b"], g=upstream)}


def _torch_call(tensors: dict[str, Any], function: str, reduction: str, **_: Any) -> dict[str, Any]:
    import torch

    call = getattr(torch.nn.functional, _TORCH_NAMES[function])
    a, b = tensors["a"], tensors["b"].detach()
    if "weight" not in tensors:
        return {"y": call(a, b, reduction=reduction)}
    weight = resized(tensors["weight"].detach(), len(a))
    if function in _WEIGHTED:
        return {"y": call(a, b, weight=weight, reduction=reduction)}
    losses = call(a, b, reduction="none") * weight
    return {"y": losses if reduction == "none" else getattr(losses, reduction)()}


def _from_aten(site: AtenSite) -> Match:
    """Match the losses and their gradients; both kinds of weights together count as one multiplication."""
    x = site.args["self"]
    weights = [site.args[name] for name in ("weight", "pos_weight") if site.args.get(name) is not None]
    packet = site.name.split(".")[1].removesuffix("_backward")
    function = _FUNCTIONS[packet]
    reduction = REDUCTIONS[site.args["reduction"]]
    arguments = {
        "elements": x.elements, "dtype": x.dtype, "function": function, "reduction": reduction,
        "weight": min(x.elements, sum(weight.distinct for weight in weights)),
    }  # fmt: skip
    return Match(arguments=arguments, phase="backward" if "_backward" in site.name else "forward")


OPERATOR = Operator(
    forward=pointwise_loss,
    family="norm",
    backward=_backward,
    tolerance=Tolerance(
        kind="normalisation", reduction="elements", steps_count=2, not_in_fp16=("soft_margin",)
    ),  # PyTorch's exp(-x y) is infinite from 11.1 on
    inputs=_inputs,
    reference=_reference,
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    aten={f"aten.{name}{end}.default": _from_aten for name in _TORCH_NAMES.values() for end in ("", "_backward")}
    | {"aten.soft_margin_loss_backward.grad_input": _from_aten},
)
