"""Prediction intervals by regime: quantiles of measured over predicted time on held-out rows."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from nearpeak.prediction.scalar_or_column import exponential, is_number

LEAST_COUNT = 30
"""Rows of a regime below which the rows of all regimes set its interval, a fifth wider."""
SHORTEST_COUNT = 200
"""Rows from which the shortest interval that covers is taken instead of equal tails."""
BAND_EDGES_S = (5e-6, 10e-6, 20e-6, 50e-6, 200e-6, 1e-3)
"""Edges of the time bands that have separate intervals."""
CELL_COUNT = 60
"""Rows of a kind or a band of a regime below which the whole regime's interval holds."""
FEW_SITES = 4.0
"""Sites at which an interval is twice as wide, in logarithms, as its rows alone say: an assumption."""
_WIDER = 1.2


def interval_ends(
    ratios: Any, regimes: Any, sites: Any, names: Iterable[str], times_s: Any = None, kinds: Any = None
) -> dict[str, tuple[float, float]]:
    """Return the ends that 90 % of `ratios` lie between, around 1: by regime, and finer where enough rows show it.

    Finer is by kind of case and by length of the time: what takes a few microseconds is predicted less surely than what
    takes a hundred times as long. Rows of a site are alike: ten sites of a thousand rows show less of what other sites
    do than their rows promise, so that ends are wider for few sites.

    Args:
        ratios: measured over predicted times.
        regimes: regime of each.
        sites: number of the site of each.
        names: all regimes of the model.
        times_s: predicted times; without them there are no bands.
        kinds: what each is by `Form.kind`; one kind where it is not given.

    >>> ratios, places = np.linspace(0.8, 1.2, 101), np.arange(101)
    >>> ends = interval_ends(ratios, np.array(["dram"] * 101), places, ["dram", "launch"])
    >>> ends["dram"][0] < 0.85, ends["launch"][1] > ends["dram"][1]
    (True, True)
    """
    low, high = _ends(ratios, sites)
    whole = (low**_WIDER, high**_WIDER)
    regimes, kinds = np.asarray(regimes, dtype=object), np.full(len(ratios), "") if kinds is None else kinds
    bands = np.zeros(len(ratios), dtype=int) if times_s is None else band_of(times_s)
    ends = {}
    for name in sorted(set(names)):
        of_regime = regimes == name
        ends[name] = whole if of_regime.sum() < LEAST_COUNT else _ends(ratios[of_regime], sites[of_regime])
        for kind in sorted({"", *kinds}):
            of_kind = of_regime if kind == "" else of_regime & (kinds == kind)
            cells = {cell(name, kind): of_kind} if kind else {}
            if times_s is not None:
                cells |= {cell(name, kind, band): of_kind & (bands == band) for band in sorted({*bands.tolist()})}
            for label, rows in cells.items():
                if rows.sum() >= CELL_COUNT:
                    ends[label] = _ends(ratios[rows], sites[rows])
    return ends


def band_of(times_s: Any) -> Any:
    """Return the band of each time, or of one.

    >>> band_of([1e-6, 5e-6, 2e-3]).tolist()
    [0, 1, 6]
    """
    if is_number(times_s):
        return bisect_right(BAND_EDGES_S, times_s)
    return np.digitize(times_s, BAND_EDGES_S)


def cell(regime: str, kind: str = "", band: int | None = None) -> str:
    """Return the name of the interval of a regime, or of a kind or a band of it; a band by its least microseconds.

    >>> cell("dram"), cell("dram", "tanh"), cell("dram", "", 5)
    ('dram', 'tanh_dram', 'dram_from_200_us')
    """
    name = f"{kind}_{regime}" if kind else regime
    return name if band is None else f"{name}_from_{1e6 * (0.0, *BAND_EDGES_S)[band]:.0f}_us"


def end_of(ratios: Mapping[str, float], regime: str, band: int, kind: str = "") -> float:
    """Return one end of the interval of a case: the finest that there is.

    >>> ends = {"dram": 0.9, "dram_from_5_us": 0.95, "tanh_dram": 0.8}
    >>> end_of(ends, "dram", 1), end_of(ends, "dram", 0), end_of(ends, "dram", 1, "tanh")
    (0.95, 0.9, 0.8)
    """
    order = (*((cell(regime, kind, band), cell(regime, kind)) if kind else ()), cell(regime, "", band), regime)
    return next(ratios[name] for name in order if name in ratios)


def ends_by_band(ratios: Mapping[str, float], regimes: Sequence[str], kind: str = "") -> Any:
    """Return one end of the interval for each of `regimes` and each band.

    >>> ends_by_band({"dram": 0.9, "dram_from_5_us": 0.95}, ["dram"])[0, :3].tolist()
    [0.9, 0.95, 0.9]
    """
    bands = range(len(BAND_EDGES_S) + 1)
    return np.array([[end_of(ratios, name, band, kind) for band in bands] for name in regimes])


def cells_of(ends: Any, regimes: Any, times_s: Any) -> Any:
    """Return the end of each row from the ends by regime and band; bands are looked for only where they differ.

    >>> cells_of(np.array([[0.9] * 7, [0.8] * 6 + [0.7]]), np.array([0, 1]), np.array([1.0, 1.0])).tolist()
    [0.9, 0.7]
    """
    alike = (ends == ends[:, :1]).all()
    return ends[regimes, 0] if alike else ends[regimes, band_of(times_s)]


def farther(apart_ratio: float, more: Any) -> Any:
    """Return `apart_ratio` with `more`, as logarithms, added in squares: both deviate independently.

    >>> float(farther(1.0, 0.5)) == float(np.exp(0.5))
    True
    """
    return np.exp(np.hypot(np.log(apart_ratio), more))


def stretched(logs: Any, scale: Any, apart_ratio: Any, *, is_low: bool) -> Any:
    """Return ends of intervals, all low or all high ones, for cases as sure as their scales tell.

    Args:
        logs: logarithm of the end of a case of scale 1.
        scale: how far each case deviates against others.
        apart_ratio: spread of other sources, independent of the scale; a number or a column.

    >>> stretched(np.log([0.5, 0.7]), np.array([2.0, 2.0]), 1.0, is_low=True).round(2).tolist()
    [0.25, 0.49]
    >>> stretched(np.log([1.0]), np.array([1.0]), 2.0, is_low=True).tolist()
    [0.5]
    """
    scaled = logs * scale
    if isinstance(apart_ratio, float) and apart_ratio == 1.0:
        return exponential(scaled)
    return exponential((-1.0 if is_low else 1.0) * np.hypot(scaled, np.log(apart_ratio)))


def shortest(ratios: Any, inside: int) -> tuple[float, float]:
    """Return the ends of the interval, shortest in logarithms, that holds `inside` of the ratios.

    >>> shortest(np.array([0.5, 0.99, 1.0, 1.01]), 3)
    (0.99, 1.01)
    """
    ordered = np.sort(ratios)
    logs = np.log(ordered)
    start = int(np.argmin(logs[inside - 1 :] - logs[: len(logs) - inside + 1]))
    return float(ordered[start]), float(ordered[start + inside - 1])


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
        low, high = shortest(ratios, min(int(np.ceil(0.905 * (count + 1))), count))
    return min(low, 1.0) ** wider, max(high, 1.0) ** wider
