"""Optimal design over power modes: the few whose measurement determines the times of all others best."""

from collections.abc import Sequence
from typing import Any

import numpy as np

_RIDGE = 1e-3


def informative_modes(inverse_rates: Any, known: Sequence[int] = (), count: int = 1) -> list[int]:
    """Return the places of modes to measure next: the determinant of the information grows most by each (D-optimal).

    The first two, where none is known, are the corners: the slowest and the fastest mode.

    Args:
        inverse_rates: modes by terms.
        known: places that are measured already.
        count: modes wanted at most.

    >>> informative_modes(np.array([[1.0], [2.0], [4.0]]), count=2)
    [2, 0]
    """
    logs = np.log(np.asarray(inverse_rates, dtype=float))
    features = np.column_stack([np.ones(len(logs)), logs])
    chosen, wanted = list(known), min(count, len(logs) - len(set(known)))
    picks: list[int] = []
    corners = [int(np.argmax(logs.sum(1))), int(np.argmin(logs.sum(1)))] if not chosen else []
    while len(picks) < wanted:
        left = [place for place in range(len(logs)) if place not in (*chosen, *picks)]
        corner = next((place for place in corners if place in left), None)
        picks.append(left[_best(features, [*chosen, *picks], left)] if corner is None else corner)
    return picks


def _best(features: Any, chosen: Sequence[int], left: Sequence[int]) -> int:
    """Return the position in `left` of the mode that adds most: the largest variance of its prediction."""
    rows = features[list(chosen)]
    inverse = np.linalg.inv(rows.T @ rows + _RIDGE * np.eye(features.shape[1]))
    gains = [float(features[place] @ inverse @ features[place]) for place in left]
    return int(np.argmax(gains))
