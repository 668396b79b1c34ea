"""Layer normalisation."""

from math import prod
from typing import Any

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.structure import Barrier
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.array_arithmetic import unless_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, OnnxSite, Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.normalisation import (
    EPSILON,
    normalised,
    of_mean,
    passed_through,
    requested,
    sizes,
    through,
    unread,
    wanted,
)


def layer_norm(
    rows: int, hidden: int, dtype: DType, param_dtype: DType | None = None, affine: bool = True, bias: bool = True
) -> Work:
    """Return the least work of y[rows,hidden] = (x - mean) / sqrt(variance + eps) * weight + bias, row by row.

    Counts: per element 3 FLOP of statistics (sum, sum of squares), 2 to normalise, 1 for the weight, 1 for the bias;
    one reciprocal root per row. Each element is read once: a row stays on chip. Saved statistics are not counted, at
    most 8 bytes per row that can be formed again.

    Args:
        affine: scaled by a weight; `bias` counts only then.

    Source: Ba et al. 2016, arXiv:1607.06450, eq. 3.

    >>> layer_norm(2, 8, DType(name="bf16", bits_count=16)).read_bytes
    64
    """
    elements, vectors = rows * hidden, affine + (affine and bias)
    return Work(
        flop={unit(dtype): (5 + vectors) * elements},
        special_count=unless_empty(hidden, rows),
        read_bytes=dtype.bytes(elements) + vectors * (param_dtype or dtype).bytes(unless_empty(rows, hidden)),
        write_bytes=dtype.bytes(elements),
        barrier=Barrier(group_count=rows, group_bytes=dtype.bytes(hidden)),
    )


def _backward(
    rows: int, hidden: int, dtype: DType, param_dtype: DType | None = None, affine: bool = True, bias: bool = True,
    grad_input: bool = True, grad_weight: bool = True, grad_bias: bool = True,
) -> Work:  # fmt: skip
    """Return the least work of the requested gradients of input, weight and bias.

    Counts: per element 3 FLOP of sums over the row and 4 to combine them for the input's gradient, 1 more for the
    weight; 4 for the weight's gradient and 1 for the bias's, which needs the upstream gradient alone. Saved statistics
    are not counted.

    Args:
        grad_weight: counts only where there is a weight; likewise `grad_bias`.
    """
    elements, size = rows * hidden, (param_dtype or dtype).bytes(hidden)
    weights, biases = affine and grad_weight, affine and bias and grad_bias
    flop = grad_input * (7 + affine) + 4 * weights + biases
    operands = (grad_input or weights or biases) + (grad_input or weights)
    return Work(
        flop={unit(dtype): flop * elements},
        read_bytes=operands * dtype.bytes(elements) + (affine and grad_input) * unless_empty(rows, size),
        write_bytes=grad_input * dtype.bytes(elements) + (weights + biases) * size,
        barrier=Barrier(group_count=rows, group_bytes=dtype.bytes(hidden)) if grad_input else None,
    )


def _inputs(rows: int, hidden: int, dtype: str, param_dtype: str, affine: bool, bias: bool) -> dict[str, Tensor]:
    tensors = {"input": Tensor(shape=(rows, hidden), dtype=dtype)}
    names = ("weight", "bias")[: affine + (affine and bias)]
    return tensors | {name: Tensor(shape=(hidden,), dtype=param_dtype) for name in names}


def _reference(arrays: dict[str, Any], **_: Any) -> dict[str, Any]:
    normal, _ = normalised(arrays["input"], axis=-1)
    return {"output": normal * arrays.get("weight", 1.0) + arrays.get("bias", 0.0)}


def _backward_reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    upstream = arrays["grad_output"]
    normal, factor = normalised(arrays["input"], axis=-1)
    grads = {"grad_input": through(upstream * arrays.get("weight", 1.0), normal, factor, axis=-1)}
    if arguments["affine"]:
        grads["grad_weight"] = (upstream * normal).sum(axis=0)
        grads |= {"grad_bias": upstream.sum(axis=0)} if arguments["bias"] else {}
    return requested(grads, arguments)


def _subtracted(arrays: dict[str, Any], **_: Any) -> dict[str, Any]:
    _, factor = normalised(arrays["input"], axis=-1)
    return {"output": of_mean(arrays["input"], factor, axis=-1) * abs(arrays.get("weight", 1.0))}


def _passed(arrays: dict[str, Any], **_: Any) -> dict[str, Any]:
    normal, factor = normalised(arrays["input"], axis=-1)
    return {"grad_input": passed_through(arrays["grad_output"] * arrays.get("weight", 1.0), normal, factor, axis=-1)}


def _torch_call(tensors: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    import torch.nn.functional as F  # noqa: N812

    hidden = (arguments["hidden"],)
    return {"output": F.layer_norm(tensors["input"], hidden, tensors.get("weight"), tensors.get("bias"), EPSILON)}


def _from_aten(site: AtenSite) -> Match:
    """Match native_layer_norm and its gradient."""
    x, weight, bias = site.args["input"], site.args["weight"], site.args["bias"]
    arguments = sizes(x, prod(site.args["normalized_shape"]), weight) | {"bias": bias is not None}
    if "grad_out" not in site.args:
        return Match(arguments=arguments)
    grads = wanted(site, weight, bias)
    normal = grads["grad_input"] or grads.get("grad_weight", False)
    touched = {"mean": 0, "rstd": 0, "bias": 0, **unread(grads, "grad_out", normal=normal)}
    return Match(arguments=arguments | grads, phase="backward", touched_bytes=touched)


def _from_onnx(site: OnnxSite) -> Match:
    """Match LayerNormalization."""
    x, weight = site.tensor(0), site.inputs[1]
    bias = site.optional(2) is not None
    return Match(arguments=sizes(x, prod(x.shape[site.attributes.get("axis", -1) :]), weight) | {"bias": bias})


OPERATOR = Operator(
    forward=layer_norm,
    family="norm",
    backward=_backward,
    tolerance=Tolerance(kind="normalisation", reduction="hidden", rounds=("small", "offset")),
    inputs=_inputs,
    reference=_reference,
    backward_reference=_backward_reference,
    subtracted=_subtracted,
    passed=_passed,
    torch_call=_torch_call,
    aten=dict.fromkeys(("aten.native_layer_norm.default", "aten.native_layer_norm_backward.default"), _from_aten),
    onnx={"LayerNormalization": _from_onnx},
)
