"""Rotary position embedding: pairs of features rotated by an angle proportional to the position."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.argument_cache import tensor_of
from nearpeak.ops.shared.definition.array_arithmetic import unless_empty
from nearpeak.ops.shared.definition.axis_checks import required_at_most, required_multiple
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import Match, OnnxSite, Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.torch_names import resized

LAYOUTS = ("half", "interleaved")
"""Which features make a pair: i and i + rotary / 2 (GPT-NeoX, Llama), or 2 i and 2 i + 1 (RoFormer, GPT-J)."""


@free_when_empty
def rotary_embedding(
    batch: int, heads: int, positions: int, dim: int, dtype: DType, table_dtype: DType | None = None,
    rotary: int | None = None, table_rows: int | None = None, ids: int = 0, layout: str = "half", table: str = "half",
    in_place: bool = False, id_dtype: str = "int64",
) -> Work:  # fmt: skip
    """Return the least work of turning the first `rotary` features of each head: y1 = x1 c - x2 s, y2 = x2 c + x1 s.

    Shapes: x, y [batch, heads, positions, dim]; cosines and sines [table_rows, rotary / 2], or [table_rows, rotary]
    when both features of a pair have their own.
    Counts: 3 FLOP per turned feature, two products and an addition. Features that are not turned are copied, unless
    the embedding works in place. With position ids, which rows of the tables are read is data; at least one is. The
    gradient of x turns the output's gradient the other way, as a rotation's transpose is its inverse: the same work.

    Args:
        table_rows: rows of the tables that are read.
        ids: elements of the position ids, 0 when position p takes row p.
        layout: `half` pairs feature i with i + rotary / 2, `interleaved` 2 i with 2 i + 1.
        table: `half` holds one cosine and sine for each pair, `full` one for each feature, as transformers does.
        in_place: features that are not turned stay where they are.

    Source: Su et al. 2021, arXiv:2104.09864, eq. 34; partial: Black et al. 2022, arXiv:2204.06745, section 2.1.

    >>> rotary_embedding(1, 2, 4, 8, DType(name="bf16", bits_count=16)).read_bytes
    192
    """
    turned = dim if rotary is None else rotary
    rows = positions if table_rows is None else table_rows
    _check(dim, turned, layout, table, ids, rows, batch * positions)
    moved = batch * heads * positions * (turned if in_place else dim)
    entries = rows * (turned if table == "full" else turned // 2)
    read = 2 * (table_dtype or dtype).bytes(entries) + dtype_of(id_dtype).bytes(ids)
    return Work(
        flop={unit(dtype): 3 * batch * heads * positions * turned},
        read_bytes=dtype.bytes(moved) + unless_empty(turned, read),
        write_bytes=dtype.bytes(moved),
    )


def _check(dim: int, turned: int, layout: str, table: str, ids: int, rows: int, positions: int) -> None:
    if layout not in LAYOUTS or table not in ("half", "full"):
        raise SpecError(f"rotary_embedding: layout={layout!r}, table={table!r}; layouts are half and interleaved, "
                        "tables half and full")  # fmt: skip
    required_at_most("rotary_embedding", {"dim": dim}, rotary=turned)
    required_multiple("rotary_embedding", {"2 features of a pair": 2}, rotary=turned)
    required_at_most("rotary_embedding", {"batch*positions": positions}, ids=ids, table_rows=rows)


def _inputs(**arguments: Any) -> dict[str, Tensor]:
    shape = tuple(arguments[name] for name in ("batch", "heads", "positions", "dim"))
    width = arguments["rotary"] if arguments["table"] == "full" else arguments["rotary"] // 2
    entries = Tensor(shape=(arguments["table_rows"], width), dtype=arguments["table_dtype"])
    tensors = {"x": Tensor(shape=shape, dtype=arguments["dtype"]), "cos": entries, "sin": entries}
    return tensors | (
        {"id": Tensor(shape=(arguments["ids"],), dtype=arguments["id_dtype"])} if arguments["ids"] else {}
    )


def _rows(arrays: dict[str, Any], batch: int, positions: int, table_rows: int, ids: int, **_: Any) -> Any:
    """Return the row of the tables for each position [batch, 1, positions]."""
    if ids:
        count = np.resize(np.asarray(arrays["id"]), batch * positions)
        return count.reshape(batch, 1, positions)
    return np.broadcast_to(np.arange(positions) % max(1, table_rows), (batch, 1, positions))


def _tables(arrays: dict[str, Any], **arguments: Any) -> list[tuple[Any, Any]]:
    """Return cosines and sines of the first and of the second feature of each pair."""
    rows = _rows(arrays, **arguments)
    tables = []
    for part in ("first", "second"):
        entries_pair = [arrays[name] for name in ("cos", "sin")]
        if arguments["table"] == "full":
            entries_pair = [entries[:, _pair(arguments, part)] for entries in entries_pair]
        tables.append((entries_pair[0][rows], entries_pair[1][rows]))
    return tables


def _pair(arguments: dict[str, Any], part: str) -> slice:
    """Return where the first or second features of the pairs lie."""
    rotary, second = arguments["rotary"], part == "second"
    if arguments["layout"] == "interleaved":
        return slice(int(second), rotary, 2)
    return slice(rotary // 2 if second else 0, rotary if second else rotary // 2)


def _turned(x: Any, y: Any, tables: list[tuple[Any, Any]], arguments: dict[str, Any], *, back: bool) -> Any:
    """Write the turned features of `x` into `y`, with the inverse rotation when `back`."""
    first, second = _pair(arguments, "first"), _pair(arguments, "second")
    (c1, s1), (c2, s2) = tables
    a, b = x[..., first], x[..., second]
    y[..., first] = a * c1 + b * s2 if back else a * c1 - b * s1
    y[..., second] = b * c2 - a * s1 if back else b * c2 + a * s2
    return y


def _reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    x = arrays["x"]
    return {"y": _turned(x, x.copy(), _tables(arrays, **arguments), arguments, back=False)}


def _backward_reference(arrays: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    upstream = arrays["grad_y"]
    tables = _tables(arrays, **arguments)
    return {"grad_x": _turned(upstream, upstream.copy(), tables, arguments, back=True)}


def _torch_call(tensors: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    import torch

    x, dim, turned = tensors["x"], arguments["dim"], arguments["rotary"]
    if arguments["ids"]:
        batch, positions = x.shape[0], x.shape[2]
        rows = resized(tensors["id"], batch * positions).reshape(batch, 1, positions).long()
    else:
        rows = tensor_of(x.device, _rows, None, **arguments)
    cos, sin = (tensors[name].to(x.dtype)[rows] for name in ("cos", "sin"))
    head, rest = x[..., :turned], x[..., turned:]
    if arguments["layout"] == "interleaved":
        swapped = torch.stack([-head[..., 1::2], head[..., ::2]], dim=-1).flatten(-2)
        cos, sin = (t if arguments["table"] == "full" else t.repeat_interleave(2, -1) for t in (cos, sin))
    else:
        swapped = torch.cat([-head[..., turned // 2 :], head[..., : turned // 2]], dim=-1)
        cos, sin = (t if arguments["table"] == "full" else torch.cat([t, t], -1) for t in (cos, sin))
    done = head * cos + swapped * sin
    return {"y": done if turned == dim else torch.cat([done, rest], dim=-1)}


def _from_onnx(site: OnnxSite) -> Match:
    """Match RotaryEmbedding of the standard (X, cos, sin, ids) and of onnxruntime (input, ids, cos, sin)."""
    x_at, id_at, cos_at = (0, 1, 2) if "." in site.name else (0, 3, 1)
    x, cos = site.inputs[x_at], site.inputs[cos_at]
    ids = site.optional(id_at)
    if x is None or cos is None or len(x.shape) not in (3, 4):
        raise NotModelledError(f"{site.name}: shapes are not known")
    rotary = int(site.attributes.get("rotary_embedding_dim") or 0) or 2 * cos.shape[-1]
    batch, heads, positions, dim = _four(x, int(site.attributes.get("num_heads") or 0), rotary)
    # Which rows the ids name is data; without ids the tables hold a row for each position.
    rows = batch * positions if ids is None else 1
    read = min(rows, cos.elements // cos.shape[-1]) * (rotary // 2)
    arguments: dict[str, Any] = {
        "batch": batch, "heads": heads, "positions": positions, "dim": dim, "rotary": rotary, "dtype": x.dtype,
        "table_dtype": cos.dtype, "table_rows": min(rows, cos.elements // cos.shape[-1]),
        "ids": min(ids.distinct, batch * positions) if ids is not None else 0,
        "layout": "interleaved" if site.attributes.get("interleaved") else "half",
    }  # fmt: skip
    tables = (str(cos_at), str(cos_at + 1))
    return Match(arguments=arguments, touched_bytes=dict.fromkeys(tables, dtype_of(cos.dtype).bytes(read)))


def _four(x: Tensor, heads: int, rotary: int) -> tuple[int, ...]:
    """Return batch, heads, positions and features of a head; unstated heads are as wide as the rotated part."""
    if len(x.shape) == 4:
        return x.shape
    batch, positions, hidden = x.shape
    heads = heads or hidden // rotary
    return batch, heads, positions, hidden // heads


OPERATOR = Operator(
    forward=rotary_embedding,
    family="attention",
    backward=rotary_embedding,
    tolerance=Tolerance(kind="normalisation", steps_count=2, below={"id": "table_rows"}),
    inputs=_inputs,
    reference=_reference,
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    same={"rotary": "dim", "table_rows": "positions"},
    onnx={"RotaryEmbedding": _from_onnx, "com.microsoft.RotaryEmbedding": _from_onnx},
)
