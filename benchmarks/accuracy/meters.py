"""How a board's power meter was read: runs of measurements, each with one settling time and share of the power."""

import csv
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FILE = Path(__file__).parent / "power_meters.csv"
SETTLING_S = 1e-6 * np.array(
    [0.01, 0.3, 0.6, 1, 1.5, 2, 3, 4, 5, 6.5, 8, 10, 12, 16, 20, 25, 30, 40, 50, 60, 80, 100, 120, 160, 200, 300]
)
"""Settling times of a meter that are tried, as duration of the kernel."""
SHARES = np.array([1, 0.92, 0.85, 0.77, 0.7, 0.64, 0.58, 0.52, 0.45, 0.37, 0.3, 0.2, 0.1, 0.05])
"""Shares of the power above idle that are tried: what a meter reaches however long a kernel is."""
STATES = np.stack([each.ravel() for each in np.meshgrid(SETTLING_S, SHARES, indexing="ij")], 1)
"""Every settling time with every share."""
CHANGE = 0.7
"""Deviation, in logarithms, that a new run must save; found on the buckets that intervals are set on."""
MOST = 1.0
"""Deviation of one reading beyond which it counts no more."""
_COLUMNS = ("device", "dtype", "software", "m", "n", "k", "settling_s", "share")
Place = tuple[int, int, int]
"""Extents m, n and k of a case: the order in which sweeps were measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Measurements that follow one another and were read alike."""

    first: Place
    """First case."""
    settling_s: float
    """Duration of a kernel from which a meter approaches what it shows."""
    share: float
    """Share of the power above idle that it shows of long kernels."""


def reached_ratio(time_s: Any, settling_s: Any) -> Any:
    """Return the share of a step in power that a meter shows which averages over a window, as the mean of its readings.

    It rises in proportion until the window is full; readings from then on are right.

    >>> reached_ratio(np.array([1e-6, 1e-5, 1e-3]), 1e-5).round(3).tolist()
    [0.05, 0.5, 0.995]
    """
    full = time_s / settling_s
    return np.where(full < 1, full / 2, 1 - 1 / (2 * np.maximum(full, 1)))


def read_w(steady: Any, idle_w: Any, time_s: Any, settling_s: Any, share: Any = 1.0) -> Any:
    """Return what a meter shows of the power of a steady state.

    >>> read_w(np.array([800.0]), 250.0, np.array([1e-3]), np.array([1e-8])).round()
    array([800.])
    """
    return idle_w + (steady - idle_w) * share * reached_ratio(time_s, settling_s)


def runs_of(places: Sequence[Place], known: Any, steady: Any, idle_w: float, time_s: Any, measured_w: Any) -> list[Run]:
    """Return the runs that bring the readings nearest, with as few changes as pay: the cheapest path through states.

    A run begins halfway between the readings that show the change.

    Args:
        places: of every measurement, ascending.
        known: which of them have one of the readings, in order.
        steady: power of each reading in a steady state, and so on for what follows.
    """
    shown = read_w(steady[:, None], idle_w, time_s[:, None], STATES[:, 0], STATES[:, 1])
    path = _cheapest(np.minimum(np.abs(np.log(shown / measured_w[:, None])), MOST), CHANGE)
    changes = np.flatnonzero(np.diff(path, prepend=-1))
    firsts = [places[(known[row - 1] + known[row] + 1) // 2 if row else 0] for row in changes]
    return [
        Run(first=first, settling_s=float(STATES[state, 0]), share=float(STATES[state, 1]))
        for first, state in zip(firsts, path[changes], strict=True)
    ]


def _cheapest(costs: Any, change: float) -> Any:
    """Return the state of each row with the least sum of costs and changes."""
    count, states = costs.shape
    came, total, every = np.empty((count, states), np.int32), costs[0], np.arange(states)
    for row in range(1, count):
        best = int(total.argmin())
        came[row] = np.where(total <= total[best] + change, every, best)
        total = np.minimum(total, total[best] + change) + costs[row]
    path = np.empty(count, np.int32)
    path[-1] = total.argmin()
    for row in range(count - 1, 0, -1):
        path[row - 1] = came[row, path[row]]
    return path


def states_at(runs: Sequence[Run], places: Sequence[Place]) -> tuple[Any, Any]:
    """Return settling time and share of the run that each case falls into.

    >>> runs = [Run(first=(1, 1, 1), settling_s=1e-6, share=1.0), Run(first=(8, 1, 1), settling_s=2e-6, share=0.5)]
    >>> states_at(runs, [(1, 2, 3), (8, 64, 64)])[1].tolist()
    [1.0, 0.5]
    """
    firsts = [run.first for run in runs]
    found = [runs[max(bisect_right(firsts, place) - 1, 0)] for place in places]
    return np.array([run.settling_s for run in found]), np.array([run.share for run in found])


def write_runs(runs: Sequence[tuple[str, str, str, Sequence[Run]]]) -> None:
    """Write the runs of every device, format and software."""
    with FILE.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_COLUMNS)
        for device, dtype, software, found in runs:
            writer.writerows((device, dtype, software, *run.first, run.settling_s, run.share) for run in found)


def known_runs() -> dict[tuple[str, str, str], list[Run]]:
    """Return the runs of every device, format and software that were fitted."""
    found: dict[tuple[str, str, str], list[Run]] = {}
    with FILE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            first = (int(row["m"]), int(row["n"]), int(row["k"]))
            run = Run(first=first, settling_s=float(row["settling_s"]), share=float(row["share"]))
            found.setdefault((row["device"], row["dtype"], row["software"]), []).append(run)
    return found
