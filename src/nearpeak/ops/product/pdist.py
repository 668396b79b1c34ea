"""Pairwise distances within one set of points."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.product.cdist import ORDERS
from nearpeak.ops.shared.arithmetic import contraction, unit
from nearpeak.ops.shared.definition.array_arithmetic import maximum
from nearpeak.ops.shared.definition.axis_checks import required_one_of
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance


@free_when_empty
def pdist(n: int, k: int, dtype: DType, norm: str = "2") -> Work:
    """Return the least work of the norms of x[i] - x[j] over k coordinates, for i < j.

    Counts: 2k FLOP per pair, those of the product of two points, and one root for the Euclidean norm; others as for
    two sets of points: 3k - 1, or 2k - 1 for the number of coordinates that differ.

    Args:
        norm: 1, 2, inf, 0 or p, which is any other.

    Source: definition; |a - b|² = |a|² + |b|² - 2ab.

    >>> pdist(4, 8, DType(name="fp32", bits_count=32)).write_bytes
    24
    """
    pairs = n * maximum(n - 1, 0) // 2
    required_one_of("pdist", ORDERS, norm=norm)
    euclidean = norm == "2"
    return Work(
        flop=contraction(dtype, pairs * k)
        if euclidean
        else {unit(dtype): pairs * maximum((2 if norm == "0" else 3) * k - 1, 0)},
        special_count=pairs if norm in ("2", "p") else 0,
        read_bytes=dtype.bytes(n * k),
        write_bytes=dtype.bytes(pairs),
    )


@free_when_empty
def _backward(n: int, k: int, dtype: DType, norm: str = "2") -> Work:
    """Return the least work of the gradient of the points, from that of the distances.

    Counts: 2 FLOP per pair and coordinate, as each difference goes to two points, for the Euclidean norm those of a
    product of matrices; bytes only for the maximum norm and
    for order 0, whose gradient is zero.
    """
    required_one_of("pdist", ORDERS, norm=norm)
    pairs, slopes = n * maximum(n - 1, 0) // 2, norm in ("1", "p")
    return Work(
        flop=contraction(dtype, pairs * k) if norm == "2" else {unit(dtype): 2 * pairs * k * slopes},
        read_bytes=0 * pairs if norm == "0" else dtype.bytes(n * k) + dtype.bytes(pairs),
        write_bytes=dtype.bytes(n * k),
    )


def _reference(arrays: dict[str, Any], n: int, norm: str, **_: Any) -> dict[str, Any]:
    i, j = np.triu_indices(n, 1)
    return {"y": np.linalg.norm(arrays["x"][i] - arrays["x"][j], ORDERS[norm], axis=-1)}


def _backward_reference(arrays: dict[str, Any], n: int, norm: str, **_: Any) -> dict[str, Any]:
    i, j = np.triu_indices(n, 1)
    between = arrays["x"][i] - arrays["x"][j]
    distance = np.linalg.norm(between, ORDERS[norm], axis=-1, keepdims=True)
    slopes: dict[str, Any] = {
        "1": np.sign(between), "2": between / distance, "inf": np.sign(between) * (np.abs(between) == distance),
        "0": 0 * between, "p": between * np.abs(between) / distance**2,
    }  # fmt: skip
    grad, share = np.zeros_like(arrays["x"]), slopes[norm] * arrays["grad_y"][:, None]
    np.add.at(grad, i, share)
    np.add.at(grad, j, -share)
    return {"grad_x": grad}


def _torch_call(tensors: dict[str, Any], norm: str, **_: Any) -> dict[str, Any]:
    import torch

    return {"y": torch.nn.functional.pdist(tensors["x"], ORDERS[norm])}


def _from_aten(site: AtenSite) -> Match:
    """Match the distances and their gradient."""
    x, order = site.args["self"], site.args["p"]
    norm = next((name for name, value in ORDERS.items() if value == order), "p")
    arguments: dict[str, Value] = {"n": x.shape[0], "k": x.shape[1], "dtype": x.dtype, "norm": norm}
    if "grad" not in site.args:
        return Match(arguments=arguments)
    return Match(arguments=arguments, phase="backward", touched_bytes={"pdist": 0})


OPERATOR = Operator(
    forward=pdist,
    family="product",
    backward=_backward,
    degree_count=3,
    tolerance=Tolerance(kind="normalisation", reduction="k", exact=("0",), rounds=("ties:0",)),
    inputs=lambda n, k, dtype, **_: {"x": Tensor(shape=(n, k), dtype=dtype)},
    reference=_reference,
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    aten={"aten._pdist_forward.default": _from_aten, "aten._pdist_backward.default": _from_aten},
)
