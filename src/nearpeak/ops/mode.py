"""The most frequent element of each row."""

from typing import Any

import numpy as np

from nearpeak.core.dtype import DType
from nearpeak.core.tensor import Tensor
from nearpeak.core.work import Work
from nearpeak.ops._arithmetic import INDEX
from nearpeak.ops._empty import free_when_empty
from nearpeak.ops._operator import AtenSite, Match, Numerics, Operator
from nearpeak.ops._sites import along


@free_when_empty
def mode(rows: int, columns: int, dtype: DType) -> Work:
    """Return the least work of the most frequent element of each row, the smallest of several, with a position of it.

    Counts: bytes only; comparisons are not charged, as how many are needed depends on the data.

    Source: definition.

    >>> mode(2, 8, DType(name="fp32", bits_count=32)).write_bytes
    24
    """
    return Work(read_bytes=dtype.bytes(rows * columns), write_bytes=dtype.bytes(rows) + INDEX.bytes(rows))


def _inputs(rows: int, columns: int, dtype: str, **_: Any) -> dict[str, Tensor]:
    return {"x": Tensor(shape=(rows, columns), dtype=dtype)}


def _reference(arrays: dict[str, Any], **_: Any) -> dict[str, Any]:
    rows = [np.unique(row, return_counts=True) for row in arrays["x"]]
    values = np.array([found[counts.argmax()] for found, counts in rows])
    last = [np.flatnonzero(row == value)[-1] for row, value in zip(arrays["x"], values, strict=True)]
    return {"values": values, "indices": np.array(last)}


def _torch_call(tensors: dict[str, Any], **_: Any) -> dict[str, Any]:
    import torch

    found = torch.mode(tensors["x"], -1)
    return {"values": found.values, "indices": found.indices}


def _at_positions(tensors: dict[str, Any], **_: Any) -> dict[str, Any]:
    return {"values": tensors["x"].gather(-1, tensors["indices"][:, None])[:, 0]}


def _from_aten(site: AtenSite) -> Match:
    """Match mode."""
    rows, columns = along(site.args["self"], site.args["dim"])
    return Match(arguments={"rows": rows, "columns": columns, "dtype": site.args["self"].dtype})


OPERATOR = Operator(
    forward=mode,
    family="reduction",
    source="definition",
    # Where NaN lies among the others decides what PyTorch's sort makes of them.
    numerics=Numerics(kind="exact", special="unspecified", below={"x": "3"}, picks={"indices": "x"}),
    inputs=_inputs,
    reference=_reference,
    torch_call=_torch_call,
    at_positions=_at_positions,
    aten={"aten.mode.default": _from_aten},
)
