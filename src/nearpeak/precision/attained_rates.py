"""Calibration from a trace: the attained share of the documented rates, by operator kind."""

from statistics import median
from typing import NamedTuple

from nearpeak.bounds.terms.memory_traffic import bandwidth_of
from nearpeak.core.answers.mixed_precision import Efficiency
from nearpeak.core.traces.executed_run import Executed, ExecutedOperator
from nearpeak.core.work.target import Target
from nearpeak.ops import work_of
from nearpeak.precision.executed_formats import is_product
from nearpeak.precision.expected_times import unit_of

LEAST_OPERATORS = 3
"""Operators of a kind that a figure needs."""
_LEAST_S = 10e-6
"""Calls shorter than this are fixed costs more than rates."""


class _Reached(NamedTuple):
    """Attained share of the bound of one operator."""

    ratio: float
    by_flop: bool


def efficiency_of(executed: Executed, target: Target) -> Efficiency:
    """Return the medians over the operators of a trace that rates or memory limit; 1 where there are too few."""
    reached = [
        operator_ratio
        for operator in executed.operators
        if (operator_ratio := _reached(executed, operator, target)) is not None
    ]
    flop, memory = (
        [operator_ratio.ratio for operator_ratio in reached if operator_ratio.by_flop is kind] for kind in (True, False)
    )
    return Efficiency(
        flop_ratio=_median(flop), bandwidth_ratio=_median(memory), source=executed.name, flop_count=len(flop),
        bandwidth_count=len(memory),
    )  # fmt: skip


def _median(ratios: list[float]) -> float:
    return min(1.0, median(ratios)) if len(ratios) >= LEAST_OPERATORS else 1.0


def _reached(executed: Executed, operator: ExecutedOperator, target: Target) -> _Reached | None:
    if not operator.cases or operator.measured_s < _LEAST_S:
        return None
    if any(case.op == "transfer" for case in operator.cases):
        return None  # the link limits it, not the memory
    works = [work_of(case) for case in operator.cases]
    memory_s = sum(work.read_bytes + work.write_bytes for work in works) / bandwidth_of(target)
    flop = sum(count for work in works for unit, count in work.flop.items() if unit.startswith("matrix."))
    if not is_product(operator) or not flop or not operator.dtypes:
        return _Reached(memory_s / operator.measured_s, False) if not is_product(operator) else None
    known = {use.name: use.unit for use in executed.kernels}
    units = {known[name] for name in operator.kernels if known.get(name)}
    if len(units) != 1:
        return None  # names tell no unit, or several
    unit = units.pop()
    rate = target.flop_per_s(
        f"vector.{operator.dtypes[0]}" if unit == "vector" else unit_of(target, operator.dtypes[0], tf32=unit == "tf32")
    )
    return _Reached(max(flop / rate, memory_s) / operator.measured_s, flop / rate > memory_s)
