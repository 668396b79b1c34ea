"""Step time over power modes, fitted as a sum of non-negative terms and shrunk towards the prediction."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from nearpeak.errors import SpecError

MOST_CONDITION = 300.0
"""Condition of measured modes beyond which their terms cannot be told apart."""
PRIOR_STRENGTH = 0.03
"""Weight of a predicted term beside one measured mode: predictions err by a third, measurements by a few percent."""


def shrunk_times(prior_s: Any, inverse_rates: Any, measured_s: Mapping[int, float]) -> Any:
    """Return the times of all modes with the terms of a prediction moved towards measured modes.

    What the prediction has beyond terms of the clocks, such as whole waves, is kept as a factor of each mode.

    Args:
        prior_s: predicted time of each mode.
        measured_s: measured times by the place of their mode.

    >>> rates = np.array([[1.0, 1.0], [2.0, 1.0], [3.0, 2.0]])
    >>> shrunk_times(rates @ [2e-3, 1e-3], rates, {0: 6e-3, 2: 16e-3}).round(6).tolist()
    [0.006, 0.01, 0.016]
    """
    prior, rates, places = np.asarray(prior_s, dtype=float), np.asarray(inverse_rates, dtype=float), sorted(measured_s)
    terms = non_negative(rates / prior[:, None], np.ones(len(prior)))
    beyond = prior / (rates @ terms)
    times = np.array([measured_s[place] for place in places]) / beyond[places]
    scale = np.exp(np.mean(np.log(times / (rates[places] @ terms))))
    moved = fitted_terms(rates[places], times, prior=scale * terms, strength=PRIOR_STRENGTH)
    result: Any = beyond * (rates @ moved)
    return result


def fitted_terms(inverse_rates: Any, times_s: Any, prior: Any = None, strength: float = 0.0) -> Any:
    """Return non-negative a, b, … of t = Σ term · inverse rate, with relative errors least.

    Args:
        inverse_rates: modes by terms, as `mode_features.inverse_rates` gives them.
        times_s: measured time of each mode.
        prior: terms to which the fit is shrunk.
        strength: weight of the prior beside one measurement.

    Raises:
        SpecError: without a prior, the clocks of the measured modes do not tell the terms apart.

    >>> rates = np.array([[1.0, 1.0], [2.0, 1.0], [3.0, 2.0]])
    >>> fitted_terms(rates, rates @ [2e-3, 1e-3]).round(6).tolist()
    [0.002, 0.001]
    """
    columns, times = np.asarray(inverse_rates, dtype=float), np.asarray(times_s, dtype=float)
    rows, wanted = columns / times[:, None], np.ones(len(times))
    if prior is None:
        condition = np.linalg.cond(rows / np.linalg.norm(rows, axis=0)) if len(times) >= columns.shape[1] else np.inf
        if condition > MOST_CONDITION:
            raise SpecError(
                f"modes: {len(times)} measured modes do not tell {columns.shape[1]} terms apart; their clocks keep one "
                "ratio, measure modes that differ in multiprocessors and memory clock"
            )
    else:
        prior = np.maximum(np.asarray(prior, dtype=float), 1e-12 * times.mean())
        weight = np.sqrt(strength)
        rows = np.vstack([rows, weight * np.diag(1 / prior)])
        wanted = np.append(wanted, np.full(columns.shape[1], weight))
    return non_negative(rows, wanted)


def non_negative(rows: Any, wanted: Any) -> Any:
    """Return the non-negative least-squares solution, by trying every set of terms that are not zero.

    The few terms of a board make that exact and cheap.

    >>> non_negative(np.eye(2), np.array([1.0, -1.0])).tolist()
    [1.0, 0.0]
    """
    count = rows.shape[1]
    best, least = np.zeros(count), float(wanted @ wanted)
    for code in range(1, 1 << count):
        used = [place for place in range(count) if code >> place & 1]
        solution = np.linalg.lstsq(rows[:, used], wanted, rcond=None)[0]
        if (solution < 0).any():
            continue
        rest = rows[:, used] @ solution - wanted
        if rest @ rest < least - 1e-15:
            best, least = np.zeros(count), float(rest @ rest)
            best[used] = solution
    return best
