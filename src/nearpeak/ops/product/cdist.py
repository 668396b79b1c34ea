"""Pairwise distances between two sets of points."""

from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import contraction, unit
from nearpeak.ops.shared.definition.array_arithmetic import maximum
from nearpeak.ops.shared.definition.axis_checks import required_one_of
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import AtenSite, Match, Operator, Value
from nearpeak.ops.shared.definition.tolerance import Tolerance

ORDERS = {"1": 1.0, "2": 2.0, "inf": float("inf"), "0": 0.0, "p": 3.0}
"""Norms by name; `p` is any other, in reference and PyTorch call 3."""


@free_when_empty
def cdist(batch: int, m: int, n: int, k: int, dtype: DType, norm: str = "2") -> Work:
    """Return the least work of y[batch,i,j] = norm of a[batch,i] - b[batch,j] over k coordinates.

    Counts: Euclidean 2 * k FLOP per pair, those of the product A B^T, and one root; the squares that are added to it
    are not counted, as forming the differences instead needs no squares of the points. Other norms 3k - 1 per pair:
    difference, magnitude and sum or maximum; a power is at least one FLOP, and its root a special evaluation. The
    norm of order 0 counts the coordinates that differ: 2k - 1.

    Args:
        norm: 1, 2, inf, 0 or p.

    Source: definition; |a - b|² = |a|² + |b|² - 2ab.

    >>> cdist(1, 4, 5, 8, DType(name="fp32", bits_count=32)).flop["matrix.fp32"]
    320
    """
    pairs = batch * m * n
    required_one_of("cdist", ORDERS, norm=norm)
    euclidean = norm == "2"
    return Work(
        flop=contraction(dtype, pairs * k)
        if euclidean
        else {unit(dtype): pairs * maximum((2 if norm == "0" else 3) * k - 1, 0)},
        special_count=pairs if norm in ("2", "p") else 0,
        read_bytes=dtype.bytes(batch * (m + n) * k),
        write_bytes=dtype.bytes(pairs),
    )


@free_when_empty
def _backward(batch: int, m: int, n: int, k: int, dtype: DType, norm: str = "2") -> Work:
    """Return the least work of the gradient of the first set, from that of the distances and the distances.

    Counts: Euclidean one division per pair and 2 * k FLOP, those of the product of the quotients with B; norm 1 4 FLOP
    per pair and coordinate, as does any other; the maximum norm bytes only; the gradient of order 0 is zero.
    """
    pairs = batch * m * n
    required_one_of("cdist", ORDERS, norm=norm)
    euclidean, slopes = norm == "2", norm in ("1", "p")
    distances = {"0": 0, "1": pairs}.get(norm, 2 * pairs)
    return Work(
        flop=contraction(dtype, pairs * k) if euclidean else {unit(dtype): 4 * pairs * k * slopes},
        special_count=pairs if euclidean else 0,
        read_bytes=0 * pairs if norm == "0" else dtype.bytes(batch * (m + n) * k) + dtype.bytes(distances),
        write_bytes=dtype.bytes(batch * m * k),
    )


def _differences(arrays: dict[str, Any]) -> Any:
    return arrays["a"][:, :, None] - arrays["b"][:, None]


def _backward_reference(arrays: dict[str, Any], norm: str, **_: Any) -> dict[str, Any]:
    between, upstream = _differences(arrays), arrays["grad_y"][..., None]
    if norm == "1":
        return {"grad_a": (upstream * np.sign(between)).sum(axis=2)}
    distance = np.linalg.norm(between, ORDERS[norm], axis=-1, keepdims=True)
    slopes: dict[str, Any] = {
        "2": lambda: between / distance, "inf": lambda: np.sign(between) * (np.abs(between) == distance),
        "0": lambda: 0 * between, "p": lambda: between * np.abs(between) / distance**2,
    }  # fmt: skip
    slope = slopes[norm]()
    return {"grad_a": (upstream * slope).sum(axis=2)}


def _torch_call(tensors: dict[str, Any], norm: str, **_: Any) -> dict[str, Any]:
    import torch

    # The expanded form loses half the digits where points are close.
    exact = "donot_use_mm_for_euclid_dist"
    return {"y": torch.cdist(tensors["a"], tensors["b"], ORDERS[norm], compute_mode=exact)}


def _from_aten(site: AtenSite) -> Match:
    """Match the distances and the gradient of the first set."""
    a, b, order = site.args["x1"], site.args["x2"], site.args["p"]
    norm = next((name for name, value in ORDERS.items() if value == order), "p")
    (m, k), n = a.shape[-2:], b.shape[-2]
    arguments: dict[str, Value] = {
        "batch": max(a.elements // max(1, m * k), b.elements // max(1, n * k)), "m": m, "n": n, "k": k,
        "dtype": a.dtype, "norm": norm,
    }  # fmt: skip
    if "grad" not in site.args:
        return Match(arguments=arguments)
    return Match(arguments=arguments, phase="backward", touched_bytes={"cdist": 0} if norm in ("0", "1") else {})


OPERATOR = Operator(
    forward=cdist,
    family="product",
    backward=_backward,
    tolerance=Tolerance(kind="normalisation", reduction="k", special="unspecified", exact=("0",), rounds=("ties:0",)),
    inputs=lambda batch, m, n, k, dtype, **_: {
        "a": Tensor(shape=(batch, m, k), dtype=dtype),
        "b": Tensor(shape=(batch, n, k), dtype=dtype),
    },
    reference=lambda arrays, norm, **_: {"y": np.linalg.norm(_differences(arrays), ORDERS[norm], axis=-1)},
    backward_reference=_backward_reference,
    torch_call=_torch_call,
    aten={
        "aten._cdist_forward.default": _from_aten,
        "aten._euclidean_dist.default": lambda site: _from_aten(
            AtenSite(name=site.name, args={**site.args, "p": 2.0}, outputs=site.outputs)
        ),
        "aten._cdist_backward.default": _from_aten,
    },
)
