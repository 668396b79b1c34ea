"""One-hot encoding of class indices."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.call_operands import along
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import Match, OnnxSite, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.torch_names import torch_dtype


@free_when_empty
def one_hot(rows: int, classes: int, dtype: DType, index_dtype: str = "int64") -> Work:
    """Return the least work of y[row,class] = [class is index[row]].

    Counts: bytes only.

    Source: definition, as ONNX states it.

    >>> one_hot(4, 10, DType(name="fp32", bits_count=32)).write_bytes
    160
    """
    return Work(read_bytes=dtype_of(index_dtype).bytes(rows), write_bytes=dtype.bytes(rows * classes))


def _torch_call(tensors: dict[str, Any], classes: int, dtype: str, **_: Any) -> dict[str, Any]:
    import torch

    index = tensors["index"]
    y = torch.zeros(len(index), classes, dtype=torch_dtype(torch, dtype), device=index.device)
    return {"y": y.scatter_(1, index[:, None], 1.0)}


def _from_onnx(site: OnnxSite) -> Match:
    """Match OneHot; its depth and its two values travel with the launch."""
    index, out = site.tensor(0), site.outputs[0]
    rows = index.elements
    arguments: dict[str, Value] = {"rows": rows, "classes": out.elements // rows if rows else 0, "dtype": out.dtype}
    return Match(arguments=arguments | {"index_dtype": index.dtype}, touched_bytes={"1": 0, "2": 0})


def _largest(site: OnnxSite) -> tuple[Match, ...]:
    """Match Hardmax: where each row is largest, and a row for that place."""
    x = site.tensor(0)
    rows, columns = along(x, site.attributes.get("axis", -1))
    argmax: dict[str, Value] = {"outputs": rows, "reduced": columns, "dtype": x.dtype, "function": "argmax"}
    written: dict[str, Value] = {"rows": rows, "classes": columns, "dtype": x.dtype}
    return Match(op="reduce", arguments=argmax), Match(arguments=written)


OPERATOR = Operator(
    forward=one_hot,
    family="movement",
    tolerance=Tolerance(kind="exact", below={"index": "classes"}),
    inputs=lambda rows, index_dtype, **_: {"index": Tensor(shape=(rows,), dtype=index_dtype)},
    reference=lambda arrays, classes, **_: {"y": np.eye(classes)[arrays["index"]]},
    torch_call=_torch_call,
    onnx={"OneHot": _from_onnx, "Hardmax": _largest},
)
