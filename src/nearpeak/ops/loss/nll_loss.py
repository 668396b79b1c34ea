"""Negative log-likelihood of the target class, from log-probabilities."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import INDEX, unit
from nearpeak.ops.shared.definition.array_arithmetic import unless_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.loss_reductions import REDUCTIONS, checked, class_inputs, of_targets, upstream_of


def nll_loss(rows: int, classes: int, dtype: DType, reduction: str = "mean") -> Work:
    """Return the least work of the loss -x[row,target[row]], added up or averaged over the rows.

    Counts: one FLOP per row (its sign, or rows - 1 additions and one sign); a mean is one division more. One element
    per row is read, on the assumption that no target is the ignored one, and every target.

    Args:
        reduction: none, mean or sum.

    Source: definition.

    >>> nll_loss(8, 100, DType(name="fp32", bits_count=32)).read_bytes
    96
    """
    del classes
    none = checked(reduction) == "none"
    return Work(
        flop={unit(dtype): rows},
        special_count=unless_empty(rows, 1 if reduction == "mean" else 0),
        read_bytes=dtype.bytes(rows) + INDEX.bytes(rows),
        write_bytes=dtype.bytes(rows if none else 1),
    )


def _backward(rows: int, classes: int, dtype: DType, reduction: str = "mean") -> Work:
    """Return the least work of the gradient, which is zero but for one element per row; all of it is written."""
    none, elements = checked(reduction) == "none", rows * classes
    return Work(
        flop={unit(dtype): unless_empty(elements, rows if none else 1)},
        special_count=unless_empty(elements, 1 if reduction == "mean" else 0),
        read_bytes=INDEX.bytes(unless_empty(elements, rows)) + dtype.bytes(unless_empty(elements, rows if none else 1)),
        write_bytes=dtype.bytes(elements),
    )


def _backward_reference(arrays: dict[str, Any], reduction: str, **_: Any) -> dict[str, Any]:
    x, target = arrays["x"], arrays["target"]
    grad = np.zeros_like(x)
    grad[np.arange(len(target)), np.maximum(target, 0)] = -upstream_of(target, arrays["grad_y"], reduction)
    return {"grad_x": grad}


def _torch_call(tensors: dict[str, Any], reduction: str, **_: Any) -> dict[str, Any]:
    import torch

    return {"y": torch.nn.functional.nll_loss(tensors["x"], tensors["target"], reduction=reduction)}


def _from_aten(site: AtenSite) -> Match:
    """Match nll_loss and its two-dimensional twin, and their gradients.

    Which class weights are read is data, at least one; their arithmetic is not counted.
    """
    x, target = site.args["self"], site.args["target"]
    rows = target.elements
    classes = x.elements // rows if rows else 0
    arguments = {
        "rows": rows, "classes": classes, "dtype": x.dtype, "reduction": REDUCTIONS[site.args["reduction"]],
    }  # fmt: skip
    size = dtype_of(x.dtype)
    weight = {"weight": size.bytes(min(1, rows))} if site.args.get("weight") is not None else {}
    if "backward" in site.name:
        return Match(arguments=arguments, phase="backward", touched_bytes={"self": 0, **weight})
    return Match(arguments=arguments, touched_bytes={"self": size.bytes(rows), **weight})


OPERATOR = Operator(
    forward=nll_loss,
    family="norm",
    backward=_backward,
    assumptions=("A20",),
    tolerance=Tolerance(
        kind="reduction", reduction="rows", below={"target": "classes"}, ignored=("target",), steps_count=2
    ),
    inputs=class_inputs,
    reference=lambda arrays, reduction, **_: {"y": of_targets(arrays["x"], arrays["target"], reduction)},
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    aten={
        f"aten.{name}_{phase}.default": _from_aten
        for name in ("nll_loss", "nll_loss2d")
        for phase in ("forward", "backward")
    },
)
