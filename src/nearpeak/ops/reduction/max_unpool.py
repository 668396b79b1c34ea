"""Max unpooling: values written back to the positions of a max pooling, zeros elsewhere."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import INDEX
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, OnnxSite, Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance


@free_when_empty
def max_unpool(planes: int, inputs: int, outputs: int, dtype: DType) -> Work:
    """Return the least work of y[plane,index[plane,i]] = x[plane,i], zero where no index points.

    Counts: bytes only; positions are int64.

    Args:
        inputs: values of one plane.
        outputs: elements of one plane of the result.

    Source: definition, as PyTorch and ONNX state it.

    >>> max_unpool(2, 4, 16, DType(name="fp32", bits_count=32)).read_bytes
    96
    """
    values = planes * inputs
    return Work(
        read_bytes=dtype.bytes(values) + INDEX.bytes(values),
        write_bytes=dtype.bytes(planes * outputs),
    )


def _reference(arrays: dict[str, Any], planes: int, outputs: int, **_: Any) -> dict[str, Any]:
    y = np.zeros((planes, outputs))
    np.put_along_axis(y, arrays["index"], arrays["x"], axis=1)
    return {"y": y}


def _torch_call(tensors: dict[str, Any], outputs: int, **_: Any) -> dict[str, Any]:
    import torch

    y = torch.ops.aten.max_unpool2d(tensors["x"][:, None], tensors["index"][:, None], [1, outputs])
    return {"y": y[:, 0]}


def _match(x: Tensor, out: Tensor, spatial: int) -> Match:
    planes = int(np.prod(x.shape[: len(x.shape) - spatial], dtype=np.int64))
    inputs, outputs = (tensor.elements // planes if planes else 0 for tensor in (x, out))
    return Match(arguments={"planes": planes, "inputs": inputs, "outputs": outputs, "dtype": x.dtype})


def _from_aten(site: AtenSite) -> Match:
    """Match max_unpool of two and three dimensions."""
    return _match(site.args["self"], site.outputs[0], 3 if "3d" in site.name else 2)


def _from_onnx(site: OnnxSite) -> Match:
    """Match MaxUnpool."""
    x = site.tensor(0)
    return _match(x, site.outputs[0], len(x.shape) - 2)


OPERATOR = Operator(
    forward=max_unpool,
    family="reduction",
    tolerance=Tolerance(kind="exact", below={"index": "outputs"}, distinct=("index",)),
    inputs=lambda planes, inputs, dtype, **_: {
        "x": Tensor(shape=(planes, inputs), dtype=dtype),
        "index": Tensor(shape=(planes, inputs), dtype="int64"),
    },
    reference=_reference,
    torch_call=_torch_call,
    aten={f"aten.max_unpool{rank}d.default": _from_aten for rank in (2, 3)},
    onnx={"MaxUnpool": _from_onnx},
)
