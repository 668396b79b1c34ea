"""What a form leaves systematically, between a few knots per axis: bounded, smooth, fitted on top of the scalars."""

import math
from typing import Any

import numpy as np

STARTS, COUNTS, STEP = (0.0, 5.0, 5.0), (9, 7, 7), 2.0
"""First knot, number of knots and distance of knots along m (of all products of a batch), n and k, as log2."""
KNOT_COUNT = math.prod(COUNTS)
SMOOTHNESS, SHRINKAGE = 0.1, 0.3
"""Weight, in rows, of the difference of neighbours, and of each value's distance from zero."""
_ROBUST = 0.05
"""Deviation beyond which a row counts linearly, not squared."""


def fit_correction(axes: Any, rest: Any) -> Any:
    """Return the values at the knots that fit `rest`: ridge regression, robust, smooth, zero where no row is near.

    Args:
        axes: extents along m (of all products of a batch), n and k as columns.
        rest: logarithm of measured over predicted time of each row.
    """
    design, penalty = _design(axes), _penalty()
    weights = np.ones(len(rest))
    values = np.zeros(KNOT_COUNT)
    for _ in range(5):
        normal = design.T @ (design * weights[:, None]) + penalty
        values = np.linalg.solve(normal, design.T @ (weights * rest))
        weights = 1 / np.sqrt(1 + ((rest - design @ values) / _ROBUST) ** 2)
    return values


def corrected(axes: Any, values: Any) -> Any:
    """Return the logarithm of the correction of each row."""
    return _design(axes) @ values


def _design(axes: Any) -> Any:
    """Return the weight of every knot in every row."""
    hats = [_hats(np.log2(axis), start, count) for axis, start, count in zip(axes, STARTS, COUNTS, strict=True)]
    return np.einsum("ri,rj,rk->rijk", *hats).reshape(len(axes[0]), -1)


def _hats(place: Any, start: float, count: int) -> Any:
    """Return the weight of every knot of one axis in every row."""
    along = np.clip((place - start) / STEP, 0, count - 1)[:, None]
    return np.maximum(1 - np.abs(along - np.arange(count)), 0)


def _penalty() -> Any:
    """Return the quadratic form of smoothness and shrinkage."""
    places = np.arange(KNOT_COUNT).reshape(COUNTS)
    found = SHRINKAGE * np.eye(KNOT_COUNT)
    for axis, count in enumerate(COUNTS):
        first = np.take(places, range(count - 1), axis).ravel()
        second = np.take(places, range(1, count), axis).ravel()
        found[first, first] += SMOOTHNESS
        found[second, second] += SMOOTHNESS
        found[first, second] -= SMOOTHNESS
        found[second, first] -= SMOOTHNESS
    return found
