"""Nearest-neighbour search with product quantisation: distance tables and sums of looked-up entries."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import INDEX, contraction
from nearpeak.ops.shared.definition.axis_checks import required_at_most, required_multiple
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance

CODEWORDS = 256
"""Codewords per part of a vector: a code is one byte."""
_CODE = dtype_of("uint8")


@free_when_empty
def pq_search(queries: int, vectors: int, dim: int, parts: int, k: int, dtype: DType) -> Work:
    """Return the least work of finding the k nearest of `vectors` codes of `parts` bytes for each of Q[queries,dim].

    Shapes: Q [queries,dim]; codebooks [parts,256,dim / parts]; codes [vectors,parts] as uint8; distances [queries,k];
    positions [queries,k] as int64.
    Counts: 2 * queries * 256 * dim FLOP for the tables of squared distances to all codewords, and parts - 1 additions
    per query and vector. Tables and distances stay on chip; comparisons are not charged.

    Source: Jégou, Douze and Schmid 2011, doi:10.1109/TPAMI.2010.57, asymmetric distances.

    >>> pq_search(1, 1000, 64, 8, 10, DType(name="fp32", bits_count=32)).flop
    {'matrix.fp32': 32768, 'vector.fp32': 7000}
    """
    required_multiple("pq_search", {"parts": parts}, dim=dim)
    required_at_most("pq_search", {"vectors": vectors}, k=k)
    results = queries * k
    return Work(
        flop=contraction(dtype, queries * CODEWORDS * dim, queries * vectors * (parts - (parts > 0))),
        read_bytes=dtype.bytes(queries * dim + CODEWORDS * dim) + _CODE.bytes(vectors * parts),
        write_bytes=dtype.bytes(results) + INDEX.bytes(results),
    )


def _tables(queries: Any, codebooks: Any) -> Any:
    """Return squared distances [queries,parts,256] of every part of every query to its codewords."""
    parts, _count, width = codebooks.shape
    return ((queries.reshape(-1, parts, 1, width) - codebooks) ** 2).sum(-1)


def _ranked(arrays: dict[str, Any], parts: int, **_: Any) -> dict[str, Any]:
    """Return the distances [queries,vectors]: vectors of the same codes are equally far."""
    tables = _tables(arrays["queries"], arrays["codebooks"])
    return {"far": tables[:, np.arange(parts), arrays["codes"].astype(int)].sum(-1)}


def _reference(arrays: dict[str, Any], parts: int, k: int, **_: Any) -> dict[str, Any]:
    far = _ranked(arrays, parts)["far"]
    index = np.argsort(far, axis=-1, kind="stable")[:, :k]
    return {"distances": np.take_along_axis(far, index, axis=-1), "positions": index}


def _at_positions(tensors: dict[str, Any], parts: int, **_: Any) -> dict[str, Any]:
    tables = _tables(tensors["queries"], tensors["codebooks"])
    far = tables[:, list(range(parts)), tensors["codes"].long()].sum(-1)
    return {"distances": far.gather(-1, tensors["positions"])}


def _torch_call(tensors: dict[str, Any], parts: int, k: int, **_: Any) -> dict[str, Any]:
    import torch

    far = _tables(tensors["queries"], tensors["codebooks"])[
        :, torch.arange(parts, device=tensors["codes"].device), tensors["codes"].long()
    ].sum(-1)
    best, index = far.topk(k, largest=False)
    return {"distances": best, "positions": index}


OPERATOR = Operator(
    forward=pq_search,
    family="product",
    tolerance=Tolerance(
        kind="normalisation", reduction="dim", steps_count=2, picks={"positions": "far"}, below={"codes": "256"}
    ),
    inputs=lambda queries, vectors, dim, parts, dtype, **_: {
        "queries": Tensor(shape=(queries, dim), dtype=dtype),
        "codebooks": Tensor(shape=(parts, CODEWORDS, dim // max(parts, 1)), dtype=dtype),
        "codes": Tensor(shape=(vectors, parts), dtype="uint8"),
    },
    reference=_reference,
    ranked=_ranked,
    at_positions=_at_positions,
    torch_call=_torch_call,
)
