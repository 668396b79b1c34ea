"""Elements or rows read by index: gather, index_select and advanced indexing."""

from math import prod
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.definition.array_arithmetic import maximum, minimum, unless_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, OnnxSite, Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.torch_names import resized


def gather(
    rows: int,
    width: int,
    table_rows: int,
    dtype: DType,
    touched_rows: int = 1,
    indices: int | None = None,
    index_dtype: str = "int64",
) -> Work:
    """Return the least work of y[row] = table[index[row]], each row of `width` elements.

    Counts: which rows are read is data, between 1 and min(table_rows, rows). A bound takes the lower end unless the
    indices are known (assumption A9), so `touched_rows` is 1 unless given.

    Args:
        touched_rows: distinct rows that the indices name.
        indices: distinct elements of the index tensors; fewer than `rows` when these are broadcast.
        index_dtype: format of the indices; bool for a mask.

    Source: definition.

    >>> gather(8, 4, 100, DType(name="bf16", bits_count=16)).read_bytes
    72
    """
    touched = minimum(maximum(touched_rows, 1), minimum(table_rows, rows))
    index_bytes = dtype_of(index_dtype).bytes(rows if indices is None else indices)
    return Work(
        read_bytes=dtype.bytes(touched * width) + unless_empty(width, index_bytes),
        write_bytes=dtype.bytes(rows * width),
    )


def _torch_call(tensors: dict[str, Any], rows: int, **_: Any) -> dict[str, Any]:
    import torch

    return {"y": torch.index_select(tensors["table"], 0, resized(tensors["index"], rows))}


def matched(
    table: Tensor, rows: int, width: int, touched_rows: int, index: list[Tensor], name: str = "self"
) -> Match:  # fmt: skip
    """Return the case of picking `rows` rows of `width` elements from `table`, of which `touched_rows` are distinct."""
    table_rows = table.elements // width if width else 0
    touched = min(max(touched_rows, 1), rows, table_rows)
    return Match(
        arguments={
            "rows": rows, "width": width, "table_rows": table_rows,
            "touched_rows": touched_rows, "dtype": table.dtype, "indices": sum(i.distinct for i in index),
            "index_dtype": index[0].dtype if index else "int64",
        },
        touched_bytes={name: dtype_of(table.dtype).bytes(touched * width)},
    )  # fmt: skip


def _per_element(site: AtenSite) -> Match:
    """Match gather: one index per element; positions off the dimension differ, so that many elements are distinct."""
    index, table = site.args["index"], site.args["self"]
    extent = index.shape[site.args["dim"]] if index.shape else 1
    return matched(table, index.elements, 1, index.elements // extent if extent else 0, [index])


def _per_row(site: AtenSite) -> Match:
    """Match index_select."""
    index, table = site.args["index"], site.args["self"]
    width = site.outputs[0].elements // index.elements if index.elements else 0
    return matched(table, index.elements, width, 1, [index])


def _flat(site: AtenSite) -> Match:
    """Match take, whose positions count through the whole tensor."""
    index = site.args["index"]
    return matched(site.args["self"], index.elements, 1, 1, [index])


def _advanced(site: AtenSite) -> Match:
    """Match indexing with tensors; dimensions without one are copied whole."""
    table, index = site.args["self"], [i for i in site.args["indices"] if i is not None]
    rows, width = indexed(table, site.args["indices"], site.outputs[0].elements)
    return matched(table, rows, width, 1, index)


def indexed(table: Tensor, indices: list[Tensor | None], elements: int) -> tuple[int, int]:
    """Return rows and their width when `indices` select `elements` elements of `table`; a mask spans its own rank."""
    dimension, width = 0, 1
    for index in indices:
        if index is None:
            width *= table.shape[dimension]
        dimension += len(index.shape) if index is not None and index.dtype == "bool" else 1
    width *= prod(table.shape[dimension:])
    return (elements // width if width else 0), width


def _from_onnx(site: OnnxSite) -> Match:
    """Match Gather, GatherElements and GatherND."""
    table, index = site.tensor(0), site.tensor(1)
    out = site.outputs[0].elements
    known = [] if 1 in site.constants and index.elements <= 1 else [index]
    if site.name == "GatherElements":
        extent = index.shape[site.attributes.get("axis", 0)] if index.shape else 1
        return matched(table, out, 1, out // extent if extent else 0, known, "0")
    rows = index.elements // index.shape[-1] if site.name == "GatherND" and index.shape else index.elements
    return matched(table, rows, out // rows if rows else 0, 1, known, "0")


OPERATOR = Operator(
    forward=gather,
    family="movement",
    data_axes={"touched_rows": ("rows", "table_rows")},
    tolerance=Tolerance(kind="exact", below={"index": "table_rows"}),
    inputs=lambda width, table_rows, dtype, indices, index_dtype, **_: {
        "table": Tensor(shape=(table_rows, width), dtype=dtype),
        "index": Tensor(shape=(indices,), dtype=index_dtype),
    },
    reference=lambda arrays, rows, **_: {"y": arrays["table"][np.resize(arrays["index"], rows)]},
    torch_call=_torch_call,
    same={"indices": "rows"},
    aten={
        "aten.gather.default": _per_element,
        "aten.index_select.default": _per_row,
        "aten.index.Tensor": _advanced,
        "aten._unsafe_index.Tensor": _advanced,
        "aten._unsafe_masked_index.default": _advanced,
        "aten.take.default": _flat,
    },
    onnx=dict.fromkeys(("Gather", "GatherElements", "GatherND"), _from_onnx),
)
