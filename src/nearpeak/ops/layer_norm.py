"""Layer normalisation."""

from math import prod
from typing import Any

import numpy as np

from nearpeak.core.dtype import DType
from nearpeak.core.tensor import Tensor
from nearpeak.core.work import Work
from nearpeak.ops._operator import AtenSite, Match, Numerics, OnnxSite, Operator

EPSILON = 1e-5
"""Added to the variance; PyTorch's default."""


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
        flop={"vector.fp32": (5 + vectors) * elements},
        special_count=rows,
        read_bytes=dtype.bytes(elements) + vectors * (param_dtype or dtype).bytes(hidden),
        write_bytes=dtype.bytes(elements),
    )


def _backward(
    rows: int,
    hidden: int,
    dtype: DType,
    param_dtype: DType | None = None,
    affine: bool = True,
    bias: bool = True,
    grad_params: bool = True,
) -> Work:
    """Return the least work of the gradients of input, weight and bias.

    Counts: per element 3 FLOP of sums over the row, 4 to combine them; 1 for the weight; 4 for the weight's gradient
    and 1 for the bias's. Saved statistics are not counted.
    """
    elements, vectors = rows * hidden, affine + (affine and bias)
    parameters = (affine and 4) + (affine and bias) if grad_params else 0
    size = (param_dtype or dtype).bytes(hidden)
    return Work(
        flop={"vector.fp32": (7 + affine + parameters) * elements},
        read_bytes=2 * dtype.bytes(elements) + affine * size,
        write_bytes=dtype.bytes(elements) + (vectors if grad_params else 0) * size,
    )


def _inputs(rows: int, hidden: int, dtype: str, param_dtype: str, affine: bool, bias: bool) -> dict[str, Tensor]:
    tensors = {"input": Tensor(shape=(rows, hidden), dtype=dtype)}
    names = ("weight", "bias")[: affine + (affine and bias)]
    return tensors | {name: Tensor(shape=(hidden,), dtype=param_dtype) for name in names}


def _reference(arrays: dict[str, Any], **_: Any) -> dict[str, Any]:
    normal, _ = normalised(arrays["input"], axis=-1)
    return {"output": normal * arrays.get("weight", 1.0) + arrays.get("bias", 0.0)}


def normalised(x: Any, axis: int | tuple[int, ...]) -> tuple[Any, Any]:
    """Return x with mean 0 and variance 1 over `axis`, and the factor that scaled it."""
    centred = x - x.mean(axis=axis, keepdims=True)
    factor = 1 / np.sqrt((centred**2).mean(axis=axis, keepdims=True) + EPSILON)
    return centred * factor, factor


def through(upstream: Any, normal: Any, factor: Any, axis: int | tuple[int, ...]) -> Any:
    """Return the gradient of the input of `normalised` from that of its output."""
    mean = upstream.mean(axis=axis, keepdims=True)
    return factor * (upstream - mean - normal * (upstream * normal).mean(axis=axis, keepdims=True))


def _backward_reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    upstream = arrays["grad_output"]
    normal, factor = normalised(arrays["input"], axis=-1)
    grads = {"grad_input": through(upstream * arrays.get("weight", 1.0), normal, factor, axis=-1)}
    if arguments["grad_params"] and arguments["affine"]:
        grads["grad_weight"] = (upstream * normal).sum(axis=0)
        grads |= {"grad_bias": upstream.sum(axis=0)} if arguments["bias"] else {}
    return grads


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
    asked = {"grad_params": weight is None or any(site.args["output_mask"][1:])}
    return Match(arguments=arguments | asked, phase="backward", touched_bytes={"mean": 0, "rstd": 0, "bias": 0})


def _from_onnx(site: OnnxSite) -> Match:
    """Match LayerNormalization."""
    x, weight = site.inputs[0], site.inputs[1]
    assert x is not None
    bias = len(site.inputs) > 2 and site.inputs[2] is not None
    return Match(arguments=sizes(x, prod(x.shape[site.attributes.get("axis", -1) :]), weight) | {"bias": bias})


def sizes(x: Tensor, hidden: int, weight: Tensor | None) -> dict[str, Any]:
    """Return the arguments that all row-wise normalisations share."""
    return {
        "rows": x.elements // hidden if hidden else 0, "hidden": hidden, "dtype": x.dtype,
        "param_dtype": x.dtype if weight is None else weight.dtype, "affine": weight is not None,
    }  # fmt: skip


OPERATOR = Operator(
    forward=layer_norm,
    backward=_backward,
    source="Ba et al. 2016, arXiv:1607.06450, eq. 3",
    numerics=Numerics(kind="normalisation", reduction="hidden"),
    inputs=_inputs,
    reference=_reference,
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    aten=dict.fromkeys(("aten.native_layer_norm.default", "aten.native_layer_norm_backward.default"), _from_aten),
    onnx={"LayerNormalization": _from_onnx},
)
