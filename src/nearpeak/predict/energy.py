"""Energy of predicted cases: power by part times the predicted time, and what a power limit does to that time."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nearpeak.core.expected_energy import PARTS, ExpectedEnergy
from nearpeak.core.prediction import Calibration
from nearpeak.core.target import Target
from nearpeak.predict._form import CaseColumns, Form
from nearpeak.predict.forms.power import (
    board_w,
    clock_ratio,
    demand_w,
    limited_w,
    power_calibration,
    stock_of,
)  # fmt: skip

POWER_TERM = "power"
"""Part of a predicted time by which clocks below the full one prolong it."""
_CLOCKED = ("tensor", "products", "rows", "padding", "l2")
"""Regimes of parts that follow the clock of multiprocessors."""


def has_power(target: Target) -> bool:
    """Return whether power can be predicted: documents state the limit of the board and of the whole device."""
    return target.kind == "gpu" and target.power_w is not None and stock_of(target).power_w is not None


def energy_columns(target: Target, cases: CaseColumns, time_s: Any) -> tuple[Any, Calibration]:
    """Return the energy of cases by part, rows by parts, and the coefficients behind it."""
    used = power_calibration(stock_of(target).name, cases.dtypes.get("dtype", "bf16"))
    watts = limited_w(demand_w(target, cases, _values(used), time_s), board_w(target))
    return watts * np.asarray(time_s)[:, None], used


def energy_ends(parts_j: Any, time_ratio: tuple[Any, Any], used: Calibration) -> tuple[Any, Any]:
    """Return the ends of the 90 % intervals of energies.

    Time and power err independently; a kernel that takes longer draws its idle and busy power for longer, and does the
    same work.

    Args:
        time_ratio: both ends of the interval of the time over the time.
    """
    energy = parts_j.sum(1)
    waiting = parts_j[:, :2].sum(1) / np.maximum(energy, np.finfo(np.float64).tiny)
    low = np.hypot(np.log(used.low_ratio["power"]), waiting * np.log(time_ratio[0]))
    high = np.hypot(np.log(used.high_ratio["power"]), waiting * np.log(time_ratio[1]))
    return energy * np.exp(-low), energy * np.exp(high)


def energy_of(target: Target, cases: CaseColumns, times_s: tuple[float, float, float]) -> ExpectedEnergy:
    """Return the energy of one case.

    Args:
        times_s: expected time and the ends of its interval.
    """
    time_s, low_s, high_s = times_s
    parts, used = energy_columns(target, cases, np.array([time_s]))
    low, high = energy_ends(parts, (low_s / time_s, high_s / time_s), used)
    energy = float(parts.sum())
    return ExpectedEnergy(
        energy_j=energy, low_j=float(low[0]), high_j=float(high[0]), power_w=energy / time_s,
        parts_j=dict(zip(PARTS, map(float, parts[0]), strict=True)),
        source=f"{used.name}, {used.row_count} measurements: {used.source}", distance_count=used.distance_count,
    )  # fmt: skip


def energy_sum(each: Sequence[tuple[ExpectedEnergy, int]], time_s: float) -> ExpectedEnergy | None:
    """Return the energy of calls one after the other; none without calls.

    Args:
        each: the energy of a call, and how often it runs.
        time_s: time of all of them.
    """
    if not each:
        return None
    parts = {name: sum(one.parts_j[name] * count for one, count in each) for name in PARTS}
    farthest = max((one for one, _ in each), key=lambda one: one.distance_count)
    energy = sum(parts.values())
    return ExpectedEnergy(
        energy_j=energy, low_j=sum(one.low_j * count for one, count in each),
        high_j=sum(one.high_j * count for one, count in each), power_w=energy / time_s, parts_j=parts,
        source=farthest.source, distance_count=farthest.distance_count,
    )  # fmt: skip


def with_power(
    target: Target, cases: CaseColumns, form: Form, parts_s: Mapping[str, float]
) -> tuple[dict[str, float], float]:
    """Return the parts of a time with what the board's limit costs as a part of its own, and what it adds to the time.

    Scalars were fitted on boards at their stock limit: what it costs there is in them, below their ceilings, and only
    gets its name. A lower limit makes everything that follows the clock slower.
    """
    found = dict(parts_s)
    if not has_power(target) or not sum(found.values()) > 0:
        return found, 0.0
    clocked = [name for name in found if form.regimes.get(name) in _CLOCKED]
    stock, new = _clocks(target, cases, np.array([sum(found.values())]))
    clocked_s = sum(found[name] for name in clocked)
    taken = 0.0
    for name in (name for name in clocked if name.endswith("_ceiling")):
        share = min(max(found[name], 0.0), (1 - float(stock[0])) * clocked_s - taken)
        found[name], taken = found[name] - share, taken + share
    added = clocked_s * (float(stock[0] / new[0]) - 1)
    return found | ({POWER_TERM: taken + added} if taken + added > 0 else {}), added


def slowed_s(target: Target, cases: CaseColumns, form: Form, time_s: Any, parts_s: Any) -> Any:
    """Return the times of cases on a board whose power limit is below that of its device; others as they are.

    Args:
        parts_s: parts of each time, rows by the terms of the form.
    """
    if not has_power(target) or board_w(target) >= board_w(stock_of(target)):
        return time_s
    clocked = np.array([form.regimes[name] in _CLOCKED for name in form.terms])
    stock, new = _clocks(target, cases, time_s)
    return time_s + parts_s[:, clocked].sum(1) * (stock / new - 1)


def _clocks(target: Target, cases: CaseColumns, time_s: Any) -> tuple[Any, Any]:
    """Return the clocks at the limits of the whole device and of `target`, as shares of the full one."""
    stock = stock_of(target)
    demand = demand_w(target, cases, _values(power_calibration(stock.name, cases.dtypes.get("dtype", "bf16"))), time_s)
    at_stock = clock_ratio(demand, board_w(stock))
    return at_stock, at_stock if board_w(target) >= board_w(stock) else clock_ratio(demand, board_w(target))


def _values(used: Calibration) -> Any:
    return np.array([one.value for one in used.coefficients])
