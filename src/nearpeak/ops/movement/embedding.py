"""Embedding lookup: rows of a table by index, and the gradient of the table."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.movement.gather import gather
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.array_arithmetic import minimum, unless_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance
from nearpeak.ops.shared.torch_names import resized


def embedding(
    tokens: int,
    dim: int,
    vocab: int,
    dtype: DType,
    touched_rows: int = 1,
    indices: int | None = None,
    index_dtype: str = "int64",
) -> Work:
    """Return the least work of y[token] = weight[index[token]] for a table weight[vocab,dim].

    Counts: which rows are read is data, between 1 and min(vocab, tokens). A bound takes the lower end unless the
    indices are known (assumption A9), so `touched_rows` is 1 unless given.

    Args:
        touched_rows: distinct rows that the indices name.
        indices: distinct elements of the index tensor; fewer than `tokens` when it is broadcast.
        index_dtype: format of the indices.

    Source: definition.

    >>> embedding(8, 4, 100, DType(name="bf16", bits_count=16), touched_rows=5).read_bytes
    104
    """
    return gather(tokens, dim, vocab, dtype, touched_rows, indices, index_dtype)


def _backward(
    tokens: int, dim: int, vocab: int, dtype: DType, indices: int | None = None, index_dtype: str = "int64"
) -> Work:
    """Return the least work of the table's dense gradient: rows of the same index are added, all rows are written.

    Counts: at least tokens - min(vocab, tokens) additions of rows, whatever the indices are.
    """
    index_bytes = dtype_of(index_dtype).bytes(tokens if indices is None else indices)
    written = vocab * dim
    return Work(
        flop={unit(dtype): unless_empty(written, (tokens - minimum(vocab, tokens)) * dim)},
        read_bytes=unless_empty(written, dtype.bytes(tokens * dim) + index_bytes),
        write_bytes=dtype.bytes(written),
    )


def _backward_reference(arrays: dict[str, Any], tokens: int, **_: Any) -> dict[str, Any]:
    grad = np.zeros_like(arrays["weight"])
    np.add.at(grad, np.resize(arrays["index"], tokens), arrays["grad_y"])
    return {"grad_weight": grad}


def _torch_call(tensors: dict[str, Any], tokens: int, **_: Any) -> dict[str, Any]:
    import torch

    return {"y": torch.nn.functional.embedding(resized(tensors["index"], tokens), tensors["weight"])}


def _from_aten(site: AtenSite) -> Match:
    """Match embedding; the indices are not known."""
    weight, index = site.args["weight"], site.args["indices"]
    touched = min(1, index.elements, weight.shape[0])
    touched_bytes = {"weight": dtype_of(weight.dtype).bytes(touched * weight.shape[1])}
    return Match(arguments=_arguments(index, weight, weight.dtype), touched_bytes=touched_bytes)


def _gradient(site: AtenSite) -> Match:
    """Match embedding_dense_backward."""
    grad, index = site.args["grad_output"], site.args["indices"]
    return Match(arguments=_arguments(index, site.outputs[0], grad.dtype), phase="backward")


def _arguments(index: Tensor, table: Tensor, dtype: str) -> dict[str, Value]:
    vocab, dim = table.shape
    return {
        "tokens": index.elements, "dim": dim, "vocab": vocab, "dtype": dtype, "indices": index.distinct,
        "index_dtype": index.dtype,
    }  # fmt: skip


OPERATOR = Operator(
    forward=embedding,
    family="movement",
    backward=_backward,
    data_axes={"touched_rows": ("tokens", "vocab")},
    tolerance=Tolerance(kind="exact", below={"index": "vocab"}, rounds=("gaps",)),
    inputs=lambda indices, dim, vocab, dtype, index_dtype, **_: {
        "weight": Tensor(shape=(vocab, dim), dtype=dtype),
        "index": Tensor(shape=(indices,), dtype=index_dtype),
    },
    reference=lambda arrays, tokens, **_: {"y": arrays["weight"][np.resize(arrays["index"], tokens)]},
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    same={"indices": "tokens"},
    aten={"aten.embedding.default": _from_aten, "aten.embedding_dense_backward.default": _gradient},
)
