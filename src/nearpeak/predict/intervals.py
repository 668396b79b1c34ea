"""Intervals of a form: how far measured times were from predicted ones on rows that the fit had not seen."""

from typing import Any

import numpy as np

LEAST_COUNT = 30
"""Rows of a regime below which the rows of all regimes set its interval, a fifth wider."""
_WIDER = 1.2


def interval_ends(ratios: Any, regimes: Any, names: Any) -> dict[str, tuple[float, float]]:
    """Return the 5th and 95th percentile of `ratios` by regime.

    Args:
        ratios: measured over predicted times.
        regimes: regime of each.
        names: all regimes of the form.

    >>> ends = interval_ends(np.linspace(0.8, 1.2, 101), np.array(["dram"] * 101), ["dram", "launch"])
    >>> ends["dram"][0] < 0.85, ends["launch"][1] > ends["dram"][1]
    (True, True)
    """
    low, high = _ends(ratios)
    whole = (low**_WIDER, high**_WIDER)
    ends = {}
    for name in sorted(set(names)):
        own = ratios[regimes == name]
        ends[name] = whole if len(own) < LEAST_COUNT else _ends(own)
    return ends


def _ends(ratios: Any) -> tuple[float, float]:
    """Return both ends with the finite-sample rank of split conformal prediction, around 1."""
    high = min(1.0, 0.95 * (len(ratios) + 1) / len(ratios))
    return min(float(np.quantile(ratios, 1 - high)), 1.0), max(float(np.quantile(ratios, high)), 1.0)
