"""Prediction of one case in plain numbers: model, correction, power limit, bound and interval."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from nearpeak.base.identity_key import Same
from nearpeak.bounds.terms.bound_terms import proved_s
from nearpeak.core.answers.bound import Policy
from nearpeak.core.answers.prediction import Calibration, Prediction, Provenance
from nearpeak.core.work.target import Target
from nearpeak.errors import SpecError
from nearpeak.ops import OPS
from nearpeak.prediction.calibration.intervals import band_of, end_of, stretched
from nearpeak.prediction.documented_target import stock_of
from nearpeak.prediction.kernel_model import CaseColumns, KernelModel, Rows, Setting, leading_part_of_case, row_of
from nearpeak.prediction.model_choice import model_of
from nearpeak.prediction.models.power import limit_note
from nearpeak.prediction.power.predicted_energy import POWER_TERM, energy_of, format_of, has_power, power_limit_cost
from nearpeak.prediction.power.unit_activity import busy_times
from nearpeak.prediction.provenance import ANY, BOUND, CLASSICAL, FARTHEST, LIBRARY, beyond, case_calibration
from nearpeak.prediction.refinement import coefficients_of, correction_and_scale, open_value_ratios
from nearpeak.prediction.scalar_or_column import in_floats, larger
from nearpeak.prediction.software_ratio import ratio_of_cases
from nearpeak.prediction.work_columns import case_work, fixed_of


def predicted(stated: CaseColumns, target: Target, setting: Setting, file: Path | None = None) -> Prediction:
    """Return the prediction of one case, whose axes are numbers.

    Args:
        file: coefficients of the user's own, instead of those that answer for the target.
    """
    model = model_of(stated.op, stated.phase, target, stated.dtypes, stated.attributes)
    cases = model.completed(stated, setting)
    calibration = case_calibration(target, model, cases, setting, file)
    find = partial(_rows_and_bound, model, target, (stated, cases), calibration, setting)
    try:
        with np.errstate(divide="raise", invalid="raise"):
            rows, policy, bound_s = find()
    except FloatingPointError:
        with _quiet_where_refused(cases):
            rows, policy, bound_s = find()
    ratio, scale = correction_and_scale(calibration, model, target, cases, setting, rows)
    kernel_s = rows.time_s * ratio
    reaches = open_value_ratios(calibration, model, target, stated, setting, kernel_s)
    regime = model.regimes[model.terms[leading_part_of_case(model, rows.parts_s)]]
    software = ratio_of_cases(model, target, cases, setting, decodes=regime.startswith("decode"))
    if software is not None:
        ratio, scale = ratio * float(software.of(kernel_s)), 1.0
        kernel_s = rows.time_s * ratio
    limited = power_limit_cost(target, cases, model, kernel_s, rows.parts_s)
    model_s = kernel_s + limited.added_s
    time_s = larger(model_s, bound_s)
    if software is None:
        logs = _interval_logs(Same(calibration), regime, band_of(model_s), model.kind(cases.attributes))
    else:
        logs = float(np.log(software.low_ratio)), float(np.log(software.high_ratio))
    calibration, is_beyond = _beyond(calibration, model.extrapolation(target, cases))
    low, high = (
        in_floats(stretched(log, scale, apart, is_low=is_low) * far)
        for log, apart, far, is_low in zip(logs, calibration.apart_ratio, reaches, (True, False), strict=True)
    )
    notes = (
        model.open_note if reaches != (1.0, 1.0) else "",
        model.extrapolation_note if is_beyond else "",
        limit_note(target),
        "" if software is None else software.note,
    )
    provenance = Provenance(
        calibration=calibration, part_names=_part_names(Same(model)), algorithm=policy.algorithm,
        notes=tuple(note for note in notes if note),
        drawn=partial(energy_of, target, format_of(cases)) if has_power(target) else None,
    )  # fmt: skip
    busy = busy_times(target, stock_of(target), cases, is_one=True) if has_power(target) else ()
    parts_s = _parts(model, limited.parts_s, (rows.time_s * (ratio - 1.0), limited.power_s, time_s - model_s))
    return Prediction(
        time_s=time_s, low_s=larger(bound_s, time_s * low), high_s=time_s * high, bound_s=bound_s,
        regime=regime, parts_s=tuple(parts_s), busy=tuple(busy), provenance=provenance,
    )  # fmt: skip


def _rows_and_bound(
    model: KernelModel,
    target: Target,
    both: tuple[CaseColumns, CaseColumns],
    calibration: Calibration,
    setting: Setting,
) -> tuple[Rows, Policy, Any]:
    """Return the time of a kernel with its parts, which algorithms its bound admits, and the bound.

    Args:
        both: the case as given, and with what it leaves open.
    """
    stated, cases = both
    rows = row_of(model, target, cases, coefficients_of(calibration), setting)
    admitted = model.admits_any(cases)
    policy = ANY if (admitted if isinstance(admitted, bool) else np.any(admitted)) else CLASSICAL
    operator = OPS[stated.op]
    if policy.algorithm == "classical" and not operator.data_axes:
        work = case_work(Same(cases))
    else:  # of the costliest values, where it depends on none
        work = operator.work(stated.phase, policy.algorithm, {**stated.axes, **fixed_of(stated)})
    return rows, policy, in_floats(proved_s(work, target, policy))


def _quiet_where_refused(cases: CaseColumns) -> AbstractContextManager[object]:
    """Return the context of a second attempt: without warnings where the rule of work refuses the case by itself.

    Models divide by extents of 0 before that rule runs; their own refusals still come first.
    """
    try:
        case_work(Same(cases))
    except SpecError:
        return np.errstate(all="ignore")
    return nullcontext()


@lru_cache(maxsize=64)
def _part_names(model: "Same[KernelModel]") -> tuple[str, ...]:
    return tuple(dict.fromkeys((*model.held.terms, LIBRARY, POWER_TERM, BOUND)))


def _parts(model: KernelModel, parts_s: Any, more: tuple[Any, Any, Any]) -> list[Any]:
    """Return all parts of a time: those of its model, and what correction, power limit and bound add."""
    parts = list(parts_s)
    if LIBRARY in model.terms:
        place = model.terms.index(LIBRARY)
        parts[place] = parts[place] + more[0]
        return [*parts, *more[1:]]
    return [*parts, *more]


@lru_cache(maxsize=1 << 12)
def _interval_logs(same: "Same[Calibration]", regime: str, band: int, kind: str) -> tuple[float, float]:
    """Return the logarithms of both ends of an interval, see `end_of`."""
    low, high = (
        float(np.log(end_of(ends, regime, band, kind))) for ends in (same.held.low_ratio, same.held.high_ratio)
    )
    return low, high


def _beyond(calibration: Calibration, more: tuple[Any, Any] | None) -> tuple[Calibration, bool]:
    """Return the coefficients of one case with its extrapolation spread, and whether it is extrapolated."""
    (faster, slower), steps = beyond(calibration, more)
    if more is None or not steps[0]:
        return calibration, False
    distance = min(calibration.distance_count + 1, FARTHEST)
    return replace(calibration, apart_ratio=(float(faster[0]), float(slower[0])), distance_count=distance), True
