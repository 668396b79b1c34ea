"""Elements or rows written by index: scatter, index_put, index_add, index_copy."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.movement.gather import indexed
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.array_arithmetic import maximum, minimum, unless_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, OnnxSite, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.torch_names import resized


def scatter(
    rows: int, width: int, table_rows: int, dtype: DType, touched_rows: int = 1, indices: int | None = None,
    index_dtype: str = "int64", accumulate: bool = False, in_place: bool = False, scalar: bool = False,
) -> Work:  # fmt: skip
    """Return the least work of table[index[row]] = source[row] (or += source[row]), each row of `width` elements.

    Counts: one FLOP per element added. Which rows are written is data, between 1 and min(table_rows, rows); a bound
    takes the lower end unless the indices are known (assumption A9). Rows that are overwritten need not be read: a new
    table takes each of its rows from the source or from the old table, whatever the indices are.

    Args:
        touched_rows: distinct rows that the indices name.
        indices: distinct elements of the index tensors; fewer than `rows` when these are broadcast.
        accumulate: added to the table instead of replacing its rows.
        in_place: only the touched rows are written; else a whole new table is.
        scalar: the source is one number.

    Source: definition.

    >>> scatter(8, 4, 100, DType(name="bf16", bits_count=16), touched_rows=8, in_place=True).write_bytes
    64
    """
    touched = minimum(maximum(touched_rows, 1), minimum(rows, table_rows))
    added = unless_empty(table_rows, rows)
    if accumulate:
        sources, table_reads = added, touched if in_place else table_rows
    elif in_place:
        sources, table_reads = touched, 0
    else:
        # From the source where it is read at all, the most rows where it is one number.
        sources = touched
        table_reads = table_rows - (minimum(rows, table_rows) if scalar else touched)
    index_bytes = dtype_of(index_dtype).bytes(rows if indices is None else indices)
    return Work(
        flop={unit(dtype): added * width} if accumulate and dtype.kind == "float" else {},
        read_bytes=dtype.bytes((0 if scalar else sources) * width)
        + dtype.bytes(table_reads * width)
        + unless_empty(width * table_rows, index_bytes),
        write_bytes=dtype.bytes((touched if in_place else table_rows) * width),
    )


def _inputs(
    rows: int, width: int, table_rows: int, dtype: str, indices: int, index_dtype: str, scalar: bool, **_: Any
) -> dict[str, Tensor]:
    tensors = {
        "table": Tensor(shape=(table_rows, width), dtype=dtype),
        "index": Tensor(shape=(indices,), dtype=index_dtype),
    }
    return tensors if scalar else tensors | {"source": Tensor(shape=(rows, width), dtype=dtype)}


def _reference(arrays: dict[str, Any], rows: int, accumulate: bool, **_: Any) -> dict[str, Any]:
    table, index = arrays["table"].copy(), np.resize(arrays["index"], rows)
    source = arrays.get("source", 1.0)
    if accumulate:
        np.add.at(table, index, source)
    elif "source" in arrays and len(np.unique(index)) < rows:
        raise ValueError("scatter: of several rows that are written to one place, which one stays is not defined")
    else:
        table[index] = source
    return {"table": table}


def _torch_call(
    tensors: dict[str, Any], rows: int, accumulate: bool, in_place: bool, scalar: bool, **_: Any
) -> dict[str, Any]:
    import torch

    table, index = tensors["table"], resized(tensors["index"], rows)
    source = torch.ones((), dtype=table.dtype, device=table.device) if scalar else tensors["source"]
    call = table.index_put_ if in_place else table.index_put
    return {"table": call((index,), source, accumulate=accumulate)}


def _match(
    site: AtenSite, rows: int, width: int, index: list[Tensor], source: str, *, touched: int = 1, add: bool = False
) -> Match:
    """Return the case of writing the argument `source` into the call's `self`."""
    table, in_place = site.args["self"], site.name.split(".")[1].endswith("_")
    values = site.args[source]
    scalar = not isinstance(values, Tensor) or values.distinct < rows * width
    touched = max(0, min(touched, rows))
    size = dtype_of(table.dtype).bytes(touched * width)
    # "write:" names what is written of an argument that is changed in place, where that is less than all.
    replaced = dtype_of(table.dtype).bytes(rows * width)
    bytes_ = {"self": size if add else 0, "write:self": size} if in_place else {}
    bytes_ |= {source: size} if not add else {}
    bytes_ |= {"self": max(0, table.bytes - replaced)} if not add and not in_place else {}
    arguments = {
        "rows": rows, "width": width, "table_rows": table.elements // width if width else 0, "touched_rows": touched,
        "indices": sum(i.distinct for i in index), "index_dtype": index[0].dtype if index else "int64",
        "dtype": table.dtype, "accumulate": add, "in_place": in_place, "scalar": scalar,
    }  # fmt: skip
    return Match(arguments=arguments, touched_bytes=bytes_)


def _per_element(site: AtenSite) -> Match:
    """Match scatter and its variants: one index per element; positions off the dimension are distinct."""
    index = site.args["index"]
    extent = index.shape[site.args["dim"]] if index.shape else 1
    source = "src" if "src" in site.args else "value"
    add = any(word in site.name for word in ("add", "reduce"))
    touched = index.elements // extent if extent else 0
    return _match(site, index.elements, 1, [index], source, touched=touched, add=add)


def _per_row(site: AtenSite) -> Match:
    """Match index_add, index_copy and index_fill; index_copy with equal indices is undefined, so all rows differ."""
    index, table = site.args["index"], site.args["self"]
    width = table.elements // table.shape[site.args["dim"]] if table.shape and table.elements else 1
    source = "source" if "source" in site.args else "value"
    touched = index.elements if "copy" in site.name else 1
    return _match(
        site,
        index.elements,
        width,
        [index],
        source,
        touched=touched,
        add="index_add" in site.name or "reduce" in site.name,
    )


def _flat(site: AtenSite) -> Match:
    """Match put, whose positions count through the whole tensor."""
    index = site.args["index"]
    return _match(site, index.elements, 1, [index], "source", add=bool(site.args["accumulate"]))


def _masked(site: AtenSite) -> Match:
    """Match _unsafe_masked_index_put_accumulate; how much the mask lets through is not known."""
    table = site.args["self"]
    _, width = indexed(table, site.args["indices"], 0)
    index = [i for i in site.args["indices"] if i is not None]
    return _match(site, 0, width, index, "values", add=True)


def _advanced(site: AtenSite) -> Match:
    """Match index_put; a mask may select nothing."""
    table, index = site.args["self"], [i for i in site.args["indices"] if i is not None]
    masked = any(i.dtype == "bool" for i in index)
    _, width = indexed(table, site.args["indices"], 0)
    rows = 0 if masked else int(np.prod(np.broadcast_shapes(*(i.shape for i in index)), dtype=np.int64))
    return _match(site, rows, width, index, "values", add=bool(site.args.get("accumulate")))


def _from_onnx(site: OnnxSite) -> Match:
    """Match ScatterElements and ScatterND."""
    table, index, source = site.tensor(0), site.tensor(1), site.tensor(2)
    rows = index.elements
    if site.name == "ScatterND":
        rows = rows // index.shape[-1] if index.shape and index.shape[-1] else 0
    args = {"self": table, "2": source}
    add = site.attributes.get("reduction", "none") != "none"
    width = source.elements // rows if rows else 0
    match = _match(AtenSite(name="onnx.scatter", args=args, outputs=site.outputs), rows, width, [index], "2", add=add)
    touched = {{"self": "0"}.get(name, name): size for name, size in match.touched_bytes.items()}
    return Match(arguments=match.arguments, touched_bytes=touched)


def _appended(site: OnnxSite) -> Match:
    """Match TensorScatter, which writes new rows into a cache; a runtime keeps the cache where it is."""
    table, source = site.tensor(0), site.tensor(1)
    width = source.shape[-1] if source.shape else 1
    rows = source.elements // width if width else 0
    arguments: dict[str, Value] = {
        "rows": rows, "width": width, "table_rows": table.elements // width if width else 0, "touched_rows": rows,
        "indices": source.shape[0] if source.shape else 0, "dtype": table.dtype, "in_place": True,
    }  # fmt: skip
    return Match(arguments=arguments, touched_bytes={"0": 0})


_ELEMENTS = (
    "scatter.src", "scatter.value", "scatter.reduce", "scatter.value_reduce", "scatter_add.default",
    "scatter_reduce.two",
)  # fmt: skip
_ROWS = ("index_add.default", "index_copy.default", "index_fill.int_Scalar", "index_fill.int_Tensor",
         "index_reduce.default")  # fmt: skip
_PUTS = ("index_put.default", "_unsafe_index_put.default", "_index_put_impl.default")


def _claims() -> dict[str, Any]:
    claims: dict[str, Any] = {}
    for names, matcher in ((_ELEMENTS, _per_element), (_ROWS, _per_row), (_PUTS, _advanced), (("put.default",), _flat)):
        for name in names:
            base, overload = name.split(".")
            claims |= {f"aten.{base}.{overload}": matcher, f"aten.{base}_.{overload}": matcher}
    return claims | {"aten._unsafe_masked_index_put_accumulate.default": _masked}


OPERATOR = Operator(
    forward=scatter,
    family="movement",
    data_axes={"touched_rows": ("rows", "table_rows")},
    tolerance=Tolerance(
        kind="reduction",
        below={"index": "table_rows"},
        distinct=("index",),
        repeats_if=("accumulate", "scalar"),
        steps_count=2,
        rounds=("gaps",),
    ),
    inputs=_inputs,
    reference=_reference,
    torch_call=_torch_call,
    same={"indices": "rows"},
    aten=_claims(),
    onnx=dict.fromkeys(("ScatterElements", "ScatterND", "Scatter"), _from_onnx) | {"TensorScatter": _appended},
)
