"""The k-th smallest element of each row: kthvalue and median."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import INDEX
from nearpeak.ops.shared.call_operands import along
from nearpeak.ops.shared.definition.axis_checks import required_at_most, required_positive
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance


def kthvalue(rows: int, columns: int, dtype: DType, k: int = 1, indices: bool = True) -> Work:
    """Return the least work of the k-th smallest of each row, with its position as int64.

    Counts: bytes only; comparisons are not charged, as how many are needed depends on the data.

    Args:
        k: counted from 1; (columns + 1) // 2 is the median.

    Source: definition.

    >>> kthvalue(2, 8, DType(name="fp32", bits_count=32)).write_bytes
    24
    """
    required_positive("kthvalue", k=k + (columns == 0))  # the median of nothing is its 0th element
    required_at_most("kthvalue", {"columns": columns}, k=k)
    return Work(
        read_bytes=dtype.bytes(rows * columns),
        write_bytes=dtype.bytes(rows) + (INDEX.bytes(rows) if indices else 0),
    )


def _reference(arrays: dict[str, Any], k: int, indices: bool, **_: Any) -> dict[str, Any]:
    index = np.argsort(arrays["x"], axis=-1, kind="stable")[:, k - 1]
    values = np.take_along_axis(arrays["x"], index[:, None], axis=-1)[:, 0]
    return {"values": values} | ({"indices": index} if indices else {})


def _torch_call(tensors: dict[str, Any], k: int, indices: bool, **_: Any) -> dict[str, Any]:
    import torch

    result = torch.kthvalue(tensors["x"], k, -1)
    return {"values": result.values} | ({"indices": result.indices} if indices else {})


def _from_aten(site: AtenSite) -> Match:
    """Match kthvalue, median and nanmedian; a median of everything gives no position."""
    x, whole = site.args["self"], "dim" not in site.args
    rows, columns = along(x, None if whole else site.args["dim"])
    k = site.args.get("k", (columns + 1) // 2)
    arguments: dict[str, Value] = {"rows": rows, "columns": columns, "dtype": x.dtype, "k": k, "indices": not whole}
    return Match(arguments=arguments)


OPERATOR = Operator(
    forward=kthvalue,
    family="reduction",
    tolerance=Tolerance(kind="exact", picks={"indices": "x"}, rounds=("close", "deep")),
    inputs=lambda rows, columns, dtype, **_: {"x": Tensor(shape=(rows, columns), dtype=dtype)},
    reference=_reference,
    torch_call=_torch_call,
    at_positions=lambda tensors, **_: {"values": tensors["x"].gather(-1, tensors["indices"][:, None])[:, 0]},
    aten={
        "aten.kthvalue.default": _from_aten,
        **{f"aten.{name}.{end}": _from_aten for name in ("median", "nanmedian") for end in ("default", "dim")},
    },
)
