"""Insertion positions in a sorted sequence: searchsorted and bucketize."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.call_operands import claimed
from nearpeak.ops.shared.definition.array_arithmetic import minimum
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance


def searchsorted(
    rows: int, values: int, boundaries: int, dtype: DType, touched_boundaries: int = 1, out_dtype: str = "int64"
) -> Work:
    """Return the least work of y[row,value] = number of the row's sorted boundaries below the value.

    Counts: bytes only; comparisons are not charged. Which boundaries are looked at is data, at least one per row; a
    bound takes the lower end (assumption A9).

    Args:
        rows: sequences, each with its own values; 1 when all values are sought in one sequence.
        touched_boundaries: distinct boundaries of a row that are looked at.
        out_dtype: int64 or int32.

    Source: definition.

    >>> searchsorted(1, 16, 100, DType(name="fp32", bits_count=32)).read_bytes
    68
    """
    seen = minimum(minimum(touched_boundaries, boundaries), values * boundaries)
    return Work(read_bytes=dtype.bytes(rows * (values + seen)), write_bytes=dtype_of(out_dtype).bytes(rows * values))


def _reference(arrays: dict[str, Any], **_: Any) -> dict[str, Any]:
    pairs = zip(arrays["boundaries"], arrays["values"], strict=True)
    return {"y": np.stack([np.searchsorted(row, wanted) for row, wanted in pairs])}


def _valid(drawn: dict[str, Any], **_: Any) -> dict[str, Any]:
    """Return the boundaries in order, and some first values next to the last of them: few would seldom lie there."""
    boundaries, values = np.sort(drawn["boundaries"], axis=-1), drawn["values"].copy()
    if boundaries.size and values.size:
        before, last, first = boundaries[:, -2:].min(-1), boundaries[:, -1], values[:, 0]
        is_odd = np.floor(1024.5 * np.abs(first)) % 2 == 1
        between = np.where(before < last, (before + last) / 2, first)
        ends = np.where(is_odd, last + np.abs(last) / 2, between)
        values[:, 0] = np.where(first > boundaries[:, boundaries.shape[-1] // 2], ends, first)
    return {"boundaries": boundaries, "values": values}


def _torch_call(tensors: dict[str, Any], out_dtype: str, **_: Any) -> dict[str, Any]:
    import torch

    boundaries, values = tensors["boundaries"], tensors["values"]
    return {"y": torch.searchsorted(boundaries, values, out_int32=out_dtype == "int32")}


def _from_aten(site: AtenSite) -> Match:
    """Match searchsorted and bucketize; a single number sought travels with the launch."""
    values, out = site.args["self"], site.outputs[0]
    name = "boundaries" if "boundaries" in site.args else "sorted_sequence"
    table = site.args[name]
    extent = table.shape[-1] if table.shape else 1
    rows = max(1, table.elements // extent) if extent else 1
    touched = dtype_of(table.dtype).bytes(min(1, extent, out.elements) * rows)
    arguments = {
        "rows": rows, "values": out.elements // rows, "boundaries": extent, "out_dtype": out.dtype,
        "dtype": values.dtype if hasattr(values, "dtype") else table.dtype,
    }  # fmt: skip
    return Match(arguments=arguments, touched_bytes={name: touched})


OPERATOR = Operator(
    forward=searchsorted,
    family="movement",
    data_axes={"touched_boundaries": ("boundaries",)},
    tolerance=Tolerance(kind="exact", rounds=("close",), special="values"),
    inputs=lambda rows, values, boundaries, dtype, **_: {
        "boundaries": Tensor(shape=(rows, boundaries), dtype=dtype),
        "values": Tensor(shape=(rows, values), dtype=dtype),
    },
    valid=_valid,
    reference=_reference,
    torch_call=_torch_call,
    aten=claimed(
        [f"aten.{name}.{end}" for name in ("searchsorted", "bucketize") for end in ("Tensor", "Scalar")], _from_aten
    ),
)
