"""Energy of predicted cases: power by part times the predicted time, and what a power limit does to that time."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearpeak.core.expected_energy import PARTS, ExpectedEnergy
from nearpeak.core.prediction import Calibration
from nearpeak.core.target import Target
from nearpeak.predict._documented import documented_of, stock_of
from nearpeak.predict._form import CaseColumns, Form
from nearpeak.predict.forms.power import (
    board_w,
    clock_ratio,
    demand_w,
    limited_w,
    power_calibration,
    top_ratio,
)  # fmt: skip

POWER_TERM = "power"
"""Part of a predicted time by which clocks below the full one prolong it."""
_CLOCKED = ("tensor", "products", "rows", "padding", "l2")
"""Regimes of parts that follow the clock of multiprocessors."""
_LEAST_S = 1e-15
"""Time that stands for none where one divides by it."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Powered:
    """What a board's limit costs cases, row by row."""

    parts_s: Any
    """Parts of their times, without what the limit costs where it is known: below ceilings."""
    power_s: Any
    """What it costs them, as a part of its own."""
    added_s: Any
    """What it adds to their times."""


def powered(target: Target, cases: CaseColumns, form: Form, time_s: Any, parts_s: Any) -> Powered:
    """Return what the limit of a board costs cases.

    Scalars were fitted on boards at their documented limit: what it costs there is in them, below their ceilings, and
    only gets its name. A lower limit makes everything that follows the clock slower.

    Args:
        parts_s: parts of each time, rows by the terms of the form.
    """
    none = np.zeros(len(time_s))
    if not has_power(target):
        return Powered(parts_s=parts_s, power_s=none, added_s=none)
    stock, new = _clocks(target, cases, np.maximum(time_s, _LEAST_S))
    clocked_s = parts_s[:, _clocked(form)].sum(1)
    left, taken = parts_s.copy(), none
    for place in _ceilings(form):
        share = np.minimum(np.maximum(parts_s[:, place], 0.0), np.maximum((1 - stock) * clocked_s - taken, 0.0))
        left[:, place], taken = parts_s[:, place] - share, taken + share
    added = clocked_s * (stock / new - 1)
    return Powered(parts_s=left, power_s=taken + added, added_s=added)


def hides_power(target: Target, form: Form, parts_s: Any, most_s: Any) -> Any:
    """Return in which rows what the limit costs may decide which part is the largest.

    Args:
        most_s: the largest part of each row as the form tells them.
    """
    if not has_power(target):
        return np.zeros(len(most_s), dtype=bool)
    if is_lowered(target):
        return np.ones(len(most_s), dtype=bool)
    held_s = [np.maximum(parts_s[:, place], 0.0) for place in _ceilings(form)]
    return sum(held_s) >= most_s if held_s else np.zeros(len(most_s), dtype=bool)


def is_lowered(target: Target) -> bool:
    """Return whether the power limit is below the documented one."""
    return has_power(target) and board_w(target) < board_w(documented_of(target))


def _clocked(form: Form) -> Any:
    return np.array([form.regimes[name] in _CLOCKED for name in form.terms])


def _ceilings(form: Form) -> list[int]:
    """Return the places of the parts by which clocked units stay below their documented rates."""
    clocked = _clocked(form)
    return [place for place, name in enumerate(form.terms) if clocked[place] and name.endswith("_ceiling")]


def _clocks(target: Target, cases: CaseColumns, time_s: Any) -> tuple[Any, Any]:
    """Return the clocks at the documented limit and at that of `target`, as shares of the target's full one."""
    values = _values(power_calibration(stock_of(target).name, cases.dtypes.get("dtype", "bf16")))
    demand, top = demand_w(target, cases, values, time_s), top_ratio(target)
    documented = clock_ratio(demand, board_w(documented_of(target)), top)
    return documented, clock_ratio(demand, board_w(target), top) if is_lowered(target) else documented


def _values(used: Calibration) -> Any:
    return np.array([one.value for one in used.coefficients])
