"""The most frequent element of each row."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import INDEX
from nearpeak.ops.shared.call_operands import along
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance


@free_when_empty
def mode(rows: int, columns: int, dtype: DType) -> Work:
    """Return the least work of the most frequent element of each row, the smallest of several, with a position of it.

    Counts: bytes only; comparisons are not charged, as how many are needed depends on the data.

    Source: definition.

    >>> mode(2, 8, DType(name="fp32", bits_count=32)).write_bytes
    24
    """
    return Work(read_bytes=dtype.bytes(rows * columns), write_bytes=dtype.bytes(rows) + INDEX.bytes(rows))


def _valid(drawn: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Return rows each of which has one most frequent value, some with another one that is nearly as frequent.

    Which of several is the result, PyTorch leaves open: its kernels for CPUs and GPUs differ. Of many columns the most
    frequent one would hardly ever hang on a single element: rows that start with the smallest value have one more of a
    larger value, which both ends belong to, and without one of these the smaller would be the result.
    """
    x, values = drawn["x"].copy(), np.unique(drawn["x"])
    if len(values) < 2:
        return {}
    for row in x:
        if row[0] == values[0]:
            order = np.argsort(np.concatenate(([np.inf], row[1:-1], [np.inf])), kind="stable")[: len(row)]
            spare, few = (len(row) + 1) % 2, (len(row) - 1) // 2
            row[order[:spare]] = values[-1]
            row[order[spare : spare + few]] = values[0]
            row[order[spare + few :]] = values[1]
        distinct, counts = np.unique(row, return_counts=True)
        most = distinct[counts == counts.max(initial=0)]
        if len(most) > 1:  # the smallest of them gets one more place
            row[np.flatnonzero(row == most[-1])[-1]] = most[0]
    return {"x": x}


def _reference(arrays: dict[str, Any], **_: Any) -> dict[str, Any]:
    rows = [np.unique(row, return_counts=True) for row in arrays["x"]]
    values = np.array([distinct[counts.argmax()] for distinct, counts in rows])
    last = [np.flatnonzero(row == value)[-1] for row, value in zip(arrays["x"], values, strict=True)]
    return {"values": values, "indices": np.array(last)}


def _torch_call(tensors: dict[str, Any], **_: Any) -> dict[str, Any]:
    import torch

    result = torch.mode(tensors["x"], -1)
    return {"values": result.values, "indices": result.indices}


def _from_aten(site: AtenSite) -> Match:
    """Match mode."""
    rows, columns = along(site.args["self"], site.args["dim"])
    return Match(arguments={"rows": rows, "columns": columns, "dtype": site.args["self"].dtype})


OPERATOR = Operator(
    forward=mode,
    family="reduction",
    # Where NaN lies among the others decides what PyTorch's sort makes of them.
    tolerance=Tolerance(kind="exact", special="unspecified", below={"x": "3"}, picks={"indices": "x"}),
    inputs=lambda rows, columns, dtype, **_: {"x": Tensor(shape=(rows, columns), dtype=dtype)},
    valid=_valid,
    reference=_reference,
    torch_call=_torch_call,
    at_positions=lambda tensors, **_: {"values": tensors["x"].gather(-1, tensors["indices"][:, None])[:, 0]},
    aten={"aten.mode.default": _from_aten},
)
