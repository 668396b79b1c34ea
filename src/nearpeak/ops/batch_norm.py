"""Batch normalisation: with running statistics in inference, with the batch's own in training."""

from math import prod
from typing import Any

import numpy as np

from nearpeak.core.dtype import DType, dtype_of
from nearpeak.core.tensor import Tensor
from nearpeak.core.work import Work
from nearpeak.ops._operator import AtenSite, Match, Numerics, OnnxSite, Operator
from nearpeak.ops.layer_norm import EPSILON, normalised, through

MOMENTUM = 0.1
"""Share of the batch in the running statistics; PyTorch's default."""
_STATISTICS = dtype_of("fp32")


def batch_norm(
    batch: int,
    channels: int,
    spatial: int,
    dtype: DType,
    param_dtype: DType | None = None,
    train: bool = False,
    affine: bool = True,
    running: bool = True,
) -> Work:
    """Return the least work of y[batch,channels,spatial] normalised per channel.

    Counts: per element 2 FLOP to apply the channel's scale and shift; in training 3 more for sum and sum of squares;
    one reciprocal root per channel. Each element is read once: in training that is a floor, reached when a channel
    fits on chip. Running statistics are fp32; training reads and writes them. Saved statistics are not counted.

    Args:
        train: normalise by the batch's own statistics.
        running: keep running statistics; inference always has them.

    Source: Ioffe and Szegedy 2015, arXiv:1502.03167, algorithms 1 and 2.

    >>> batch_norm(1, 4, 8, DType(name="bf16", bits_count=16)).read_bytes
    112
    """
    elements, kept = batch * channels * spatial, running or not train
    statistics = 2 * kept * _STATISTICS.bytes(channels)
    return Work(
        flop={"vector.fp32": (5 if train else 2) * elements},
        special_count=channels,
        read_bytes=dtype.bytes(elements) + 2 * affine * (param_dtype or dtype).bytes(channels) + statistics,
        write_bytes=dtype.bytes(elements) + train * statistics,
    )


def _backward(
    batch: int,
    channels: int,
    spatial: int,
    dtype: DType,
    param_dtype: DType | None = None,
    train: bool = True,
    affine: bool = True,
    grad_params: bool = True,
) -> Work:
    """Return the least work of the gradients of input, weight and bias.

    Counts: per element 3 FLOP of sums over the channel and 4 to combine them in training; 1 to scale and 3 for the
    parameters' gradients where running statistics were used, and then the input is read for the parameters only.
    """
    elements, size = batch * channels * spatial, (param_dtype or dtype).bytes(channels)
    parameters = affine and grad_params
    statistics = 0 if train else (1 + parameters) * _STATISTICS.bytes(channels)
    return Work(
        flop={"vector.fp32": (7 if train else 1 + 3 * parameters) * elements},
        special_count=0 * channels if train else channels,
        read_bytes=(1 + (train or parameters)) * dtype.bytes(elements) + affine * size + statistics,
        write_bytes=dtype.bytes(elements) + 2 * parameters * size,
    )


def _inputs(
    batch: int, channels: int, spatial: int, dtype: str, param_dtype: str, train: bool, affine: bool, running: bool
) -> dict[str, Tensor]:
    tensors = {"input": Tensor(shape=(batch, channels, spatial), dtype=dtype)}
    params = ("weight", "bias") if affine else ()
    kept = ("running_mean", "running_var") if running or not train else ()
    tensors |= {name: Tensor(shape=(channels,), dtype=param_dtype) for name in params}
    return tensors | {name: Tensor(shape=(channels,), dtype="fp32") for name in kept}


def _column(arrays: dict[str, Any], name: str, absent: float) -> Any:
    return arrays[name][:, None] if name in arrays else absent


def _normal(arrays: dict[str, Any], *, train: bool) -> tuple[Any, Any]:
    x = arrays["input"]
    if train:
        return normalised(x, axis=(0, 2))
    factor = 1 / np.sqrt(_column(arrays, "running_var", 1.0) + EPSILON)
    return (x - _column(arrays, "running_mean", 0.0)) * factor, factor


def _reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    x, train = arrays["input"], arguments["train"]
    normal, _ = _normal(arrays, train=train)
    output = {"output": normal * _column(arrays, "weight", 1.0) + _column(arrays, "bias", 0.0)}
    if not (train and arguments["running"]):
        return output
    fresh = {"running_mean": x.mean(axis=(0, 2)), "running_var": x.var(axis=(0, 2), ddof=1)}
    return output | {name: (1 - MOMENTUM) * arrays[name] + MOMENTUM * value for name, value in fresh.items()}


def _backward_reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    upstream, train = arrays["grad_output"], arguments["train"]
    normal, factor = _normal(arrays, train=train)
    inner = upstream * _column(arrays, "weight", 1.0)
    grads = {"grad_input": through(inner, normal, factor, axis=(0, 2)) if train else inner * factor}
    if arguments["affine"] and arguments["grad_params"]:
        grads["grad_weight"] = (upstream * normal).sum(axis=(0, 2))
        grads["grad_bias"] = upstream.sum(axis=(0, 2))
    return grads


def _torch_call(tensors: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    import torch.nn.functional as F  # noqa: N812

    x, names = tensors["input"], ("running_mean", "running_var")
    kept = {name: tensors[name].detach().to(x.dtype, copy=True) for name in names if name in tensors}
    params = (tensors.get("weight"), tensors.get("bias"))
    output = F.batch_norm(
        x, kept.get("running_mean"), kept.get("running_var"), *params, arguments["train"], MOMENTUM, EPSILON
    )
    written = kept if arguments["train"] else {}
    return {"output": output, **{name: value.float() for name, value in written.items()}}


def _from_aten(site: AtenSite) -> Match:
    """Match the batch normalisations of ATen, forward and backward."""
    x, weight = site.args["input"], site.args.get("weight")
    back = "grad_out" in site.args or "grad_output" in site.args
    arguments = _sizes(x, weight) | {"train": _training(site)}
    if not back:
        return Match(arguments=arguments | {"running": site.args.get("running_mean") is not None})
    asked = {"grad_params": weight is None or any(site.args.get("output_mask", (True, True))[1:])}
    saved = [name for name in site.args if name.startswith("save_") or name in ("reserve", "reserveSpace")]
    unread = [*saved, *(("running_mean", "running_var") if arguments["train"] else ())]
    return Match(arguments=arguments | asked, phase="backward", touched_bytes=dict.fromkeys(unread, 0))


def _training(site: AtenSite) -> bool:
    stated = [site.args[name] for name in ("training", "train", "update") if name in site.args]
    return bool(stated[0]) if stated else "no_training" not in site.name and "no_update" not in site.name


def _from_onnx(site: OnnxSite) -> Match:
    """Match BatchNormalization."""
    x, weight = site.inputs[0], site.inputs[1]
    assert x is not None
    return Match(arguments=_sizes(x, weight) | {"train": bool(site.attributes.get("training_mode", 0))})


def _sizes(x: Tensor, weight: Tensor | None) -> dict[str, Any]:
    return {
        "batch": x.shape[0], "channels": x.shape[1], "spatial": prod(x.shape[2:]), "dtype": x.dtype,
        "param_dtype": x.dtype if weight is None else weight.dtype, "affine": weight is not None,
    }  # fmt: skip


_FORWARD = (
    "native_batch_norm.default", "cudnn_batch_norm.default", "_native_batch_norm_legit.default",
    "_native_batch_norm_legit.no_stats", "_native_batch_norm_legit_no_training.default",
    "_native_batch_norm_legit_functional.default", "_batch_norm_with_update.default",
    "_batch_norm_with_update_functional.default", "_batch_norm_no_update.default",
)  # fmt: skip
_GRADIENTS = ("native_batch_norm_backward.default", "cudnn_batch_norm_backward.default", "batch_norm_backward.default")

OPERATOR = Operator(
    forward=batch_norm,
    backward=_backward,
    source="Ioffe and Szegedy 2015, arXiv:1502.03167, algorithms 1 and 2",
    numerics=Numerics(kind="normalisation", reduction="batch spatial"),
    inputs=_inputs,
    reference=_reference,
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    aten={f"aten.{name}": _from_aten for name in (*_FORWARD, *_GRADIENTS)},
    onnx={"BatchNormalization": _from_onnx},
)
