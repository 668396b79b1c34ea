"""The largest elements of each row, or the whole row in order: topk and sort."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import INDEX
from nearpeak.ops.shared.call_operands import along
from nearpeak.ops.shared.definition.array_arithmetic import unless_empty
from nearpeak.ops.shared.definition.axis_checks import required_at_most
from nearpeak.ops.shared.definition.operator import AtenSite, Match, OnnxSite, Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance


def topk(rows: int, columns: int, dtype: DType, k: int | None = None) -> Work:
    """Return the least work of the k largest of each row in descending order, with their positions as int64.

    Counts: bytes only; comparisons are not charged, as how many are needed depends on the data.

    Args:
        k: all columns unless given, which is a sort.

    Source: definition.

    >>> topk(2, 8, DType(name="fp32", bits_count=32), k=2).write_bytes
    48
    """
    count = columns if k is None else k
    required_at_most("topk", {"columns": columns}, k=count)
    written = rows * count
    read = unless_empty(written, rows * columns)
    return Work(read_bytes=dtype.bytes(read), write_bytes=dtype.bytes(written) + INDEX.bytes(written))


def _reference(arrays: dict[str, Any], k: int, **_: Any) -> dict[str, Any]:
    index = np.argsort(-arrays["x"], axis=-1, kind="stable")[:, :k]
    return {"values": np.take_along_axis(arrays["x"], index, axis=-1), "indices": index}


def _torch_call(tensors: dict[str, Any], columns: int, k: int, **_: Any) -> dict[str, Any]:
    import torch

    x = tensors["x"]
    values, indices = torch.sort(x, -1, descending=True) if k == columns else torch.topk(x, k, -1)
    return {"values": values, "indices": indices}


def _from_aten(site: AtenSite) -> Match:
    """Match topk and sort."""
    x = site.args["self"]
    rows, columns = along(x, site.args["dim"])
    k = site.args.get("k")
    return Match(arguments={"rows": rows, "columns": columns, "k": columns if k is None else k, "dtype": x.dtype})


def _from_onnx(site: OnnxSite) -> Match:
    """Match TopK."""
    x, out = site.tensor(0), site.outputs[0]
    rows, columns = along(x, site.attributes.get("axis", -1))
    k = out.elements // rows if rows else 0
    return Match(arguments={"rows": rows, "columns": columns, "k": k, "dtype": x.dtype})


OPERATOR = Operator(
    forward=topk,
    family="reduction",
    tolerance=Tolerance(kind="exact", special="unspecified", picks={"indices": "x"}, rounds=("close", "deep")),
    inputs=lambda rows, columns, dtype, **_: {"x": Tensor(shape=(rows, columns), dtype=dtype)},
    reference=_reference,
    torch_call=_torch_call,
    at_positions=lambda tensors, **_: {"values": tensors["x"].gather(-1, tensors["indices"])},
    same={"k": "columns"},
    aten=dict.fromkeys(("aten.topk.default", "aten.sort.default", "aten.sort.stable"), _from_aten),
    onnx={"TopK": _from_onnx},
)
