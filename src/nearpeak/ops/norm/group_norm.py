"""Group normalisation, and instance normalisation as groups of one channel."""

from math import prod
from typing import Any

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.structure import Barrier
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.array_arithmetic import unless_empty
from nearpeak.ops.shared.definition.axis_checks import required_multiple, required_positive
from nearpeak.ops.shared.definition.operator import AtenSite, Match, OnnxSite, Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.normalisation import (
    EPSILON,
    column,
    formats,
    normalised,
    of_mean,
    passed_through,
    requested,
    through,
    unread,
    wanted,
)


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
    _check(groups, channels)
    elements = batch * channels * spatial
    return Work(
        flop={unit(dtype): 5 * elements},
        special_count=unless_empty(elements, batch * groups),
        read_bytes=dtype.bytes(elements) + 2 * affine * (param_dtype or dtype).bytes(unless_empty(elements, channels)),
        write_bytes=dtype.bytes(elements),
        barrier=Barrier(group_count=batch * groups, group_bytes=dtype.bytes(channels // groups * spatial)),
    )


def _backward(
    batch: int, channels: int, spatial: int, groups: int, dtype: DType, param_dtype: DType | None = None,
    affine: bool = True, grad_input: bool = True, grad_weight: bool = True, grad_bias: bool = True,
) -> Work:  # fmt: skip
    """Return the least work of the requested gradients of input, weight and bias.

    Counts: per element 3 FLOP of sums over each channel, which serve the parameters too, and 4 to combine them for
    the input's gradient. A bias's gradient alone is 1 FLOP per element, of the upstream gradient.

    Args:
        grad_weight: counts only where there is a weight; likewise `grad_bias`.
    """
    _check(groups, channels)
    elements, size = batch * channels * spatial, (param_dtype or dtype).bytes(channels)
    weights, biases = affine and grad_weight, affine and grad_bias
    normal = grad_input or weights
    sums = 3 * normal or int(biases)
    return Work(
        flop={unit(dtype): (sums + 4 * grad_input) * elements},
        read_bytes=((normal or biases) + normal) * dtype.bytes(elements)
        + (affine and grad_input) * unless_empty(elements, size),
        write_bytes=grad_input * dtype.bytes(elements) + (weights + biases) * size,
        barrier=Barrier(group_count=batch * groups, group_bytes=dtype.bytes(channels // groups * spatial))
        if grad_input
        else None,
    )


def _check(groups: int, channels: int) -> None:
    required_positive("group_norm", groups=groups)
    required_multiple("group_norm", {"groups": groups}, channels=channels)


def _inputs(
    batch: int, channels: int, spatial: int, groups: int, dtype: str, param_dtype: str, affine: bool
) -> dict[str, Tensor]:
    tensors = {"input": Tensor(shape=(batch, channels, spatial), dtype=dtype)}
    names = ("weight", "bias") if affine else ()
    return tensors | {name: Tensor(shape=(channels,), dtype=param_dtype) for name in names}


def _split(array: Any, groups: int) -> Any:
    return array.reshape(len(array), groups, -1)


def _reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    x = arrays["input"]
    normal, _ = normalised(_split(x, arguments["groups"]), axis=-1)
    return {"output": normal.reshape(x.shape) * column(arrays, "weight", 1.0) + column(arrays, "bias", 0.0)}


def _backward_reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    x, upstream, groups = arrays["input"], arrays["grad_output"], arguments["groups"]
    normal, factor = normalised(_split(x, groups), axis=-1)
    inner = _split(upstream * column(arrays, "weight", 1.0), groups)
    grads = {"grad_input": through(inner, normal, factor, axis=-1).reshape(x.shape)}
    if arguments["affine"]:
        grads["grad_weight"] = (upstream * normal.reshape(x.shape)).sum(axis=(0, 2))
        grads["grad_bias"] = upstream.sum(axis=(0, 2))
    return requested(grads, arguments)


def _subtracted(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    x = _split(arrays["input"], arguments["groups"])
    _, factor = normalised(x, axis=-1)
    size = of_mean(x, factor, axis=-1).reshape(arrays["input"].shape)
    return {"output": size * abs(column(arrays, "weight", 1.0))}


def _passed(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    x, groups = arrays["input"], arguments["groups"]
    normal, factor = normalised(_split(x, groups), axis=-1)
    upstream = _split(arrays["grad_output"] * column(arrays, "weight", 1.0), groups)
    return {"grad_input": passed_through(upstream, normal, factor, axis=-1).reshape(x.shape)}


def _torch_call(tensors: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    import torch.nn.functional as F  # noqa: N812

    x, groups = tensors["input"], arguments["groups"]
    return {"output": F.group_norm(x, groups, tensors.get("weight"), tensors.get("bias"), EPSILON)}


def _from_aten(site: AtenSite) -> Match:
    """Match native_group_norm and its gradient."""
    x, weight = site.args["input"], site.args["weight"]
    arguments = {
        "batch": site.args["N"], "channels": site.args["C"], "spatial": site.args["HxW"], "groups": site.args["group"],
        **formats(x, weight),
    }  # fmt: skip
    if "grad_out" not in site.args:
        return Match(arguments=arguments)
    grads = wanted(site, weight, weight)
    normal = grads["grad_input"] or grads.get("grad_weight", False)
    touched = {"mean": 0, "rstd": 0, **unread(grads, "grad_out", normal=normal)}
    return Match(arguments=arguments | grads, phase="backward", touched_bytes=touched)


def _from_onnx(site: OnnxSite) -> Match:
    """Match GroupNormalization and InstanceNormalization."""
    x, weight = site.tensor(0), site.inputs[1]
    groups = x.shape[1] if site.name == "InstanceNormalization" else site.attributes["num_groups"]
    axes = {"batch": x.shape[0], "channels": x.shape[1], "spatial": prod(x.shape[2:]), "groups": groups}
    return Match(arguments=axes | formats(x, weight))


OPERATOR = Operator(
    forward=group_norm,
    family="norm",
    backward=_backward,
    # PyTorch's kernel for GPUs keeps mean and factor of each group in the format of the input.
    tolerance=Tolerance(kind="normalisation", reduction="channels spatial", rounds=("small", "offset"), steps_count=1),
    inputs=_inputs,
    reference=_reference,
    backward_reference=_backward_reference,
    subtracted=_subtracted,
    passed=_passed,
    torch_call=_torch_call,
    aten=dict.fromkeys(("aten.native_group_norm.default", "aten.native_group_norm_backward.default"), _from_aten),
    onnx={"GroupNormalization": _from_onnx, "InstanceNormalization": _from_onnx},
)
