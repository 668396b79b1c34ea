"""Clock that a board sustains over a mix of kernels for seconds, and predictions at that clock instead of in bursts."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from nearpeak.base.identity_key import Same
from nearpeak.core.answers.prediction import Calibration, Prediction
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError
from nearpeak.prediction.documented_target import documented_of, stock_of
from nearpeak.prediction.engine.engine_coefficients import is_jetson
from nearpeak.prediction.kernel_model import CaseColumns, case_columns
from nearpeak.prediction.model_choice import model_for
from nearpeak.prediction.models.power import LEAST_CLOCK_RATIO, board_w
from nearpeak.prediction.power.board_power import at_rest_w, clock_in_bursts, sustained_share
from nearpeak.prediction.power.predicted_energy import POWER_TERM, clocked_places, format_of
from nearpeak.prediction.power.product_energy import BYTE_J, UNITS, expected_energy
from nearpeak.prediction.power.unit_activity import Busy
from nearpeak.prediction.power.voltage import drawn_ratio
from nearpeak.prediction.product_units import unit_of

SUSTAINED = "sustained: seconds of work without a pause, at {clock:.0%} of the highest clock"
"""What times of work that goes on hold for."""
_VECTOR = "vector.fp32"
_HALVINGS = 40
"""Halvings of the range of clocks: more than a float tells apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLoad:
    """What the clock of a board depends on while a kernel runs; numbers, or columns of several kernels."""

    clocked_s: Any
    """Part of its predicted time that follows the clock."""
    other_s: Any
    """The rest of its time."""
    clocked_j: Any
    """Energy of its products and vector work at the highest clock; falls with the voltage squared."""
    steady_j: Any
    """Energy of its bytes from memory."""
    clock_ratio: Any
    """Clock in bursts, of the highest."""


_FIELDS = [field.name for field in fields(KernelLoad)]


def sustained_clock(target: Target, loads: Sequence[tuple[KernelLoad, float]]) -> float:
    """Return the highest clock, of the highest of the board, at which a mix stays within its power limit.

    Coefficients are of bursts: tables repeat one kernel for milliseconds on a board that has rested, whose limit acts
    on an average of tens of milliseconds. Where work goes on, the energy of a mix fits what the limit leaves.

    Args:
        target: a board whose power limit is documented.
        loads: kernels with how often each runs.

    Source: energy balance over the mix, dynamic energy by V(f)^2 (prediction.md, power and clock).
    """
    each = np.array([(x.clocked_s, x.other_s, x.clocked_j, x.steady_j, x.clock_ratio) for x, _ in loads]).T
    count = np.array([count for _, count in loads])
    return float(
        _clock(target, KernelLoad(**dict(zip(_FIELDS, each, strict=True))), lambda excess: (count * excess).sum())
    )


def _clock(target: Target, load: KernelLoad, joined: Callable[[Any], Any] = lambda excess: excess) -> Any:
    """Return the clocks at which loads, columns, stay within the limit of a board: each for itself, or `joined`."""
    left_w = board_w(target) - at_rest_w(target)

    def is_within(clock: Any) -> Any:
        capped = np.minimum(load.clock_ratio, clock)
        time_s = load.clocked_s * load.clock_ratio / capped + load.other_s
        return joined(load.clocked_j * drawn_ratio(capped) / capped + load.steady_j - left_w * time_s) <= 0.0

    free = is_within(1.0)
    low: Any = np.full(np.shape(free), LEAST_CLOCK_RATIO)
    high: Any = np.ones(np.shape(free))
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        inside = is_within(middle)
        low, high = np.where(inside, middle, low), np.where(inside, high, middle)
    return np.where(free, 1.0, low)


def load_of(
    target: Target, cases: CaseColumns, times_s: tuple[Any, Any], busy: Busy, used: Calibration
) -> KernelLoad | None:
    """Return the load of predicted cases; none where nothing tells the energy of their products.

    Args:
        times_s: expected times, and how much of each follows the clock.
        busy: how busy they keep units.
        used: coefficients behind the times.
    """
    unit, dtype = _unit_of(target, cases), format_of(cases)
    energy, vector_j = expected_energy(target, unit, dtype), expected_energy(target, _VECTOR, "fp32") or 0.0
    is_told = energy is not None or not np.any(busy.products_s > 0)
    if target.power_w is None or not target.clock_hz or is_jetson(target) or not is_told:
        return None
    product_w = 0.0 if energy is None else energy * target.peaks[unit].flop_per_s
    vector_w = vector_j * target.peaks[_VECTOR].flop_per_s if _VECTOR in target.peaks else 0.0
    stock = stock_of(target)
    bandwidth = stock.dram.bandwidth_bytes_per_s or 0.0
    whole = stock.sm_count / target.sm_count if target.sm_count else 1.0  # busy times are those of the whole device
    time_s, clocked_s = times_s
    clocked_s = np.clip(clocked_s, 0.0, time_s)
    return KernelLoad(
        clocked_s=clocked_s, other_s=time_s - clocked_s,
        clocked_j=whole * (busy.products_s * product_w + busy.vector_s * vector_w),
        steady_j=busy.memory_s * bandwidth * BYTE_J,
        clock_ratio=1.0 if energy is None else _burst_clock(target, unit, energy, used),
    )  # fmt: skip


def load_of_case(target: Target, case: Case, prediction: Prediction) -> KernelLoad | None:
    """Return the load of one predicted case; none where nothing tells its energy."""
    if not prediction.busy or POWER_TERM not in prediction.provenance.part_names:
        return None
    places = [*clocked_places(Same(model_for(case, target)))[0], prediction.provenance.part_names.index(POWER_TERM)]
    times_s = prediction.time_s, sum(prediction.parts_s[place] for place in places)
    return load_of(target, case_columns(case), times_s, Busy(*prediction.busy), prediction.calibration)


def rows_added_s(target: Target, load: KernelLoad) -> Any:
    """Return by how much kernels take longer that each run for seconds, row by row."""
    return added_s(load, _clock(target, load))


def added_s(load: KernelLoad, clock: Any) -> Any:
    """Return by how much a load takes longer at no more than `clock` than in bursts."""
    return load.clocked_s * (np.maximum(load.clock_ratio / clock, 1.0) - 1.0)


def at_clock(prediction: Prediction, load: KernelLoad, clock: float, note: str = "") -> Prediction:
    """Return a prediction whose clocked part runs at no more than `clock`; the cost is its part `power`.

    Args:
        note: what to say after the clock for which it holds.
    """
    more_s = float(added_s(load, clock))
    names, time_s = prediction.provenance.part_names, prediction.time_s + more_s
    parts = list(prediction.parts_s)
    parts[names.index(POWER_TERM)] += more_s
    ratio = time_s / prediction.time_s
    provenance = replace(prediction.provenance, holds_for=SUSTAINED.format(clock=min(clock, load.clock_ratio)) + note)
    return replace(
        prediction, time_s=time_s, low_s=prediction.low_s * ratio, high_s=prediction.high_s * ratio,
        parts_s=tuple(parts), provenance=provenance,
    )  # fmt: skip


def sustained_predictions(target: Target, calls: Iterable[tuple[Case, Prediction, float]]) -> list[Prediction]:
    """Return the predictions of the calls of a step that runs for seconds: all at the clock that their mix sustains.

    Those of boards without a documented limit, and of kernels whose energy nothing tells, stay as they are.

    Args:
        calls: cases, their predictions in bursts, and how often each runs.
    """
    calls = list(calls)
    if target.kind != "gpu" or target.power_w is None:
        return [prediction for _, prediction, _ in calls]
    loads = [load_of_case(target, case, burst) for case, burst, _ in calls]
    known = [(load, count) for load, (_, _, count) in zip(loads, calls, strict=True) if load is not None]
    if not known:
        return [prediction for _, prediction, _ in calls]
    clock, note = sustained_clock(target, known), edit_note(target)
    pairs = zip(calls, loads, strict=True)
    return [burst if load is None else at_clock(burst, load, clock, note) for (_, burst, _), load in pairs]


def edit_note(target: Target) -> str:
    """Return what other multiprocessors do to a board whose power limit stays as it is; empty where none differ.

    It is empty of partitions too.

    >>> from nearpeak.targets import target_of
    >>> edit_note(target_of("l4", ["sm_count=142"]))
    '; its 142 multiprocessors share the 72 W of the 58 of l4, and draw 50 W at rest: --set power.limit to change it'
    """
    documented = documented_of(target)
    if ":" in documented.name and not is_jetson(documented):  # part of a board, whose other parts draw of its limit too
        return ""
    if target.sm_count == documented.sm_count or board_w(target) != documented.power_w:
        return ""
    return (
        f"; its {target.sm_count} multiprocessors share the {board_w(target):g} W of the {documented.sm_count} of "
        f"{documented.name}, and draw {at_rest_w(target):.0f} W at rest: --set power.limit to change it"
    )


def _unit_of(target: Target, cases: CaseColumns) -> str:
    """Return the unit of the products of cases; empty where there is none that is modelled."""
    try:
        unit = unit_of(target, cases.dtypes) if "dtype" in cases.dtypes else ""
    except (NotModelledError, KeyError):
        return ""
    return unit if unit in UNITS else ""


def _burst_clock(target: Target, unit: str, energy: float, calibration: Calibration) -> float:
    """Return the clock of products in bursts: the one at which kernels' reached share of the rate is plausible."""
    known: dict[str, Any] = {coefficient.name: coefficient.value for coefficient in calibration.coefficients}
    if "tensor_ratio" not in known:
        return 1.0
    share = sustained_share((known["tensor_ratio"], known.get("clock_ratio", 0.0)))
    return clock_in_bursts(target, unit, share, energy)
