"""Nearest-neighbour search among stored vectors: exact, or in the probed lists of an inverted file (IVF)."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from nearpeak.base.registry import unknown_name
from nearpeak.core.work.dtype import DType
from nearpeak.core.work.tensor import Tensor
from nearpeak.core.work.work import Work
from nearpeak.ops.shared.arithmetic import INDEX, contraction
from nearpeak.ops.shared.definition.array_arithmetic import minimum
from nearpeak.ops.shared.definition.axis_checks import required_at_most
from nearpeak.ops.shared.definition.empty_work import free_when_empty
from nearpeak.ops.shared.definition.operator import Operator
from nearpeak.ops.shared.definition.tolerance import Tolerance

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
    exact = minimum(lists, 1) == 0
    named = minimum(scanned, 1)
    met = exact * vectors + (1 - exact) * (named * scanned + (1 - named) * k)
    results = queries * k
    return Work(
        flop=contraction(dtype, queries * dim * (lists + met)),
        special_count=2 * (queries + met) if metric == "cosine" else 0,
        read_bytes=dtype.bytes(queries * dim + lists * dim + met * dim),
        write_bytes=dtype.bytes(results) + INDEX.bytes(results),
    )


def _inputs(queries: int, vectors: int, dim: int, dtype: str, lists: int, **_: Any) -> dict[str, Tensor]:
    shapes = {"queries": (queries, dim), "vectors": (vectors, dim)} | ({"centroids": (lists, dim)} if lists else {})
    tensors = {name: Tensor(shape=shape, dtype=dtype) for name, shape in shapes.items()}
    return tensors | ({"list_of": Tensor(shape=(vectors,), dtype="int64")} if lists else {})


_IRRATIONAL = 0.5 * (5**0.5 - 1)
"""Multiples of it have fractions that are far from each other: Knuth 1998, The Art of Computer Programming 3, 6.4."""


def _valid(
    drawn: dict[str, Any], dim: int, k: int, probes: int, metric: str, dtype: str, **_: Any
) -> dict[str, Any]:  # fmt: skip
    """Return centroids that are not about as far from a query, so that it is no choice which lists are looked into.

    Where signs are all that counts, see `_signs`; of sorted vectors the one at the end is near.
    """
    if metric == "cosine" and dim == 1 and drawn["vectors"].size and "centroids" not in drawn:
        return _signs(drawn, k, dtype)
    if "centroids" not in drawn:
        return _near(drawn, k, metric)
    apart = np.modf(np.arange(1, len(drawn["centroids"]) + 1) * _IRRATIONAL)[0][:, None]
    valid = {"centroids": drawn["centroids"] + apart / 2}
    near = _near(drawn | valid, k, metric)
    if near and dim > 1:  # queries next to one centroid; in one dimension others may be as near
        return valid | near
    valid |= near
    return valid | _unambiguous(drawn | valid, probes, metric, _ROUNDOFF.get(dtype, 2.0**-24))


_ROUNDOFF = {"bf16": 2.0**-8, "fp16": 2.0**-11, "fp64": 2.0**-53}
"""Of the format in which distances may be stored."""
_APART = 8.0
"""Roundoffs, of the size of what is added up, by which the last list that is looked into is nearer than the next."""
_HALVINGS = 12


def _unambiguous(drawn: dict[str, Any], probes: int, metric: str, roundoff: float) -> dict[str, Any]:
    """Return queries whose lists rounding cannot change: those that are not are moved towards one that is.

    Where there is none, towards the first, moved along a centroid; where that does not do either, as of cosines that
    are all about 1, `probes` centroids point one way, and all others the other way.
    """
    queries, centroids = drawn["queries"].astype(float), drawn["centroids"].astype(float)
    if not queries.size or not 0 < probes < len(centroids):
        return {}
    one_way = np.where(np.arange(len(centroids)) < probes, 1, -1)[:, None]
    for lists in (centroids, one_way * np.abs(centroids)):
        is_sure = partial(_are_sure, centroids=lists, probes=probes, metric=metric, roundoff=roundoff)
        sure, some = is_sure(queries), lists[:_MOST_TRIED]
        tried = queries if sure.any() else np.concatenate([queries[:1] + some, queries[:1] - some, some, -some])
        sure_places = np.flatnonzero(sure if sure.any() else is_sure(tried))
        if sure_places.size:
            return {"queries": _moved(queries, sure, tried[sure_places[0]], is_sure), "centroids": lists}
    return {}


_MOST_TRIED = 64
"""Centroids along which a query is moved, until there is one that is sure."""


def _moved(queries: Any, sure: Any, fallback: Any, is_sure: Callable[[Any], Any]) -> Any:
    """Return the queries, each that is not sure moved towards the last that is before it, or `one`, until it is."""
    last = np.maximum.accumulate(np.where(sure, np.arange(len(queries)), -1))
    towards, left = np.where((last < 0)[:, None], fallback, queries[last]), np.flatnonzero(~sure)
    queries = queries.copy()
    for _ in range(_HALVINGS):
        queries[left] = (queries[left] + towards[left]) / 2
        left = left[~is_sure(queries[left])]
    queries[left] = towards[left]
    return queries


_AT_ONCE = 1024
"""Queries whose distances to all lists are held at once."""


def _are_sure(queries: Any, **options: Any) -> Any:
    """Return for each query whether no rounding decides which lists are looked into."""
    parts = [_is_sure(queries[start : start + _AT_ONCE], **options) for start in range(0, len(queries), _AT_ONCE)]
    return np.concatenate([np.zeros(0, dtype=bool), *parts])


def _is_sure(queries: Any, centroids: Any, probes: int, metric: str, roundoff: float) -> Any:
    with np.errstate(all="ignore"):
        if metric == "cosine":
            queries, centroids = _direction(queries), _direction(centroids)
        near, size = queries @ centroids.T, np.abs(queries) @ np.abs(centroids).T
        far = -near
        if metric == "l2":  # the difference of two rounded numbers is off by what these are
            lengths = [(points**2).sum(-1) for points in (queries, centroids)]
            far = np.maximum(lengths[0][:, None] + lengths[1] - 2 * near, 0.0)
            size = far + far**0.5 * (lengths[0][:, None] ** 0.5 + lengths[1] ** 0.5)
        order = np.argpartition(far, (probes - 1, probes), axis=-1)[:, probes - 1 : probes + 1]
        (last, following), sizes = np.take_along_axis(far, order, -1).T, np.take_along_axis(size, order, -1).max(-1)
        return following - last > _APART * roundoff * sizes


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
    if not drawn["queries"][:1].any() or not steps.size or not (np.all(steps >= 0) or np.all(steps <= 0)):
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
    lengths = [(points**2).sum(-1, keepdims=True) ** 0.5 for points in (queries, met)]
    sizes = (np.abs(queries) / lengths[0])[:, None] + np.abs(met) / lengths[1]
    grad_vectors = np.zeros_like(vectors)
    np.add.at(grad_vectors, np.maximum(positions, 0), share * sizes / lengths[1])
    return {"grad_queries": (share * sizes).sum(1) / lengths[0], "grad_vectors": grad_vectors}


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
    tolerance=Tolerance(
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
