"""Intervals of a form: how far measured times were from predicted ones on rows that the fit had not seen."""

from collections.abc import Iterable
from typing import Any

import numpy as np

LEAST_COUNT = 30
"""Rows of a regime below which the rows of all regimes set its interval, a fifth wider."""
SHORTEST_COUNT = 200
"""Rows from which the shortest interval that covers is taken instead of equal tails."""
FEW_SITES = 4.0
"""Sites at which an interval is twice as wide, in logarithms, as its rows alone say: an assumption."""
_WIDER = 1.2


def interval_ends(ratios: Any, regimes: Any, sites: Any, names: Iterable[str]) -> dict[str, tuple[float, float]]:
    """Return the ends that 90 % of `ratios` lie between, by regime, around 1.

    Rows of a site are alike: ten sites of a thousand rows show less of what other sites do than their rows promise, so
    that ends are wider for few sites.

    Args:
        ratios: measured over predicted times.
        regimes: regime of each.
        sites: number of the site of each.
        names: all regimes of the form.

    >>> ratios, places = np.linspace(0.8, 1.2, 101), np.arange(101)
    >>> ends = interval_ends(ratios, np.array(["dram"] * 101), places, ["dram", "launch"])
    >>> ends["dram"][0] < 0.85, ends["launch"][1] > ends["dram"][1]
    (True, True)
    """
    low, high = _ends(ratios, sites)
    whole = (low**_WIDER, high**_WIDER)
    ends = {}
    for name in sorted(set(names)):
        own = regimes == name
        ends[name] = whole if own.sum() < LEAST_COUNT else _ends(ratios[own], sites[own])
    return ends


def _ends(ratios: Any, sites: Any) -> tuple[float, float]:
    """Return both ends with the finite-sample rank of split conformal prediction.

    Of many rows the shortest interval in logarithms is taken: where a slow implementation alone was measured, times
    are several times as long, and equal tails would widen every interval by that.
    """
    count, wider = len(ratios), 1 + FEW_SITES / len(np.unique(sites))
    if count < SHORTEST_COUNT:
        rank = min(1.0, 0.95 * (count + 1) / count)
        low, high = float(np.quantile(ratios, 1 - rank)), float(np.quantile(ratios, rank))
    else:
        logs = np.sort(np.log(ratios))
        inside = min(int(np.ceil(0.905 * (count + 1))), count)
        start = int(np.argmin(logs[inside - 1 :] - logs[: count - inside + 1]))
        low, high = float(np.exp(logs[start])), float(np.exp(logs[start + inside - 1]))
    return min(low, 1.0) ** wider, max(high, 1.0) ** wider
