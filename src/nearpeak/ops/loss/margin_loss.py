"""Multi-class and multi-label margin (hinge) losses."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import INDEX, unit
from nearpeak.ops.shared.definition.array_arithmetic import maximum, unless_empty
from nearpeak.ops.shared.definition.axis_checks import required_one_of
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.loss_reductions import REDUCTIONS, checked, reduced

FUNCTIONS = ("multi_margin", "multilabel_margin")


@free_when_empty
def margin_loss(
    rows: int, classes: int, dtype: DType, function: str = "multi_margin", reduction: str = "mean",
    squared: bool = False, weighted: bool = False, labels: int = 1,
) -> Work:  # fmt: skip
    """Return the least work of the mean over classes of max(0, 1 - x[row,target] + x[row,class]).

    Counts: for each target of a row 1 FLOP; for each pair of a target and a class that is none 2, one more where it is
    squared; all but one addition; one multiplication for the means and one per row for weights. How many of a row's
    classes are targets is data; a bound takes the lower end of one unless the values are known (assumption A9).

    Args:
        function: multi_margin, whose targets are one int64 per row, or multilabel_margin, whose targets are a row of
            classes that ends with -1 and which also writes which classes are targets.
        reduction: none, mean or sum.
        labels: targets per row of multilabel_margin.

    Source: Crammer and Singer 2001, JMLR 2, 265-292; definitions as PyTorch states them.

    >>> margin_loss(2, 5, DType(name="fp32", bits_count=32)).flop
    {'vector.fp32': 26}
    """
    required_one_of("margin_loss", FUNCTIONS, function=function)
    several, none = function == "multilabel_margin", checked(reduction) == "none"
    targets = labels if several else 1
    pairs = rows * targets * maximum(classes - targets, 0)
    results = rows if none else 1
    return Work(
        flop={unit(dtype): rows * targets + (2 + squared) * pairs + maximum(pairs - results, 0) + results
              + weighted * rows},
        read_bytes=dtype.bytes(rows * classes) + weighted * dtype.bytes(1)
        + INDEX.bytes(rows * (targets + 1 if several else 1)),
        write_bytes=dtype.bytes(results) + (dtype.bytes(rows * classes) if several else 0),
    )  # fmt: skip


@free_when_empty
def _backward(
    rows: int, classes: int, dtype: DType, function: str = "multi_margin", reduction: str = "mean",
    squared: bool = False, weighted: bool = False, labels: int = 1,
) -> Work:  # fmt: skip
    """Return the least work of the gradient of x.

    Counts: as forward up to the comparison; one multiplication more per pair where it is squared. What a target's
    gradient adds up is data and not counted.
    """
    required_one_of("margin_loss", FUNCTIONS, function=function)
    several, none = function == "multilabel_margin", checked(reduction) == "none"
    targets = labels if several else 1
    pairs = rows * targets * maximum(classes - targets, 0)
    return Work(
        flop={unit(dtype): rows * targets + (2 + squared) * pairs},
        read_bytes=dtype.bytes(rows * classes * (2 if several else 1) + unless_empty(rows, rows if none else 1))
        + weighted * dtype.bytes(1)
        + INDEX.bytes(rows * (targets + 1 if several else 1)),
        write_bytes=dtype.bytes(rows * classes),
    )


def _inputs(rows: int, classes: int, dtype: str, function: str, weighted: bool, labels: int, **_: Any) -> Any:
    width = (labels + 1,) if function == "multilabel_margin" else ()
    tensors = {
        "x": Tensor(shape=(rows, classes), dtype=dtype),
        "target": Tensor(shape=(rows, *width), dtype="int64"),
    }
    return tensors | ({"weight": Tensor(shape=(classes,), dtype=dtype)} if weighted else {})


def _targets(arrays: dict[str, Any], classes: int) -> Any:
    """Return a row of distinct target classes per row: the drawn ones turn a fixed row of them; the last ends it."""
    target = np.asarray(arrays["target"])
    if target.ndim == 1:
        return target[:, None] % classes
    return (target[:, :1] + np.arange(target.shape[1] - 1)) % classes


def _slopes(arrays: dict[str, Any], classes: int, squared: bool) -> tuple[Any, Any]:
    """Return the loss of each row and its gradient."""
    x, targets = arrays["x"], _targets(arrays, classes)
    rows = np.arange(len(x))
    losses, slopes = np.zeros(len(x)), np.zeros_like(x)
    others = np.ones_like(x)
    np.put_along_axis(others, targets, 0.0, axis=1)
    for target in targets.T:
        hinge = np.maximum(0.0, 1.0 - x[rows, target][:, None] + x) * others
        weight = (arrays["weight"][target] if "weight" in arrays else np.ones(len(x)))[:, None] / classes
        losses += ((hinge**2 if squared else hinge) * weight).sum(axis=1)
        slope = (2 * hinge if squared else 1.0 * (hinge > 0)) * weight
        slopes += slope
        slopes[rows, target] -= slope.sum(axis=1)
    return losses, slopes


def _reference(
    arrays: dict[str, Any], classes: int, function: str, reduction: str, squared: bool, **_: Any
) -> dict[str, Any]:
    outputs = {"y": reduced(_slopes(arrays, classes, squared)[0], reduction)}
    if function == "multi_margin":
        return outputs
    member = np.zeros_like(arrays["x"])
    np.put_along_axis(member, _targets(arrays, classes), 1.0, axis=1)
    return outputs | {"is_target": member}


def _backward_reference(
    arrays: dict[str, Any], rows: int, classes: int, reduction: str, squared: bool, **_: Any
) -> dict[str, Any]:
    upstream = arrays["grad_y"] / (rows if reduction == "mean" else 1)
    return {"grad_x": _slopes(arrays, classes, squared)[1] * np.broadcast_to(upstream, rows)[:, None]}


def _torch_call(
    tensors: dict[str, Any], classes: int, function: str, reduction: str, squared: bool, **_: Any
) -> dict[str, Any]:
    import torch

    target = tensors["target"]  # as `_targets` has them
    if target.ndim == 1:
        targets = target[:, None] % classes
    else:
        targets = (target[:, :1] + torch.arange(target.shape[1] - 1, device=target.device)) % classes
    if function == "multi_margin":
        weight = tensors["weight"].detach() if "weight" in tensors else None
        call = torch.nn.functional.multi_margin_loss
        return {"y": call(tensors["x"], targets[:, 0], 2 if squared else 1, weight=weight, reduction=reduction)}
    row = torch.nn.functional.pad(targets, (0, classes - targets.shape[1]), value=-1)
    y, member = torch.ops.aten.multilabel_margin_loss_forward(tensors["x"], row, REDUCTIONS.index(reduction))
    return {"y": y, "is_target": member}


def _from_aten(site: AtenSite) -> Match:
    """Match both losses and their gradients; how many targets a row has is not known."""
    x = site.args["self"]
    several = "multilabel" in site.name
    classes = x.shape[-1] if x.shape else 1
    rows = x.elements // classes if classes else 0
    weighted = site.args.get("weight") is not None
    arguments: dict[str, Value] = {
        "rows": rows, "classes": classes, "dtype": x.dtype, "reduction": REDUCTIONS[site.args["reduction"]],
        "function": FUNCTIONS[several], "squared": site.args.get("p") == 2, "weighted": weighted,
    }  # fmt: skip
    touched = {"target": INDEX.bytes(min(2 * rows, site.args["target"].elements))} if several else {}
    touched |= {"weight": dtype_of(x.dtype).bytes(1)} if weighted else {}
    phase = "backward" if "backward" in site.name else "forward"
    return Match(arguments=arguments, phase=phase, touched_bytes=touched)


OPERATOR = Operator(
    forward=margin_loss,
    family="norm",
    backward=_backward,
    tolerance=Tolerance(
        kind="normalisation", reduction="rows classes", special="unspecified", below={"target": "classes"}
    ),
    inputs=_inputs,
    reference=_reference,
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    aten={
        "aten.multi_margin_loss.default": _from_aten,
        "aten.multilabel_margin_loss_forward.default": _from_aten,
        **{f"aten.{name}_loss_backward.{end}": _from_aten for name in FUNCTIONS for end in ("default", "grad_input")},
    },
)
