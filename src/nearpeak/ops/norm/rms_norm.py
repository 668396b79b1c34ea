"""Root-mean-square normalisation."""

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.structure import Barrier
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.array_arithmetic import unless_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, OnnxSite, Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.normalisation import passed_through, requested, sizes, unread, wanted

EPSILON = 1e-6
"""Added to the mean square; the value of the Llama family."""


def rms_norm(rows: int, hidden: int, dtype: DType, param_dtype: DType | None = None, affine: bool = True) -> Work:
    """Return the least work of y[rows,hidden] = x / sqrt(mean(x^2) + eps) * weight, row by row.

    Counts: per element 2 FLOP for the sum of squares, 1 to scale, 1 for the weight; one reciprocal root per row. Each
    element is read once: a row stays on chip. The saved root is not counted.

    Source: Zhang and Sennrich 2019, arXiv:1910.07467, eq. 4.

    >>> rms_norm(2, 8, DType(name="bf16", bits_count=16)).read_bytes
    48
    """
    elements = rows * hidden
    return Work(
        flop={unit(dtype): (3 + affine) * elements},
        special_count=unless_empty(hidden, rows),
        read_bytes=dtype.bytes(elements) + affine * (param_dtype or dtype).bytes(unless_empty(rows, hidden)),
        write_bytes=dtype.bytes(elements),
        barrier=Barrier(group_count=rows, group_bytes=dtype.bytes(hidden)),
    )


def _backward(
    rows: int,
    hidden: int,
    dtype: DType,
    param_dtype: DType | None = None,
    affine: bool = True,
    grad_input: bool = True,
    grad_weight: bool = True,
) -> Work:
    """Return the least work of the requested gradients of input and weight.

    Counts: per element 2 FLOP for the sum over the row and 3 to combine for the input's gradient, 1 more for the
    weight; 3 for the weight's gradient.

    Args:
        grad_weight: counts only where there is a weight.
    """
    elements, size = rows * hidden, (param_dtype or dtype).bytes(hidden)
    weights = affine and grad_weight
    return Work(
        flop={unit(dtype): (grad_input * (5 + affine) + 3 * weights) * elements},
        read_bytes=2 * (grad_input or weights) * dtype.bytes(elements)
        + (affine and grad_input) * unless_empty(rows, size),
        write_bytes=grad_input * dtype.bytes(elements) + weights * size,
        barrier=Barrier(group_count=rows, group_bytes=dtype.bytes(hidden)) if grad_input else None,
    )


def _inputs(rows: int, hidden: int, dtype: str, param_dtype: str, affine: bool) -> dict[str, Tensor]:
    tensors = {"input": Tensor(shape=(rows, hidden), dtype=dtype)}
    return tensors | ({"weight": Tensor(shape=(hidden,), dtype=param_dtype)} if affine else {})


def _factor(x: Any) -> Any:
    return 1 / np.sqrt((x**2).mean(axis=-1, keepdims=True) + EPSILON)


def _kept(arrays: dict[str, Any], keep: Callable[[Any], Any], **_: Any) -> dict[str, Any]:
    """Return the outputs; vLLM, Apex and Hugging Face keep a row in the format of the input before its weight."""
    x = arrays["input"]
    return {"output": keep(x * _factor(x)) * arrays.get("weight", 1.0)}


def _backward_reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    upstream, factor = arrays["grad_output"], _factor(arrays["input"])
    normal, inner = arrays["input"] * factor, upstream * arrays.get("weight", 1.0)
    grads = {"grad_input": factor * (inner - normal * (inner * normal).mean(axis=-1, keepdims=True))}
    if arguments["affine"]:
        grads["grad_weight"] = (upstream * normal).sum(axis=0)
    return requested(grads, arguments)


def _passed(arrays: dict[str, Any], **_: Any) -> dict[str, Any]:
    factor = _factor(arrays["input"])
    upstream = arrays["grad_output"] * arrays.get("weight", 1.0)
    return {"grad_input": passed_through(upstream, arrays["input"] * factor, factor, axis=-1)}


def _torch_call(tensors: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    import torch.nn.functional as F  # noqa: N812

    return {"output": F.rms_norm(tensors["input"], (arguments["hidden"],), tensors.get("weight"), EPSILON)}


def _from_aten(site: AtenSite) -> Match:
    """Match the fused root-mean-square normalisation and its gradient."""
    hidden = prod(site.args["normalized_shape"])
    arguments = sizes(site.args["input"], hidden, site.args["weight"])
    if "grad_out" not in site.args:
        return Match(arguments=arguments)
    grads = wanted(site, site.args["weight"], None)
    touched = {"rstd": 0, **unread(grads, "grad_out", normal=any(grads.values()))}
    return Match(arguments=arguments | grads, phase="backward", touched_bytes=touched)


def _from_onnx(site: OnnxSite) -> Match:
    """Match RMSNormalization and the older SimplifiedLayerNormalization."""
    x, weight = site.tensor(0), site.inputs[1]
    return Match(arguments=sizes(x, prod(x.shape[site.attributes.get("axis", -1) :]), weight))


OPERATOR = Operator(
    forward=rms_norm,
    family="norm",
    backward=_backward,
    # PyTorch's kernel for GPUs scales the sum of squares by what an infinity makes 0.
    tolerance=Tolerance(kind="normalisation", reduction="hidden", rounds=("small",), step_if="affine", collapses=True),
    inputs=_inputs,
    reference=lambda arrays, **_: _kept(arrays, lambda row: row),
    backward_reference=_backward_reference,
    passed=_passed,
    kept=_kept,
    torch_call=_torch_call,
    aten=dict.fromkeys(
        ("aten.rms_norm.default", "aten._fused_rms_norm.default", "aten._fused_rms_norm_backward.default"), _from_aten
    ),
    onnx={"RMSNormalization": _from_onnx, "SimplifiedLayerNormalization": _from_onnx},
)
