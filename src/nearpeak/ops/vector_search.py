"""Nearest neighbours of queries among stored vectors: exact, or in the lists of an inverted file that look nearest."""

from typing import Any

import numpy as np

from nearpeak.core.dtype import DType
from nearpeak.core.tensor import Tensor
from nearpeak.core.work import Work
from nearpeak.ops._arithmetic import INDEX, contraction
from nearpeak.ops._arrays import minimum
from nearpeak.ops._checks import required_at_most
from nearpeak.ops._empty import free_when_empty
from nearpeak.ops._numerics import Numerics
from nearpeak.ops._operator import Operator
from nearpeak.registry import unknown_name

METRICS = ("l2", "ip", "cosine")
"""Squared distance, smallest first; inner product and cosine, largest first."""


@free_when_empty
def vector_search(
    queries: int, vectors: int, dim: int, k: int, dtype: DType, lists: int = 0, probes: int = 0, scanned: int = 0,
    metric: str = "l2",
) -> Work:  # fmt: skip
    """Return the least work of finding the k nearest of V[vectors,dim] for each of Q[queries,dim].

    Shapes: Q [queries,dim]; V [vectors,dim]; centroids [lists,dim]; list of each vector [vectors] as int64; distances
    [queries,k] and positions [queries,k] as int64.
    Counts: exact search 2 * queries * vectors * dim FLOP, every vector read once; distances stay on chip, comparisons
    are not charged. An inverted file 2 * queries * lists * dim to choose lists, and 2 * queries * dim per scanned
    vector; all queries may meet in the same lists, so that as few vectors are read. Cosine: a root and a division per
    vector that is met, and per query.

    Args:
        lists: lists of an inverted file; 0 for exact search.
        probes: lists that each query looks into.
        scanned: vectors that each query compares, which depends on the values; 0 stands for the least, k, as lists
            may be of any size. At most all vectors; vectors * probes / lists where lists are of one size.
        metric: l2, ip or cosine.

    Source: Johnson, Douze and Jégou 2017, arXiv:1702.08734 (exact search and inverted file on GPUs).

    >>> vector_search(64, 1_000_000, 128, 100, DType(name="fp32", bits_count=32)).flop["matrix.fp32"]
    16384000000
    """
    if metric not in METRICS:
        raise unknown_name("metric", metric, METRICS)
    required_at_most("vector_search", {"vectors": vectors}, k=k, scanned=scanned)
    required_at_most("vector_search", {"lists": lists}, probes=probes)
    required_at_most("vector_search", {"scanned": scanned + vectors * (scanned == 0)}, k=k)
    met = _met(vectors, k, lists, scanned)
    results = queries * k
    return Work(
        flop=contraction(dtype, queries * dim * (lists + met)),
        special_count=2 * (queries + met) if metric == "cosine" else 0,
        read_bytes=dtype.bytes(queries * dim + lists * dim + met * dim),
        write_bytes=dtype.bytes(results) + INDEX.bytes(results),
    )


def _met(vectors: int, k: int, lists: int, scanned: int) -> int:
    """Return the vectors that each query is compared with at least."""
    exact = minimum(lists, 1) == 0
    named = minimum(scanned, 1)
    return exact * vectors + (1 - exact) * (named * scanned + (1 - named) * k)


def _inputs(queries: int, vectors: int, dim: int, dtype: str, lists: int, **_: Any) -> dict[str, Tensor]:
    shapes = {"queries": (queries, dim), "vectors": (vectors, dim)} | ({"centroids": (lists, dim)} if lists else {})
    found = {name: Tensor(shape=shape, dtype=dtype) for name, shape in shapes.items()}
    return found | ({"list_of": Tensor(shape=(vectors,), dtype="int64")} if lists else {})


_IRRATIONAL = 0.5 * (5**0.5 - 1)
"""Multiples of it have fractions that are far from each other: Knuth 1998, The Art of Computer Programming 3, 6.4."""


def _valid(drawn: dict[str, Any], dim: int, k: int, metric: str, dtype: str, **_: Any) -> dict[str, Any]:
    """Return centroids that are not equally far from a query, so that it is no choice which lists are looked into.

    Where signs are all that counts, see `_signs`; of sorted vectors the one at the end is near.
    """
    if metric == "cosine" and dim == 1 and drawn["vectors"].size and "centroids" not in drawn:
        return _signs(drawn, k, dtype)
    found = {}
    if "centroids" in drawn:
        apart = np.modf(np.arange(1, len(drawn["centroids"]) + 1) * _IRRATIONAL)[0][:, None]
        found = {"centroids": drawn["centroids"] + apart / 2}
    return found | _near(drawn | found, k, metric)


def _signs(drawn: dict[str, Any], k: int, dtype: str) -> dict[str, Any]:
    """Return few vectors that point one way where signs are all that counts: else all of the best were the same.

    The last query is small then, and 0 in fp32: it has a sign in fp64 alone.
    """
    sizes = np.abs(drawn["vectors"])
    count = int(1024 * sizes.flat[0]) % (k + 1)
    ranks = np.argsort(np.argsort(sizes, axis=0), axis=0)
    queries = drawn["queries"].copy()
    queries[-1:] *= 2.0**-200 if dtype == "fp64" and count % 2 else 1.0
    return {"queries": queries, "vectors": np.where(ranks < count, sizes, -sizes)}


def _near(drawn: dict[str, Any], k: int, metric: str) -> dict[str, Any]:
    """Return the last of ascending vectors next to all queries, in the last list; of descending ones the first.

    Few queries would hardly ever find it among many vectors, nor look into that list among many. It holds k vectors, so
    that every query finds as many.
    """
    steps = np.diff(drawn["vectors"].ravel())
    if not len(drawn["queries"]) or not steps.size or not (np.all(steps >= 0) or np.all(steps <= 0)):
        return {}
    place, vectors, queries = -1 if np.all(steps >= 0) else 0, drawn["vectors"].copy(), drawn["queries"].copy()
    queries[1:] = queries[0] + queries[1:] / 8
    nearest = (4 if metric == "ip" else 1) * queries[0]
    vectors[place] = vectors[place] / 8 + nearest
    if "centroids" not in drawn:
        return {"queries": queries, "vectors": vectors}
    centroids, list_of = drawn["centroids"].copy(), drawn["list_of"].copy()
    centroids[place] = nearest
    list_of[slice(k) if place == 0 else slice(-k, None)] = place % len(centroids)
    return {"queries": queries, "vectors": vectors, "centroids": centroids, "list_of": list_of}


def _far(queries: Any, vectors: Any, metric: str) -> Any:
    """Return a number that is smaller the nearer a vector is, for each query and vector."""
    if metric == "l2":
        return ((queries[:, None] - vectors) ** 2).sum(-1)
    return -(queries @ vectors.T) if metric == "ip" else -(_direction(queries) @ _direction(vectors).T)


def _direction(x: Any) -> Any:
    """Return vectors of length 1, by way of no square of a small number, which fp16 does not hold."""
    if isinstance(x, np.ndarray):
        x = x / np.abs(x).max(-1, keepdims=True)
        return x / (x**2).sum(-1, keepdims=True) ** 0.5
    import torch

    return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)


def _ranked(arrays: dict[str, Any], lists: int, probes: int, metric: str, **_: Any) -> dict[str, Any]:
    """Return how far each vector is from each query; infinitely where no list that is looked into holds it."""
    far = _far(arrays["queries"], arrays["vectors"], metric)
    if lists:
        chosen = np.argsort(_far(arrays["queries"], arrays["centroids"], metric), axis=-1, kind="stable")[:, :probes]
        far = np.where((arrays["list_of"][None, :, None] == chosen[:, None]).any(-1), far, np.inf)
    return {"far": far}


def _reference(arrays: dict[str, Any], k: int, metric: str, **arguments: Any) -> dict[str, Any]:
    far = _ranked(arrays, metric=metric, **arguments)["far"]
    index = np.argsort(far, axis=-1, kind="stable")[:, :k]
    best = np.take_along_axis(far, index, axis=-1)
    return {"distances": best if metric == "l2" else -best, "positions": np.where(np.isinf(best), -1, index)}


def _passed(arrays: dict[str, Any], metric: str, **_: Any) -> dict[str, Any]:
    """Return the size of the two parts of a cosine's gradient, which are one vector where its length is all it has."""
    if metric != "cosine":
        return {}
    queries, vectors, positions = arrays["queries"], arrays["vectors"], arrays["positions"]
    share = np.where(positions < 0, 0.0, np.abs(arrays["grad_distances"]))[..., None]
    met = vectors[np.maximum(positions, 0)]
    lengths = [(one**2).sum(-1, keepdims=True) ** 0.5 for one in (queries, met)]
    sizes = (np.abs(queries) / lengths[0])[:, None] + np.abs(met) / lengths[1]
    found = np.zeros_like(vectors)
    np.add.at(found, np.maximum(positions, 0), share * sizes / lengths[1])
    return {"grad_queries": (share * sizes).sum(1) / lengths[0], "grad_vectors": found}


def _at_positions(tensors: dict[str, Any], metric: str, **_: Any) -> dict[str, Any]:
    far, positions = _far(tensors["queries"], tensors["vectors"], metric), tensors["positions"]
    best = far.gather(-1, positions.clamp(min=0)).masked_fill(positions < 0, float("inf"))
    return {"distances": best if metric == "l2" else -best}


def _torch_call(
    tensors: dict[str, Any], k: int, lists: int, probes: int, metric: str, **_: Any
) -> dict[str, Any]:  # fmt: skip
    import torch

    far = _far(tensors["queries"], tensors["vectors"], metric)
    if lists:
        chosen = _far(tensors["queries"], tensors["centroids"], metric).topk(probes, largest=False).indices
        far = far.masked_fill(~(tensors["list_of"][None, :, None] == chosen[:, None]).any(-1), torch.inf)
    best, index = far.topk(k, largest=False)
    return {"distances": best if metric == "l2" else -best, "positions": index.masked_fill(best.isinf(), -1)}


OPERATOR = Operator(
    forward=vector_search,
    family="product",
    source="Johnson, Douze and Jégou 2017, arXiv:1702.08734",
    numerics=Numerics(
        kind="normalisation",
        reduction="dim",
        below={"list_of": "lists"},
        steps_count=2,
        special="unspecified",
        picks={"positions": "far"},
    ),
    inputs=_inputs,
    valid=_valid,
    reference=_reference,
    ranked=_ranked,
    at_positions=_at_positions,
    passed=_passed,
    torch_call=_torch_call,
    data_axes={"scanned": ("vectors", "vectors*lists")},  # exact search, without lists, depends on no values
)
