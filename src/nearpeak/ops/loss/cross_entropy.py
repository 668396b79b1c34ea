"""Cross entropy of logits against target classes: fused log-softmax and negative log-likelihood."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import INDEX, unit
from nearpeak.ops.shared.definition.array_arithmetic import maximum, unless_empty
from nearpeak.ops.shared.definition.operator import Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.loss_reductions import checked, class_inputs, of_targets, upstream_of


def cross_entropy(rows: int, classes: int, dtype: DType, reduction: str = "mean") -> Work:
    """Return the least work of the loss log(sum(exp(x[row]))) - x[row,target[row]], added up or averaged.

    Counts: per row classes - 1 FLOP for the maximum, classes to subtract it, classes - 1 to add up, 1 to subtract the
    target's logit; rows - 1 to reduce; classes + 1 special evaluations per row, one more for a mean.

    Args:
        reduction: none, mean or sum.

    Source: definition, with the maximum subtracted.

    >>> cross_entropy(2, 8, DType(name="bf16", bits_count=16), reduction="none").flop
    {'vector.fp32': 46}
    """
    none = checked(reduction) == "none"
    return Work(
        flop={unit(dtype): rows * maximum(3 * classes - 1, 0) + (0 if none else maximum(rows - 1, 0))},
        special_count=rows * (classes + 1) + unless_empty(rows, int(reduction == "mean")),
        read_bytes=dtype.bytes(rows * classes) + INDEX.bytes(rows),
        write_bytes=dtype.bytes(rows if none else 1),
    )


def _backward(rows: int, classes: int, dtype: DType, reduction: str = "mean") -> Work:
    """Return the least work of (exp(x - log-sum) - [class is target]) * g, from the logits alone.

    Counts: 2 * classes + 1 FLOP per row and classes special evaluations; a mean is one division more. A saved log-sum
    is not counted, nor what forming it again would cost.
    """
    none = checked(reduction) == "none"
    elements, used = rows * classes, unless_empty(classes, rows)
    return Work(
        flop={unit(dtype): used * (2 * classes + 1)},
        special_count=elements + unless_empty(elements, int(reduction == "mean")),
        read_bytes=dtype.bytes(elements) + INDEX.bytes(used) + dtype.bytes(used if none else unless_empty(used, 1)),
        write_bytes=dtype.bytes(elements),
    )


def _log_softmax(x: Any) -> Any:
    shifted = x - x.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def _backward_reference(arrays: dict[str, Any], reduction: str, **_: Any) -> dict[str, Any]:
    target = arrays["target"]
    probability = np.exp(_log_softmax(arrays["x"]))
    probability[np.arange(len(target)), np.maximum(target, 0)] -= 1
    return {"grad_x": probability * upstream_of(target, arrays["grad_y"], reduction)[:, None]}


def _torch_call(tensors: dict[str, Any], reduction: str, **_: Any) -> dict[str, Any]:
    import torch

    return {"y": torch.nn.functional.cross_entropy(tensors["x"], tensors["target"], reduction=reduction)}


OPERATOR = Operator(
    forward=cross_entropy,
    family="norm",
    backward=_backward,
    assumptions=("A20",),
    tolerance=Tolerance(
        kind="normalisation",
        reduction="classes",
        below={"target": "classes"},
        ignored=("target",),
        steps_count=2,
        gates="targets",
        rounds=("large", "deep", "peak_first", "peak_last"),
    ),
    inputs=class_inputs,
    reference=lambda arrays, reduction, **_: {"y": of_targets(_log_softmax(arrays["x"]), arrays["target"], reduction)},
    backward_reference=_backward_reference,
    torch_call=_torch_call,
)
