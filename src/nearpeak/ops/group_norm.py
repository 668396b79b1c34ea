"""Group normalisation; with one channel per group it is instance normalisation."""

from math import prod
from typing import Any

from nearpeak.core.dtype import DType
from nearpeak.core.tensor import Tensor
from nearpeak.core.work import Work
from nearpeak.ops._operator import AtenSite, Match, Numerics, OnnxSite, Operator
from nearpeak.ops.layer_norm import EPSILON, normalised, through


def group_norm(
    batch: int,
    channels: int,
    spatial: int,
    groups: int,
    dtype: DType,
    param_dtype: DType | None = None,
    affine: bool = True,
) -> Work:
    """Return the least work of y[batch,channels,spatial] normalised over each group of neighbouring channels.

    Counts: per element 3 FLOP of statistics and 2 to apply the channel's scale and shift (weight and bias folded in);
    one reciprocal root per group. Each element is read once; saved statistics are not counted.

    Source: Wu and He 2018, arXiv:1803.08494, eq. 1 to 7.

    >>> group_norm(1, 4, 8, 2, DType(name="bf16", bits_count=16)).read_bytes
    80
    """
    elements = batch * channels * spatial
    return Work(
        flop={"vector.fp32": 5 * elements},
        special_count=batch * groups,
        read_bytes=dtype.bytes(elements) + 2 * affine * (param_dtype or dtype).bytes(channels),
        write_bytes=dtype.bytes(elements),
    )


def _backward(
    batch: int,
    channels: int,
    spatial: int,
    groups: int,
    dtype: DType,
    param_dtype: DType | None = None,
    affine: bool = True,
    grad_params: bool = True,
) -> Work:
    """Return the least work of the gradients of input, weight and bias.

    Counts: per element 3 FLOP of sums over each channel, which serve the parameters too, and 4 to combine them.
    """
    elements, size = batch * channels * spatial, (param_dtype or dtype).bytes(channels)
    return Work(
        flop={"vector.fp32": 7 * elements},
        read_bytes=2 * dtype.bytes(elements) + affine * size,
        write_bytes=dtype.bytes(elements) + 2 * (affine and grad_params) * size,
    )


def _inputs(
    batch: int, channels: int, spatial: int, groups: int, dtype: str, param_dtype: str, affine: bool
) -> dict[str, Tensor]:
    tensors = {"input": Tensor(shape=(batch, channels, spatial), dtype=dtype)}
    names = ("weight", "bias") if affine else ()
    return tensors | {name: Tensor(shape=(channels,), dtype=param_dtype) for name in names}


def _split(array: Any, groups: int) -> Any:
    return array.reshape(len(array), groups, -1)


def _column(arrays: dict[str, Any], name: str, absent: float) -> Any:
    return arrays[name][:, None] if name in arrays else absent


def _reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    x = arrays["input"]
    normal, _ = normalised(_split(x, arguments["groups"]), axis=-1)
    return {"output": normal.reshape(x.shape) * _column(arrays, "weight", 1.0) + _column(arrays, "bias", 0.0)}


def _backward_reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    x, upstream, groups = arrays["input"], arrays["grad_output"], arguments["groups"]
    normal, factor = normalised(_split(x, groups), axis=-1)
    inner = _split(upstream * _column(arrays, "weight", 1.0), groups)
    grads = {"grad_input": through(inner, normal, factor, axis=-1).reshape(x.shape)}
    if arguments["affine"] and arguments["grad_params"]:
        grads["grad_weight"] = (upstream * normal.reshape(x.shape)).sum(axis=(0, 2))
        grads["grad_bias"] = upstream.sum(axis=(0, 2))
    return grads


def _torch_call(tensors: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    import torch.nn.functional as F  # noqa: N812

    x, groups = tensors["input"], arguments["groups"]
    return {"output": F.group_norm(x, groups, tensors.get("weight"), tensors.get("bias"), EPSILON)}


def _from_aten(site: AtenSite) -> Match:
    """Match native_group_norm and its gradient."""
    x, weight = site.args["input"], site.args["weight"]
    arguments = {
        "batch": site.args["N"], "channels": site.args["C"], "spatial": site.args["HxW"], "groups": site.args["group"],
        **_formats(x, weight),
    }  # fmt: skip
    if "grad_out" not in site.args:
        return Match(arguments=arguments)
    asked = {"grad_params": weight is None or any(site.args["output_mask"][1:])}
    return Match(arguments=arguments | asked, phase="backward", touched_bytes={"mean": 0, "rstd": 0})


def _from_onnx(site: OnnxSite) -> Match:
    """Match GroupNormalization and InstanceNormalization."""
    x, weight = site.inputs[0], site.inputs[1]
    assert x is not None
    groups = x.shape[1] if site.name == "InstanceNormalization" else site.attributes["num_groups"]
    axes = {"batch": x.shape[0], "channels": x.shape[1], "spatial": prod(x.shape[2:]), "groups": groups}
    return Match(arguments=axes | _formats(x, weight))


def _formats(x: Tensor, weight: Tensor | None) -> dict[str, Any]:
    params = x.dtype if weight is None else weight.dtype
    return {"dtype": x.dtype, "param_dtype": params, "affine": weight is not None}


OPERATOR = Operator(
    forward=group_norm,
    backward=_backward,
    source="Wu and He 2018, arXiv:1803.08494",
    numerics=Numerics(kind="normalisation", reduction="channels spatial"),
    inputs=_inputs,
    reference=_reference,
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    aten=dict.fromkeys(("aten.native_group_norm.default", "aten.native_group_norm_backward.default"), _from_aten),
    onnx={"GroupNormalization": _from_onnx, "InstanceNormalization": _from_onnx},
)
