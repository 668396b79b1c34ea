"""Embedding bags: rows of a table summed, averaged or maximised per bag, and the gradient of the table."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType, dtype_of
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import unit
from nearpeak.ops.shared.definition.array_arithmetic import maximum, minimum
from nearpeak.ops.shared.definition.axis_checks import required_one_of
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance

MODES = ("sum", "mean", "max")
"""In the order of PyTorch's numbers 0, 1, 2."""


@free_when_empty
def embedding_bag(
    tokens: int, bags: int, dim: int, vocab: int, dtype: DType, touched_rows: int = 1, index_dtype: str = "int64",
    mode: str = "sum", weighted: bool = False,
) -> Work:  # fmt: skip
    """Return the least work of y[bag] = sum, mean or maximum of weight[index[token]] over the bag's tokens.

    Counts: one FLOP per element joined, at least tokens - bags rows however the bags are filled, and one per element
    weighted; the division of a mean is not counted. Which rows are read is data, between 1 and min(vocab, tokens); a
    bound takes the lower end unless the indices are known (assumption A9).

    Args:
        touched_rows: distinct rows that the indices name.
        index_dtype: format of indices and offsets.
        mode: sum, mean or max.
        weighted: each token has its weight.

    Source: definition.

    >>> embedding_bag(8, 2, 4, 100, DType(name="fp32", bits_count=32)).flop
    {'vector.fp32': 24}
    """
    required_one_of("embedding_bag", MODES, mode=mode)
    joined = maximum(tokens - bags, 0) + (tokens if weighted else 0)
    return Work(
        flop={unit(dtype): joined * dim},
        read_bytes=dtype.bytes(minimum(minimum(touched_rows, tokens), vocab) * dim)
        + dtype_of(index_dtype).bytes(tokens + bags)
        + (dtype.bytes(tokens) if weighted else 0),
        write_bytes=dtype.bytes(bags * dim),
    )


@free_when_empty
def _backward(
    tokens: int,
    bags: int,
    dim: int,
    vocab: int,
    dtype: DType,
    index_dtype: str = "int64",
    mode: str = "sum",
    weighted: bool = False,
) -> Work:
    """Return the least work of the table's dense gradient: rows of the same index are added, all rows are written.

    Counts: at least tokens - vocab additions of rows, and one FLOP per element weighted; a maximum adds up nothing
    for sure, as each of its elements has one token only.
    """
    required_one_of("embedding_bag", MODES, mode=mode)
    joined = (0 if mode == "max" else maximum(tokens - vocab, 0)) + (tokens if weighted else 0)
    return Work(
        flop={unit(dtype): joined * dim},
        read_bytes=dtype.bytes(bags * dim)
        + dtype_of(index_dtype).bytes(tokens + bags)
        + (dtype.bytes(tokens) if weighted else 0),
        write_bytes=dtype.bytes(vocab * dim),
    )


def _inputs(tokens: int, bags: int, dim: int, vocab: int, dtype: str, **arguments: Any) -> dict[str, Tensor]:
    tensors = {
        "weight": Tensor(shape=(vocab, dim), dtype=dtype),
        "index": Tensor(shape=(tokens,), dtype=arguments["index_dtype"]),
        "offsets": Tensor(shape=(bags,), dtype=arguments["index_dtype"]),
    }
    return tensors | ({"factors": Tensor(shape=(tokens,), dtype=dtype)} if arguments["weighted"] else {})


def _valid(drawn: dict[str, Any], tokens: int, **_: Any) -> dict[str, Any]:
    """Return where each bag starts: the numbers drawn for the offsets, sorted, the first one zero.

    Of more bags than tokens each would hold one or none, and a mean be a sum: one of the first holds several, not all.
    Where there are two it holds both in some draws only: nothing else tells which token is in which bag.
    """
    starts = np.sort(np.minimum(drawn["offsets"], tokens))
    starts[:1] = 0
    if len(starts) > tokens and (tokens > 2 or drawn["offsets"][-1] % 2):
        starts[starts < min(_SEVERAL, max(tokens - 1, 2))] = 0
    return {"offsets": starts}


_SEVERAL = 3
"""Tokens of one bag where there are few for many."""


def _bags(arrays: dict[str, Any], tokens: int) -> list[slice]:
    starts = arrays["offsets"]
    return [slice(start, end) for start, end in zip(starts, (*starts[1:], tokens), strict=True)]


def _reference(arrays: dict[str, Any], tokens: int, mode: str, **_: Any) -> dict[str, Any]:
    rows = arrays["weight"][arrays["index"]] * arrays.get("factors", np.ones(tokens))[:, None]
    join: Any = {"sum": np.sum, "mean": np.mean, "max": np.max}[mode]
    empty = np.zeros(rows.shape[1])
    return {
        "y": np.stack([join(rows[bag], axis=0) if bag.start < bag.stop else empty for bag in _bags(arrays, tokens)])
    }


def _backward_reference(arrays: dict[str, Any], tokens: int, mode: str, **_: Any) -> dict[str, Any]:
    grad, index = np.zeros_like(arrays["weight"]), arrays["index"]
    factors = arrays.get("factors", np.ones(tokens))[:, None]
    for upstream, bag in zip(arrays["grad_y"], _bags(arrays, tokens), strict=True):
        bag_index, rows = index[bag], arrays["weight"][index[bag]]
        if not len(bag_index):
            continue
        if mode == "max":
            np.add.at(grad, (bag_index[rows.argmax(axis=0)], np.arange(len(upstream))), upstream)
        else:
            np.add.at(grad, bag_index, upstream * factors[bag] / (len(bag_index) if mode == "mean" else 1))
    return {"grad_weight": grad}


def _torch_call(tensors: dict[str, Any], mode: str, **_: Any) -> dict[str, Any]:
    import torch

    index, weight, offsets = (tensors[name] for name in ("index", "weight", "offsets"))
    if not weight.shape[1]:
        raise NotImplementedError("PyTorch's kernel fails on rows without an element")
    call = torch.nn.functional.embedding_bag
    return {"y": call(index, weight, offsets, mode=mode, per_sample_weights=tensors.get("factors"))}


def _from_aten(site: AtenSite) -> Match:
    """Match the bags of ATen and their dense gradient; what the forward pass notes about its bags is not counted."""
    back, index = "grad" in site.args, site.args["indices"]
    table = site.outputs[0] if back else site.args["weight"]
    bags = site.args["grad"] if back else site.outputs[0]
    arguments: dict[str, Value] = {
        "tokens": index.elements, "bags": bags.shape[0], "dim": table.shape[1], "vocab": table.shape[0],
        "dtype": bags.dtype, "index_dtype": index.dtype, "mode": MODES[site.args["mode"]],
        "weighted": site.args.get("per_sample_weights") is not None,
    }  # fmt: skip
    if back:
        unread = dict.fromkeys(("offset2bag", "bag_size", "maximum_indices"), 0)
        return Match(arguments=arguments, phase="backward", touched_bytes=unread)
    touched = dtype_of(table.dtype).bytes(min(1, index.elements) * table.shape[1])
    return Match(arguments=arguments, touched_bytes={"weight": touched})


def _of_factors(site: AtenSite) -> Match:
    """Match the gradient of the factors: per token, the inner product of a row of the table with its bag's gradient."""
    grad, table, index = site.args["grad"], site.args["weight"], site.args["indices"]
    tokens, dim = index.elements, table.shape[1]
    arguments: dict[str, Value] = {
        "m": 1, "n": 1, "k": dim, "batch": tokens, "a_batch": min(tokens, grad.shape[0]), "b_batch": min(tokens, 1),
        "dtype": grad.dtype,
    }  # fmt: skip
    touched = {"weight": dtype_of(table.dtype).bytes(min(1, tokens) * dim)}
    return Match(op="gemm", arguments=arguments, touched_bytes=touched)


OPERATOR = Operator(
    forward=embedding_bag,
    family="movement",
    backward=_backward,
    data_axes={"touched_rows": ("tokens", "vocab")},
    tolerance=Tolerance(
        kind="normalisation",
        reduction="tokens",
        below={"index": "vocab", "offsets": "tokens"},
        special="unspecified",
        steps_count=1,
        exact=("max",),
        rounds=("deep:max", "gaps:max"),  # where one bag names all rows, their order is nothing to a maximum
    ),
    inputs=_inputs,
    valid=_valid,
    reference=_reference,
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    aten={
        "aten._embedding_bag.default": _from_aten,
        "aten._embedding_bag_forward_only.default": _from_aten,
        "aten._embedding_bag_dense_backward.default": _from_aten,
        "aten._embedding_bag_backward.default": _from_aten,
        "aten._embedding_bag_per_sample_weights_backward.default": _of_factors,
    },
)
