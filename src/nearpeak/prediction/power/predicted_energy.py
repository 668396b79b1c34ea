"""Energy of predicted cases: power by component times predicted time, and slow-down by power limits."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from nearpeak.base.identity_key import Same
from nearpeak.core.answers.expected_energy import PARTS, ExpectedEnergy
from nearpeak.core.answers.prediction import Calibration
from nearpeak.core.work.target import Target
from nearpeak.prediction.documented_target import differing, documented_of, stock_of
from nearpeak.prediction.kernel_model import CaseColumns, KernelModel
from nearpeak.prediction.models.power import (  # fmt: skip
    board_w,
    clock_ratio,
    demand_of,
    demand_w,
    limited_w,
    meter_calibration,
    power_calibration,
    top_ratio,
)
from nearpeak.prediction.power.unit_activity import Busy, busy_times
from nearpeak.prediction.scalar_or_column import is_number, larger, smaller

POWER_TERM = "power"
"""Part of a predicted time due to clocks below the full one."""
_CLOCKED = ("tensor", "products", "rows", "padding", "l2")
"""Regimes of parts that follow the clock of multiprocessors."""
METER_RATIO = 1.02
"""Most that an average reads above a board's limit: 1,018 W of the B200's 1,000 W in 57,621 readings of aic_gemm."""
_LEAST_S, _LEAST_J = 1e-15, float(np.finfo(np.float64).tiny)
"""Substitutes of zero time and energy in divisions."""


def has_power(target: Target) -> bool:
    """Return whether power can be predicted: documents state the limit of the board and of the whole device."""
    return target.kind == "gpu" and target.power_w is not None and stock_of(target).power_w is not None


def energy_columns(target: Target, cases: CaseColumns, time_s: Any) -> tuple[Any, Calibration]:
    """Return the energy of cases by part, rows by parts, and the coefficients behind it."""
    busy = busy_times(target, stock_of(target), cases, is_one=False)
    parts, used = _energy_parts(target, format_of(cases), busy, np.asarray(time_s))
    return np.stack(np.broadcast_arrays(*parts), 1), used


def format_of(cases: CaseColumns) -> str:
    """Return the format whose power coefficients answer for cases."""
    return cases.dtypes.get("dtype", "bf16")


def _energy_parts(target: Target, dtype: str, busy: Busy, time_s: Any) -> tuple[list[Any], Calibration]:
    """Return the energy by part, each a column, or a number for one case, and the coefficients behind it."""
    used, values = _power_scalars(_measured_name(target), dtype)
    used = meter_calibration(target, used)
    watts = limited_w(demand_of(target, busy, values, time_s), board_w(target))
    return [part_w * time_s for part_w in watts], used


def energy_ends(
    parts_j: Any, time_ratio: tuple[Any, Any], used: Calibration, limit_w: float, time_s: Any
) -> tuple[Any, Any]:
    """Return the ends of the 90 % intervals of energies.

    Time and power err independently; a kernel that takes longer draws its idle and busy power for longer, and does the
    same work. At neither end of both, time and energy, does a board draw more than its limit on average.

    Args:
        parts_j: energy of rows by parts, or of one case.
        time_ratio: both ends of the interval of the time over the time.
        limit_w: power limit of the board.
        time_s: expected times.
    """
    parts_j = parts_j.T if isinstance(parts_j, np.ndarray) else parts_j
    energy = sum(parts_j)
    waiting = (parts_j[0] + parts_j[1]) / larger(energy, _LEAST_J)
    low, high = (
        np.hypot(np.log(ends["power"]), waiting * np.log(ratio))
        for ends, ratio in zip((used.low_ratio, used.high_ratio), time_ratio, strict=True)
    )
    least, most = (METER_RATIO * limit_w * time_s * ratio for ratio in time_ratio)
    return smaller(energy * np.exp(-low), least), smaller(energy * np.exp(high), most)


def energy_of(
    target: Target, dtype: str, busy: tuple[float, ...], times_s: tuple[float, float, float]
) -> ExpectedEnergy:
    """Return the energy of one case.

    Args:
        dtype: its format, see `format_of`.
        busy: how busy it keeps units of the whole device, the figures of `Busy`.
        times_s: expected time and the ends of its interval.
    """
    time_s, low_s, high_s = times_s
    parts, used = _energy_parts(target, dtype, Busy(*busy), time_s)
    low, high = energy_ends(parts, (low_s / time_s, high_s / time_s), used, board_w(target), time_s)
    energy = float(sum(parts))
    return ExpectedEnergy(
        energy_j=energy, low_j=float(low), high_j=float(high), power_w=energy / time_s,
        parts_j=dict(zip(PARTS, map(float, parts), strict=True)),
        source=f"{used.name}, {used.row_count} measurements: {used.source}", distance_count=used.distance_count,
    )  # fmt: skip


def energy_sum(each: Sequence[tuple[ExpectedEnergy, int]], time_s: float) -> ExpectedEnergy | None:
    """Return the energy of calls in sequence; none without calls.

    Args:
        each: the energy of a call, and how often it runs.
        time_s: time of all of them.
    """
    if not each:
        return None
    parts = {name: sum(item.parts_j[name] * count for item, count in each) for name in PARTS}
    farthest = max((item for item, _ in each), key=lambda item: item.distance_count)
    energy = sum(parts.values())
    return ExpectedEnergy(
        energy_j=energy, low_j=sum(item.low_j * count for item, count in each),
        high_j=sum(item.high_j * count for item, count in each), power_w=energy / time_s, parts_j=parts,
        source=farthest.source, distance_count=farthest.distance_count,
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerLimitCost:
    """Cost of a board's power limit for cases, row by row; numbers for one case."""

    parts_s: Sequence[Any]
    """Parts of their times, without the limit's known cost below ceilings."""
    power_s: Any
    """Cost of the limit, as a separate part."""
    added_s: Any
    """Additional time."""


def power_limit_cost(
    target: Target, cases: CaseColumns, model: KernelModel, time_s: Any, parts_s: Sequence[Any]
) -> PowerLimitCost:
    """Return the cost of a board's power limit for cases.

    Coefficients were fitted on boards at their documented limit, whose cost they include below their ceilings: it is
    only attributed. A lower limit slows everything that follows the clock.

    Args:
        time_s: times of the rows, or of one case.
        parts_s: parts of each time by the terms of the model, each a column, or a number for one case.
    """
    none = 0.0 if is_number(time_s) else np.zeros(len(time_s))
    if not has_power(target):
        return PowerLimitCost(parts_s=parts_s, power_s=none, added_s=none)
    _, values = _power_scalars(_measured_name(target), format_of(cases))
    demand, top = demand_w(target, cases, values, larger(time_s, _LEAST_S)), top_ratio(target)
    stock = clock_ratio(demand, board_w(documented_of(target)), top)  # at the documented limit, of the full clock
    clocked, ceilings = clocked_places(Same(model))
    clocked_s = sum([parts_s[place] for place in clocked])
    left, taken = list(parts_s), none
    for place in ceilings:
        share = smaller(larger(parts_s[place], 0.0), larger((1 - stock) * clocked_s - taken, 0.0))
        left[place], taken = parts_s[place] - share, taken + share
    added = clocked_s * (stock / clock_ratio(demand, board_w(target), top) - 1) if is_lowered(target) else none
    return PowerLimitCost(parts_s=left, power_s=taken + added, added_s=added)


def may_hide_power_limit(target: Target, model: KernelModel, parts_s: Any, most_s: Any) -> Any:
    """Return in which rows what the limit costs may decide which part is the largest.

    Args:
        most_s: the largest part of each row as the model tells them.
    """
    if not has_power(target):
        return np.zeros(len(most_s), dtype=bool)
    if is_lowered(target):
        return np.ones(len(most_s), dtype=bool)
    held_s = [np.maximum(parts_s[:, place], 0.0) for place in clocked_places(Same(model))[1]]
    return sum(held_s) >= most_s if held_s else np.zeros(len(most_s), dtype=bool)


def is_lowered(target: Target) -> bool:
    """Return whether the power limit is below the documented one."""
    return has_power(target) and board_w(target) < board_w(documented_of(target))


@lru_cache(maxsize=64)
def clocked_places(model: "Same[KernelModel]") -> tuple[list[int], list[int]]:
    """Return the places of parts that follow the clock, and of those by which such units stay below their rates."""
    names = enumerate(model.held.terms)
    clocked = [place for place, name in names if model.held.regimes[name] in _CLOCKED]
    return clocked, [place for place in clocked if model.held.terms[place].endswith("_ceiling")]


def _measured_name(target: Target) -> str:
    """Return the whole device whose power coefficients apply to a target; none where only its name is a device's."""
    stock = stock_of(target)
    return "" if differing(stock) else stock.name


@lru_cache(maxsize=256)
def _power_scalars(device: str, dtype: str) -> tuple[Calibration, tuple[float, ...]]:
    """Return the coefficients of a device's power in one format, and their values."""
    used = power_calibration(device, dtype)
    return used, tuple(float(coefficient.value) for coefficient in used.coefficients)
