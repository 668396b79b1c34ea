"""The prediction of one case: plain numbers through its form, correction, power limit, bound and interval."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from nearpeak.base.identity_key import Same
from nearpeak.bounds.terms.bound_terms import proved_s
from nearpeak.core.answers.bound import Policy
from nearpeak.core.answers.prediction import Calibration, Grounds, Prediction
from nearpeak.core.work.target import Target
from nearpeak.core.work.work import Work
from nearpeak.errors import SpecError
from nearpeak.ops import OPS
from nearpeak.prediction.calibration.intervals import band_of, end_of, stretched
from nearpeak.prediction.documented_target import stock_of
from nearpeak.prediction.kernel_model import CaseColumns, Form, Rows, Setting, leading_of_one, row_of
from nearpeak.prediction.model_choice import form_of
from nearpeak.prediction.models.power import limit_note
from nearpeak.prediction.power.predicted_energy import POWER_TERM, energy_of, format_of, has_power, powered
from nearpeak.prediction.power.unit_activity import busy_of
from nearpeak.prediction.provenance import ANY, BOUND, CLASSICAL, FARTHEST, LIBRARY, beyond, grounds_of_one
from nearpeak.prediction.refinement import reach, refined, scalars_of
from nearpeak.prediction.scalar_or_column import in_floats, larger
from nearpeak.prediction.work_columns import fixed_of, work_of_one


def predicted(given: CaseColumns, target: Target, setting: Setting, file: Path | None = None) -> Prediction:
    """Return the prediction of one case, whose axes are numbers.

    Args:
        file: coefficients of the user's own, instead of those that answer for the target.
    """
    form = form_of(given.op, given.phase, target, given.dtypes, given.attributes)
    cases = form.stated(given, setting)
    calibration = grounds_of_one(target, form, cases, setting, file)
    find = partial(_rows_and_bound, form, target, (given, cases), calibration, setting)
    try:
        with np.errstate(divide="raise", invalid="raise"):
            rows, policy, bound_s = find()
    except FloatingPointError:
        with _quiet_where_refused(cases):
            rows, policy, bound_s = find()
    ratio, scale = refined(calibration, form, target, cases, setting, rows)
    kernel_s = rows.time_s * ratio
    reaches = reach(calibration, form, target, given, setting, kernel_s)
    limited = powered(target, cases, form, kernel_s, rows.parts_s)
    form_s = kernel_s + limited.added_s
    time_s = larger(form_s, bound_s)
    regime = form.regimes[form.terms[leading_of_one(form, rows.parts_s)]]
    logs = _interval_logs(Same(calibration), regime, band_of(form_s), form.kind(cases.attributes))
    calibration, is_beyond = _beyond(calibration, form.beyond(target, cases))
    low, high = (
        in_floats(stretched(log, scale, apart, is_low=is_low) * far)
        for log, apart, far, is_low in zip(logs, calibration.apart_ratio, reaches, (True, False), strict=True)
    )
    notes = (form.open_note if reaches != (1.0, 1.0) else "", form.beyond_note if is_beyond else "", limit_note(target))
    grounds = Grounds(
        calibration=calibration, part_names=_part_names(Same(form)), algorithm=policy.algorithm,
        notes=tuple(note for note in notes if note),
        drawn=partial(energy_of, target, format_of(cases)) if has_power(target) else None,
    )  # fmt: skip
    busy = busy_of(target, stock_of(target), cases, is_one=True) if has_power(target) else ()
    parts_s = _parts(form, limited.parts_s, (rows.time_s * (ratio - 1.0), limited.power_s, time_s - form_s))
    return Prediction(
        time_s=time_s, low_s=larger(bound_s, time_s * low), high_s=time_s * high, bound_s=bound_s,
        regime=regime, parts_s=tuple(parts_s), busy=tuple(busy), grounds=grounds,
    )  # fmt: skip


def _rows_and_bound(
    form: Form, target: Target, both: tuple[CaseColumns, CaseColumns], calibration: Calibration, setting: Setting
) -> tuple[Rows, Policy, Any]:
    """Return the time of a kernel with its parts, which algorithms its bound admits, and the bound.

    Args:
        both: the case as given, and with what it leaves open.
    """
    given, cases = both
    rows = row_of(form, target, cases, scalars_of(calibration), setting)
    admitted = form.admits_any(cases)
    policy = ANY if (admitted if isinstance(admitted, bool) else np.any(admitted)) else CLASSICAL
    return rows, policy, in_floats(proved_s(_least_work(given, cases, policy), target, policy))


def _quiet_where_refused(cases: CaseColumns) -> AbstractContextManager[object]:
    """Return in what forms are asked about a case again: quietly where the rule of work refuses it, and says why.

    Forms divide by extents of 0 before; what they refuse themselves is still said first.
    """
    try:
        work_of_one(Same(cases))
    except SpecError:
        return np.errstate(all="ignore")
    return nullcontext()


@lru_cache(maxsize=64)
def _part_names(form: "Same[Form]") -> tuple[str, ...]:
    return tuple(dict.fromkeys((*form.held.terms, LIBRARY, POWER_TERM, BOUND)))


def _parts(form: Form, parts_s: Any, more: tuple[Any, Any, Any]) -> list[Any]:
    """Return all parts of a time: those of its form, and what correction, power limit and bound add."""
    found = list(parts_s)
    if LIBRARY in form.terms:
        place = form.terms.index(LIBRARY)
        found[place] = found[place] + more[0]
        return [*found, *more[1:]]
    return [*found, *more]


@lru_cache(maxsize=1 << 12)
def _interval_logs(same: "Same[Calibration]", regime: str, band: int, kind: str) -> tuple[float, float]:
    """Return the logarithms of both ends of an interval, see `end_of`."""
    low, high = (
        float(np.log(end_of(ends, regime, band, kind))) for ends in (same.held.low_ratio, same.held.high_ratio)
    )
    return low, high


def _beyond(calibration: Calibration, more: tuple[Any, Any] | None) -> tuple[Calibration, bool]:
    """Return the scalars of one case with what lies between it and those measured, and whether that is anything."""
    (faster, slower), steps = beyond(calibration, more)
    if more is None or not steps[0]:
        return calibration, False
    distance = min(calibration.distance_count + 1, FARTHEST)
    return replace(calibration, apart_ratio=(float(faster[0]), float(slower[0])), distance_count=distance), True


def _least_work(given: CaseColumns, cases: CaseColumns, policy: Policy) -> Work:
    """Return the least work of a case, which is that of its costliest values where it depends on none."""
    operator = OPS[given.op]
    if policy.algorithm == "classical" and not operator.data_axes:
        return work_of_one(Same(cases))
    return operator.work(given.phase, policy.algorithm, {**given.axes, **fixed_of(given)})
