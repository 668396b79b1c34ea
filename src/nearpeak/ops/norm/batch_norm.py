"""Batch normalisation: with running statistics in inference, with batch statistics in training."""

from math import prod
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.structure import Barrier
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.array_arithmetic import unless_empty
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
from nearpeak.ops.shared.torch_names import torch_dtype

MOMENTUM = 0.1
"""Share of the batch in the running statistics; PyTorch's default."""
_STATISTICS = dtype_of("fp32")


def batch_norm(
    batch: int, channels: int, spatial: int, dtype: DType, param_dtype: DType | None = None,
    stat_dtype: DType = _STATISTICS, train: bool = False, affine: bool = True, running: bool = True,
) -> Work:  # fmt: skip
    """Return the least work of y[batch,channels,spatial] normalised per channel.

    Counts: per element 2 FLOP to apply the channel's scale and shift; in training 3 more for sum and sum of squares;
    one reciprocal root per channel. Each element is read once: in training that is a floor, reached when a channel
    fits on chip. Training reads and writes the running statistics. Saved statistics are not counted.

    Args:
        stat_dtype: format of the running statistics.
        train: normalise by the batch's own statistics.
        running: keep running statistics; inference always has them.

    Source: Ioffe and Szegedy 2015, arXiv:1502.03167, algorithms 1 and 2.

    >>> batch_norm(1, 4, 8, DType(name="bf16", bits_count=16)).read_bytes
    112
    """
    elements, has_running = batch * channels * spatial, running or not train
    used = unless_empty(elements, channels)
    statistics = 2 * has_running * stat_dtype.bytes(used)
    return Work(
        flop={unit(dtype): (5 if train else 2) * elements},
        special_count=used,
        read_bytes=dtype.bytes(elements) + 2 * affine * (param_dtype or dtype).bytes(used) + statistics,
        write_bytes=dtype.bytes(elements) + train * statistics,
        barrier=Barrier(group_count=channels, group_bytes=dtype.bytes(batch * spatial)) if train else None,
    )


def _backward(
    batch: int, channels: int, spatial: int, dtype: DType, param_dtype: DType | None = None,
    stat_dtype: DType = _STATISTICS, train: bool = True, affine: bool = True, grad_input: bool = True,
    grad_weight: bool = True, grad_bias: bool = True,
) -> Work:  # fmt: skip
    """Return the least work of the requested gradients of input, weight and bias.

    Counts: per element 3 FLOP of sums over the channel, which serve the parameters too, and in training 4 to combine
    them for the input's gradient; where running statistics were used that takes 1, and no sums. A bias's gradient
    alone is 1 FLOP per element, of the upstream gradient.

    Args:
        grad_weight: counts only where there is a weight; likewise `grad_bias`.
    """
    elements, size = batch * channels * spatial, (param_dtype or dtype).bytes(channels)
    weights, biases = affine and grad_weight, affine and grad_bias
    normal = weights or (train and grad_input)
    sums = 3 * normal or int(biases)
    used = unless_empty(elements, channels)
    statistics = 0 if train else (weights or grad_input) + weights
    return Work(
        flop={unit(dtype): (sums + grad_input * (4 if train else 1)) * elements},
        special_count=0 * channels if train else (weights or grad_input) * used,
        read_bytes=((grad_input or weights or biases) + normal) * dtype.bytes(elements)
        + (affine and grad_input) * (param_dtype or dtype).bytes(used)
        + statistics * stat_dtype.bytes(used),
        write_bytes=grad_input * dtype.bytes(elements) + (weights + biases) * size,
        barrier=Barrier(group_count=channels, group_bytes=dtype.bytes(batch * spatial))
        if train and grad_input
        else None,
    )


def _inputs(**arguments: Any) -> dict[str, Tensor]:
    channels, has_running = (arguments["channels"],), arguments["running"] or not arguments["train"]
    shape = (arguments["batch"], *channels, arguments["spatial"])
    params = ("weight", "bias") if arguments["affine"] else ()
    stored = dict.fromkeys(params, "param_dtype")
    stored |= dict.fromkeys(("running_mean", "running_var") if has_running else (), "stat_dtype")
    tensors = {"input": Tensor(shape=shape, dtype=arguments["dtype"])}
    return tensors | {name: Tensor(shape=channels, dtype=arguments[key]) for name, key in stored.items()}


def _normal(arrays: dict[str, Any], *, train: bool) -> tuple[Any, Any]:
    x = arrays["input"]
    if train:
        return normalised(x, axis=(0, 2))
    factor = 1 / np.sqrt(column(arrays, "running_var", 1.0) + EPSILON)
    return (x - column(arrays, "running_mean", 0.0)) * factor, factor


def _reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    x, train = arrays["input"], arguments["train"]
    normal, _ = _normal(arrays, train=train)
    output = {"output": normal * column(arrays, "weight", 1.0) + column(arrays, "bias", 0.0)}
    if not (train and arguments["running"]):
        return output
    fresh = {"running_mean": x.mean(axis=(0, 2)), "running_var": x.var(axis=(0, 2), ddof=1)}
    return output | {name: (1 - MOMENTUM) * arrays[name] + MOMENTUM * value for name, value in fresh.items()}


def _backward_reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    upstream, train = arrays["grad_output"], arguments["train"]
    normal, factor = _normal(arrays, train=train)
    inner = upstream * column(arrays, "weight", 1.0)
    grads = {"grad_input": through(inner, normal, factor, axis=(0, 2)) if train else inner * factor}
    if arguments["affine"]:
        grads["grad_weight"] = (upstream * normal).sum(axis=(0, 2))
        grads["grad_bias"] = upstream.sum(axis=(0, 2))
    return requested(grads, arguments)


def _subtracted(arrays: dict[str, Any], train: bool, **_: Any) -> dict[str, Any]:
    if not train:
        return {}
    _, factor = _normal(arrays, train=train)
    return {"output": of_mean(arrays["input"], factor, axis=(0, 2)) * abs(column(arrays, "weight", 1.0))}


def _passed(arrays: dict[str, Any], train: bool, **_: Any) -> dict[str, Any]:
    normal, factor = _normal(arrays, train=train)
    upstream = arrays["grad_output"] * column(arrays, "weight", 1.0)
    return {"grad_input": passed_through(upstream, normal, factor, axis=(0, 2))} if train else {}


def _torch_call(tensors: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    import torch
    import torch.nn.functional as F  # noqa: N812

    x, names = tensors["input"], ("running_mean", "running_var")
    # Batch statistics have the format of the running ones: in that of x a standard deviation may be off by 0.1 %.
    mixed = arguments["train"] and x.element_size() == 2 and arguments["stat_dtype"] == "fp32"
    format_of = torch.float32 if mixed else x.dtype
    statistics = {name: tensors[name].detach().to(format_of, copy=True) for name in names if name in tensors}
    weight, bias = (tensors[name].to(format_of) if name in tensors else None for name in ("weight", "bias"))
    output = F.batch_norm(
        x,
        statistics.get("running_mean"),
        statistics.get("running_var"),
        weight,
        bias,
        arguments["train"],
        MOMENTUM,
        EPSILON,
    )
    written = statistics if arguments["train"] else {}
    stored = torch_dtype(torch, arguments["stat_dtype"])
    return {"output": output, **{name: value.to(stored) for name, value in written.items()}}


def _from_aten(site: AtenSite) -> Match:
    """Match the batch normalisations of ATen, forward and backward."""
    weight, running = site.args.get("weight"), site.args.get("running_mean")
    back = "grad_out" in site.args or "grad_output" in site.args
    stated = [site.args[name] for name in ("training", "train", "update") if name in site.args]
    train = bool(stated[0]) if stated else "no_training" not in site.name and "no_update" not in site.name
    arguments = _sizes(site.args["input"], weight, running) | {"train": train}
    if not back:
        return Match(arguments=arguments | {"running": running is not None})
    grads = wanted(site, weight, weight)
    weights = grads.get("grad_weight", False)
    upstream = "grad_out" if "grad_out" in site.args else "grad_output"
    idle = [name for name in site.args if name.startswith("save_") or name in ("reserve", "reserveSpace")]
    idle += ["running_mean"] * (train or not weights) + ["running_var"] * (
        train or not (weights or grads["grad_input"])
    )
    touched = unread(grads, upstream, normal=weights or (train and grads["grad_input"]))
    return Match(arguments=arguments | grads, phase="backward", touched_bytes=dict.fromkeys(idle, 0) | touched)


def _from_onnx(site: OnnxSite) -> Match:
    """Match BatchNormalization."""
    x, weight, running = site.tensor(0), site.inputs[1], site.inputs[3]
    return Match(arguments=_sizes(x, weight, running) | {"train": bool(site.attributes.get("training_mode", 0))})


def _sizes(x: Tensor, weight: Tensor | None, running: Tensor | None) -> dict[str, Any]:
    axes = {"batch": x.shape[0], "channels": x.shape[1], "spatial": prod(x.shape[2:])}
    return {**axes, **formats(x, weight), **({} if running is None else {"stat_dtype": running.dtype})}


_FORWARD = (
    "native_batch_norm.default", "cudnn_batch_norm.default", "_native_batch_norm_legit.default",
    "_native_batch_norm_legit.no_stats", "_native_batch_norm_legit_no_training.default",
    "_native_batch_norm_legit_functional.default", "_batch_norm_with_update.default",
    "_batch_norm_with_update_functional.default", "_batch_norm_no_update.default",
)  # fmt: skip
_GRADIENTS = ("native_batch_norm_backward.default", "cudnn_batch_norm_backward.default", "batch_norm_backward.default")

OPERATOR = Operator(
    forward=batch_norm,
    family="norm",
    backward=_backward,
    tolerance=Tolerance(
        kind="normalisation",
        reduction="batch spatial",
        positive=("running_var",),
        steps_count=2,
        rounds=("small", "tiny", "offset"),
    ),
    inputs=_inputs,
    reference=_reference,
    backward_reference=_backward_reference,
    subtracted=_subtracted,
    passed=_passed,
    torch_call=_torch_call,
    aten={f"aten.{name}": _from_aten for name in (*_FORWARD, *_GRADIENTS)},
    onnx={"BatchNormalization": _from_onnx},
)
