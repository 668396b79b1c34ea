"""Row-wise softmax and log-softmax."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.structure import Barrier
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.call_operands import along
from nearpeak.ops.shared.definition.array_arithmetic import unless_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, OnnxSite, Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.torch_names import torch_dtype


def softmax(rows: int, columns: int, dtype: DType, log: bool = False, out_dtype: DType | None = None) -> Work:
    """Return the least work of y[row] = exp(x - max) / sum(exp(x - max)), or of its logarithm.

    Counts: per row columns - 1 FLOP for the maximum, columns to subtract it, columns - 1 to add up, columns to scale
    (subtract the logarithm); columns + 1 special evaluations. Each element is read once: a row stays on chip.

    Args:
        log: the logarithm of the softmax.

    Source: Milakov and Gimelshein 2018, arXiv:1805.02867, algorithm 2.

    >>> softmax(2, 8, DType(name="bf16", bits_count=16)).flop
    {'vector.fp32': 60}
    """
    del log
    return Work(
        flop={unit(dtype): unless_empty(columns, rows * (4 * columns - 2))},
        special_count=unless_empty(columns, rows * (columns + 1)),
        read_bytes=dtype.bytes(rows * columns),
        write_bytes=(out_dtype or dtype).bytes(rows * columns),
        barrier=Barrier(group_count=rows, group_bytes=_narrower(dtype, out_dtype).bytes(columns)),
    )


def _backward(rows: int, columns: int, dtype: DType, log: bool = False, out_dtype: DType | None = None) -> Work:
    """Return the least work of the input's gradient from y and its gradient.

    Counts: softmax y * (g - sum(g * y)): per row 2 * columns - 1 FLOP for the sum, 2 * columns to combine;
    log: g - exp(y) * sum(g): columns - 1 for the sum, 2 * columns to combine, columns special evaluations.
    """
    elements, out = rows * columns, out_dtype or dtype
    return Work(
        flop={unit(dtype): unless_empty(columns, rows * ((3 if log else 4) * columns - 1))},
        special_count=elements if log else 0 * elements,
        read_bytes=2 * out.bytes(elements),
        write_bytes=dtype.bytes(elements),
        barrier=Barrier(group_count=rows, group_bytes=_narrower(dtype, out_dtype).bytes(columns)),
    )


def _narrower(dtype: DType, out_dtype: DType | None) -> DType:
    """Return the narrower format, in which an element must be held between the two passes over its row."""
    return min(dtype, out_dtype or dtype, key=lambda number_format: number_format.bits_count)


def _reference(arrays: dict[str, Any], log: bool, **_: Any) -> dict[str, Any]:
    shifted = arrays["x"] - arrays["x"].max(axis=-1, keepdims=True)
    total = np.exp(shifted).sum(axis=-1, keepdims=True)
    return {"y": shifted - np.log(total) if log else np.exp(shifted) / total}


def _backward_reference(arrays: dict[str, Any], log: bool, **_: Any) -> dict[str, Any]:
    y, grad = arrays["y"], arrays["grad_y"]
    if log:
        return {"grad_x": grad - np.exp(y) * grad.sum(axis=-1, keepdims=True)}
    return {"grad_x": y * (grad - (grad * y).sum(axis=-1, keepdims=True))}


def _torch_call(tensors: dict[str, Any], log: bool, dtype: str, out_dtype: str, **_: Any) -> dict[str, Any]:
    import torch

    call = torch.log_softmax if log else torch.softmax
    return {"y": call(tensors["x"], -1, dtype=None if out_dtype == dtype else torch_dtype(torch, out_dtype))}


def _from_aten(site: AtenSite) -> Match:
    """Match the softmax kernels and their gradients."""
    log, out = "_log_softmax" in site.name, site.outputs[0]
    if "backward" not in site.name:
        x = site.args["self"]
        return Match(arguments=_sizes(x, site.args["dim"]) | {"dtype": x.dtype, "out_dtype": out.dtype, "log": log})
    y = site.args["output"]
    arguments = _sizes(y, site.args["dim"]) | {"dtype": out.dtype, "out_dtype": y.dtype, "log": log}
    return Match(arguments=arguments, phase="backward")


def _from_onnx(site: OnnxSite) -> Match:
    """Match Softmax and LogSoftmax."""
    x = site.tensor(0)
    log = site.name == "LogSoftmax"
    return Match(arguments=_sizes(x, site.attributes.get("axis", -1)) | {"dtype": x.dtype, "log": log})


def _sizes(x: Tensor, dimension: int) -> dict[str, Any]:
    rows, columns = along(x, dimension)
    return {"rows": rows, "columns": columns}


OPERATOR = Operator(
    forward=softmax,
    family="norm",
    backward=_backward,
    tolerance=Tolerance(
        kind="normalisation",
        reduction="columns",
        steps_count=2,
        gates="log",
        rounds=("large", "deep", "peak_first", "peak_last"),
    ),
    inputs=lambda rows, columns, dtype, **_: {"x": Tensor(shape=(rows, columns), dtype=dtype)},
    reference=_reference,
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    aten={
        f"aten.{name}.default": _from_aten
        for name in (
            "_softmax",
            "_log_softmax",
            "_safe_softmax",
            "_softmax_backward_data",
            "_log_softmax_backward_data",
        )
    },
    onnx={"Softmax": _from_onnx, "LogSoftmax": _from_onnx},
)
