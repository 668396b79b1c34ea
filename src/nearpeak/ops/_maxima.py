"""Reference of maxima over windows that are given one by one, and of the gradient that goes back to where they were."""

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np

Spans = Sequence[Sequence[tuple[int, int]]]
"""For each spatial dimension, first position and end of each window."""


def maxima(plane: Any, spans: Spans) -> tuple[Any, Any]:
    """Return the maxima of one plane's windows and their flat positions; the first one wins a tie.

    >>> maxima(np.array([3, 1, 2]), [[(0, 2), (1, 3)]])
    (array([3, 2]), array([0, 2]))
    """
    places = np.arange(plane.size).reshape(plane.shape)
    found = [
        places[window][np.unravel_index(plane[window].argmax(), plane[window].shape)] for window in _windows(spans)
    ]
    where = np.array(found, dtype=np.int64).reshape([len(row) for row in spans])
    return plane.reshape(-1)[where], where


def all_maxima(x: Any, spans: Sequence[Spans]) -> tuple[Any, Any]:
    """Return maxima and positions of every plane of x[batch,channels,...], each with spans of its own."""
    planes = x.reshape(-1, *x.shape[2:])
    pairs = [maxima(plane, own) for plane, own in zip(planes, spans, strict=True)]
    shape = (*x.shape[:2], *(len(row) for row in spans[0]))
    return np.stack([best for best, _ in pairs]).reshape(shape), np.stack([at for _, at in pairs]).reshape(shape)


def returned(grad: Any, where: Any, shape: Sequence[int]) -> Any:
    """Return zeros of `shape` [batch, channels, ...] to which each gradient is added at its flat position."""
    planes = np.zeros((prod(shape[:2]), prod(shape[2:])))
    rows = zip(planes, grad.reshape(len(planes), -1), where.reshape(len(planes), -1), strict=True)
    for plane, values, places in rows:
        np.add.at(plane, places, values)
    return planes.reshape(shape)


def _windows(spans: Spans) -> list[tuple[slice, ...]]:
    return [tuple(slice(*span) for span in cell) for cell in product(*spans)]
