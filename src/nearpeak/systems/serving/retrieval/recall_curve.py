"""Recall of inverted files, measured on a sample of vectors on this CPU against exact neighbours."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nearpeak.base.input_files import border, check_file
from nearpeak.core.systems.retrieval_answer import RecallPoint
from nearpeak.errors import SpecError

Vectors = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]
SAMPLE, QUERIES, CLUSTERS, LATENT = 20_000, 200, 100, 12
"""Vectors and queries of a synthetic sample, Gaussian clusters that they are drawn from, and the dimensions in which
they vary: embeddings vary in far fewer than they have elements."""
LIST_RATIOS = (1.0, 4.0)
"""Lists over the square root of the vectors that are tried. Source: Faiss wiki, "Guidelines to choose an index", which
names 4 to 16 times the root for a million vectors; fewer lists are shorter to choose from."""
LEAST_ROWS = 1_000
"""Vectors of a file below which recall is not measured."""
_ROUNDS, _BLOCK = 8, 4096
FLAT = RecallPoint(index="flat", list_ratio=0.0, probe_ratio=1.0, recall_ratio=1.0, scanned_ratio=1.0)


def synthetic_vectors(width: int, *, seed: int = 0) -> tuple[Vectors, Vectors]:
    """Return vectors and queries in overlapping Gaussian clusters of few dimensions, turned into `width` elements.

    >>> vectors, queries = synthetic_vectors(16)
    >>> vectors.shape, queries.shape
    ((20000, 16), (200, 16))
    """
    draw = np.random.default_rng(seed)
    latent = min(LATENT, width)
    centres = draw.standard_normal((CLUSTERS, latent))
    places = draw.integers(0, CLUSTERS, SAMPLE + QUERIES)
    inner = centres[places] + draw.standard_normal((SAMPLE + QUERIES, latent))
    turned = np.linalg.qr(draw.standard_normal((width, latent)))[0]
    rows = (inner @ turned.T).astype(np.float32)
    return rows[:SAMPLE], rows[SAMPLE:]


@border("vectors")
def read_vectors(path: Path, width: int, most: int) -> Vectors:
    """Return the first vectors of a NumPy file, as fp32.

    Raises:
        SpecError: it holds no rows of that width, too few of them, or values that are no numbers.
    """
    check_file(path)
    rows = np.load(path, mmap_mode="r", allow_pickle=False)
    if rows.ndim != 2 or rows.shape[1] != width or len(rows) < LEAST_ROWS or rows.dtype.kind not in "fiu":
        raise SpecError(
            f"{path}: holds an array of shape {rows.shape} and format {rows.dtype}; recall needs at least "
            f"{LEAST_ROWS:,} rows of {width} numbers"
        )
    vectors = np.array(rows[:most], np.float32)
    if not np.isfinite(vectors).all():
        raise SpecError(f"{path}: holds values that are not finite")
    return vectors


def recall_curve(
    vectors: Vectors, queries: Vectors, count: int, *, list_ratios: Sequence[float] = LIST_RATIOS, seed: int = 0
) -> tuple[RecallPoint, ...]:  # fmt: skip
    """Return the recall of the `count` nearest by lists probed, for several numbers of lists; exact search last.

    A true neighbour is found exactly where its list is among those that the query looks into.

    Raises:
        SpecError: there are fewer vectors than neighbours.

    >>> vectors, queries = synthetic_vectors(8)
    >>> points = recall_curve(vectors[:2000], queries[:20], 10, list_ratios=(1.0,))
    >>> [point.recall_ratio for point in points] == sorted(point.recall_ratio for point in points)
    True
    """
    if not 1 <= count <= len(vectors):
        raise SpecError(f"recall: {count} neighbours of {len(vectors):,} vectors; ask for at least 1 and at most all")
    nearest = nearest_vectors(vectors, queries, count)
    points = [FLAT]
    for ratio in list_ratios:
        lists = min(max(2, round(ratio * len(vectors) ** 0.5)), len(vectors))
        centres = _centres(vectors, lists, seed)
        list_of = nearest_vectors(centres, vectors, 1)[:, 0]
        sizes = np.bincount(list_of, minlength=lists)
        order = nearest_vectors(centres, queries, lists)
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.arange(lists)[None, :], axis=1)
        needed = np.take_along_axis(rank, list_of[nearest], axis=1)
        scanned = np.cumsum(sizes[order], axis=1).mean(axis=0) / len(vectors)
        probes = 1
        while probes < lists:
            points.append(RecallPoint(
                index="ivf", list_ratio=ratio, probe_ratio=probes / lists,
                recall_ratio=float((needed < probes).mean()), scanned_ratio=float(scanned[probes - 1]),
            ))  # fmt: skip
            probes = max(probes + 1, round(1.5 * probes))
    return tuple(sorted(points, key=lambda point: (point.recall_ratio, point.scanned_ratio)))


def least_points(curve: Sequence[RecallPoint], recall: float) -> list[RecallPoint]:
    """Return for each index and number of lists the setting that compares fewest vectors and reaches a recall.

    >>> low = RecallPoint(index="ivf", list_ratio=1, probe_ratio=0.1, recall_ratio=0.8, scanned_ratio=0.1)
    >>> [point.index for point in least_points([low, FLAT], 0.9)]
    ['flat']
    """
    best: dict[tuple[str, float], RecallPoint] = {}
    for point in sorted(curve, key=lambda point: -point.scanned_ratio):
        if point.recall_ratio >= recall:
            best[point.index, point.list_ratio] = point
    return list(best.values())


def nearest_vectors(vectors: Vectors, queries: Vectors, count: int) -> Ints:
    """Return the positions of the `count` nearest vectors of each query by squared distance, nearest first.

    >>> line = np.arange(5, dtype=np.float32)[:, None]
    >>> nearest_vectors(line, line[[1]] + 0.1, 3).tolist()
    [[1, 2, 0]]
    """
    squares = (vectors.astype(np.float64) ** 2).sum(axis=1)
    places = []
    for start in range(0, len(queries), _BLOCK):
        far = squares[None, :] - 2.0 * (queries[start : start + _BLOCK] @ vectors.T)
        if count == 1:
            places.append(far.argmin(axis=1)[:, None])
            continue
        part = np.argpartition(far, count - 1, axis=1)[:, :count] if count < len(vectors) else None
        if part is None:
            places.append(np.argsort(far, axis=1, kind="stable"))
        else:
            order = np.argsort(np.take_along_axis(far, part, axis=1), axis=1, kind="stable")
            places.append(np.take_along_axis(part, order, axis=1))
    return np.concatenate(places)


def _centres(vectors: Vectors, lists: int, seed: int) -> Vectors:
    """Return the centres of lists by Lloyd's k-means; empty lists keep their place."""
    draw = np.random.default_rng(seed)
    centres = vectors[draw.choice(len(vectors), lists, replace=False)].copy()
    for _ in range(_ROUNDS):
        list_of = nearest_vectors(centres, vectors, 1)[:, 0]
        sizes = np.bincount(list_of, minlength=lists)
        sums = np.zeros((lists, vectors.shape[1]))
        np.add.at(sums, list_of, vectors)
        filled = sizes > 0
        centres[filled] = (sums[filled] / sizes[filled, None]).astype(np.float32)
    return centres
