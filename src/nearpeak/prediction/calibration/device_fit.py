"""Fit of a device's coefficients to its own measurements, with priors from other devices."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearpeak.core.answers.calibration import GroupFit, RejectedRow, Residual, UnidentifiedCoefficient
from nearpeak.core.answers.prediction import Calibration
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.errors import NearpeakError, NotModelledError, SpecError
from nearpeak.prediction.calibration.case_times import columns_by_group, first_columns, times_of
from nearpeak.prediction.calibration.coefficient_file import group_entry
from nearpeak.prediction.calibration.coefficient_store import calibration_for, device_calibrations
from nearpeak.prediction.calibration.fit import END_PLACE, Fit, coefficients_at, coordinates, fit
from nearpeak.prediction.calibration.intervals import interval_ends
from nearpeak.prediction.calibration.sample_screen import check_fit, screened_samples
from nearpeak.prediction.calibration.samples import Samples, best_of, check_device
from nearpeak.prediction.kernel_model import USUAL, KernelModel, Setting, leading
from nearpeak.prediction.model_choice import model_of
from nearpeak.prediction.refinement import coefficients_of

USUAL_SPREAD = 1.0
"""Deviation of a coefficient over devices, in coordinates, without data: 0.7 for streams to 1.2 for products."""
USUAL_COUNT = 2.0
"""Devices that it counts for where some have data: two that happen to be alike do not prove that the next one is."""
NOISE_RATIO = 0.05
"""Deviation of one measurement from a model with right coefficients: repeats of one software differ by 3 to 5 %."""
LEAST_SIGNAL = 2.0
"""Effect of a coefficient on all cases, in deviations of one measurement, below which they do not identify it."""
APART_RATIO = 0.15
"""Unique share of a coefficient's effect below which measurements cannot distinguish it from the others."""
LEAST_OF_REGIME = 3
"""Cases below which a regime keeps its previous interval if that is wider: as many identify a coefficient."""
LEAST_CASES = 8
"""Cases below which nothing is fitted."""
FOLD_COUNT = 5
_STEP = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Fits:
    """Fits of all kinds of cases in a table of measurements."""

    fits: tuple[GroupFit, ...]
    """The fit of each kind of case that could be fitted."""
    refused: Mapping[str, NearpeakError]
    """Errors of the other kinds, by name and number of cases."""
    set_aside: tuple[RejectedRow, ...]
    """Unusable rows of the table, in their order."""
    left_out: tuple[RejectedRow, ...]
    """Usable rows that no fit used: slower repeats, and those of kinds that could not be fitted."""


def calibrate(samples: Samples, target: Target, source: str, setting: Setting = USUAL) -> tuple[GroupFit, ...]:
    """Return a fit for each kind of case among the samples.

    Args:
        source: provenance that the coefficients carry.

    Raises:
        SpecError: too few cases of a kind, or cases that cannot tell the coefficients that matter apart.
        NotModelledError: no model answers for an operator.
    """
    result = calibrate_each(samples, target, source, setting)
    if result.refused:
        raise next(iter(result.refused.values()))
    return result.fits


def calibrate_each(samples: Samples, target: Target, source: str, setting: Setting = USUAL) -> Fits:
    """Return a fit for each kind of case that can be fitted, and why the other kinds cannot.

    Rows that cannot be measurements of the device are set aside, see `nearpeak.prediction.calibration.sample_screen`.

    Raises:
        SpecError: the table says that it is of another device.
    """
    check_device(samples, target)
    left = screened_samples(samples, target, setting)
    kinds: dict[tuple[str, str], list[Case]] = {}
    best, fits, refused = best_of(left.samples), [], dict[str, NearpeakError]()
    why = dict[Case, str]()
    for case in best:
        try:
            model = model_of(case.op, case.phase)
            kinds.setdefault((model.name, model.groups(case.op, dict(case.dtypes))[0]), []).append(case)
        except NotModelledError as error:
            refused[f"{case.op} {case.phase}"] = error
            why[case] = str(error)
    for (name, kind), cases in sorted(kinds.items()):
        label = f"{name}.{kind}, {len(cases)} cases"
        if f"{name}.{kind}" in left.refused:
            refused[label] = left.refused[f"{name}.{kind}"]
        else:
            try:
                model = model_of(cases[0].op, cases[0].phase)
                places = np.array([best[case] for case in cases])
                fits.append(_group_fit(model, kind, left.samples, places, target, source, setting))
            except NearpeakError as error:
                refused[label] = error
        why |= dict.fromkeys(cases, str(refused[label])) if label in refused else {}
    return Fits(
        fits=tuple(fits), refused=refused, set_aside=left.samples.set_aside,
        left_out=tuple(_left_out(left.samples, best, why)),
    )  # fmt: skip


def _left_out(samples: Samples, best: Mapping[Case, int], why: Mapping[Case, str]) -> Iterator[RejectedRow]:
    """Yield the rows that no fit used, though they could be measurements, with the reason."""
    for place, (row, case) in enumerate(zip(samples.rows.tolist(), samples.cases, strict=True)):
        if case in why:
            yield RejectedRow(row=row, column="", text=f"not fitted: {why[case]}")
        elif best[case] != place:
            text = f"a repeat of row {int(samples.rows[best[case]])}, which is no slower"
            yield RejectedRow(row=row, column=samples.time_name, text=text)


def slopes(times: Any, model: KernelModel, values: Any) -> Any:
    """Return the derivative of each time's logarithm by the coordinate of each coefficient: rows by coefficients."""
    point = coordinates(model, values)
    base = np.log(times(coefficients_at(model, point)))
    return (
        np.stack([np.log(times(coefficients_at(model, point + d))) - base for d in np.eye(len(point)) * _STEP], 1)
        / _STEP
    )


def spread_of(model: KernelModel, kind: str, start: Any) -> Any:
    """Return the expected deviation of each coefficient from `start`, in coordinates, from measured devices."""
    known = [
        (coefficients_of(calibration), [c.name for c in calibration.coefficients if not c.identified])
        for calibration in device_calibrations(model, kind)
    ]
    return spread_from(model, known, start)


def spread_from(model: KernelModel, known: Sequence[tuple[Any, Sequence[str]]], start: Any) -> Any:
    """Return the expected deviation of another device's coefficients from `start`: of a next draw from a mean.

    Where the start is an end of the range, as of slow-downs that are none until measured, known ones are not around it:
    their distance from it counts as well.

    Args:
        known: for each device its coefficients, and the names of those that its data do not identify.
    """
    places = [coordinates(model, values) for values, _ in known]
    columns = [
        np.array([place[i] for place, (_, loose) in zip(places, known, strict=True) if coefficient.name not in loose])
        for i, coefficient in enumerate(model.coefficients)
    ]
    return np.array([
        math.hypot(_next_draw(column), column.mean() - place if len(column) and abs(place) >= END_PLACE else 0.0)
        for column, place in zip(columns, coordinates(model, start), strict=True)
    ])  # fmt: skip


def _next_draw(column: Any) -> float:
    """Return the deviation of a next value from the mean of some, whose variance is held near the usual one."""
    count = max(len(column), 1)
    squares = float(((column - column.mean()) ** 2).sum()) if len(column) else 0.0
    variance = (USUAL_COUNT * USUAL_SPREAD**2 + squares) / (USUAL_COUNT + count - 1)
    return math.sqrt(variance * (1 + 1 / count))


def _group_fit(
    model: KernelModel, kind: str, samples: Samples, places: Any, target: Target, source: str, setting: Setting
) -> GroupFit:
    name, measured, cases = f"{model.name}.{kind}", samples.measured_s[places], [samples.cases[i] for i in places]
    if len(cases) < LEAST_CASES:
        raise SpecError(
            f"calibrate: {name}: {len(cases)} distinct cases; at least {LEAST_CASES} are needed "
            "('nearpeak calibrate plan' lists good ones)"
        )
    start = calibration_for(target, model, first_columns(cases[0]))
    values, times = coefficients_of(start), times_of(cases, model, target, setting)
    spread = spread_of(model, kind, values)
    effects = slopes(times, model, values) * spread
    held, fixed = _held(model, effects, name), [model.coefficients[i].name for i in insensitive_places(effects)]
    fitted = fit(model, times, measured, fixed=fixed, start=values, spread=spread)
    unseen = _unseen(model, cases, measured, target, setting, values, spread, fixed)
    fitted_s = times(fitted.values)
    before_ratio, fitted_ratio = (_error(predicted, measured) for predicted in (times(values), fitted_s))
    check_fit(name, before_ratio, fitted_ratio, measured / fitted_s, target)
    ends = _ends(model, cases, measured, unseen, target, setting, fitted, start)
    now = Fit(values=fitted.values, unidentified=tuple(sorted({item.name for item in held})))
    return GroupFit(
        name=name, start=start, held=held, case_count=len(cases),
        values={s.name: float(v) for s, v in zip(model.coefficients, fitted.values, strict=True)},
        before_ratio=before_ratio, fitted_ratio=fitted_ratio,
        unseen_ratio=_error(unseen, measured), bias_ratio=float(np.mean(unseen / measured - 1)),
        entry=group_entry(model, now, ends, len(cases), source),
        residuals=tuple(
            Residual(
                row=int(samples.rows[places[i]]), case=cases[i], measured_s=float(measured[i]),
                predicted_s=float(fitted_s[i]),
            )
            for i in np.argsort(samples.rows[places], kind="stable").tolist()
        ),
    )  # fmt: skip


def unidentified_places(effects: Any) -> list[int]:
    """Return the places of coefficients that the cases do not identify, by greedy pivoting; each takes three cases.

    Args:
        effects: change of the logarithm of each time when each coefficient is off by its expected deviation.
    """
    return sorted(set(range(effects.shape[1])) - set(_apart(effects, len(effects) // 3)))


def _apart(effects: Any, count: int) -> list[int]:
    """Return at most `count` coefficients that cases distinguish, the one with the largest remaining effect first."""
    free: list[int] = []
    rest = effects.copy()
    sizes = np.sqrt((effects**2).mean(axis=0))
    for _ in range(min(count, effects.shape[1])):
        left = np.sqrt((rest**2).mean(axis=0))
        left[free] = -1.0
        pick = int(np.argmax(left))
        if left[pick] < max(least_effect(len(effects)), APART_RATIO * sizes[pick]):
            break
        free.append(pick)
        unit = rest[:, pick] / np.linalg.norm(rest[:, pick])
        rest = rest - unit[:, None] * (unit @ rest)[None, :]
    return free


def insensitive_places(effects: Any) -> list[int]:
    """Return the places of coefficients that hardly affect the cases; fits fix these alone.

    Coefficients that the cases cannot distinguish stay free, as any of them may be wrong on this device; they share
    the deviation by how far each may be off.

    Args:
        effects: change of the logarithm of each time when each coefficient is off by what may be expected.
    """
    sizes = np.sqrt((effects**2).mean(axis=0))
    return [int(i) for i in np.flatnonzero(sizes < least_effect(len(effects)))]


def least_effect(count: int) -> float:
    """Return the least change of predicted times by which `count` cases can identify a coefficient."""
    return LEAST_SIGNAL * NOISE_RATIO / float(np.sqrt(count))


def _held(model: KernelModel, effects: Any, name: str) -> tuple[UnidentifiedCoefficient, ...]:
    """Return the coefficients that the cases do not identify, with the reason."""
    sizes, loose = np.sqrt((effects**2).mean(axis=0)), unidentified_places(effects)
    free = [i for i in range(len(model.coefficients)) if i not in loose]
    held = tuple(
        UnidentifiedCoefficient(
            name=coefficient.name, reason=_reason(i, effects, sizes, free, model), pinned_by=coefficient.pinned_by
        )
        for i, coefficient in enumerate(model.coefficients)
        if i in loose
    )
    apart = {model.coefficients[i].name for i in _apart(effects, len(model.coefficients))}
    alike = [loose_coefficient for loose_coefficient in held if loose_coefficient.name not in apart]
    _refuse_collinear(model, sizes / least_effect(len(effects)), free, alike, name)
    return held


def _reason(position: int, effects: Any, sizes: Any, free: Sequence[int], model: KernelModel) -> str:
    """Return why a coefficient is not identified: no effect on these cases, or the same effect as another one."""
    if sizes[position] < least_effect(len(effects)) or not free:
        return "has no measurable effect on these cases"
    column = effects[:, position]
    alike = [abs(column @ effects[:, i]) / (np.linalg.norm(column) * np.linalg.norm(effects[:, i])) for i in free]
    return f"these cases cannot distinguish it from {model.coefficients[free[int(np.argmax(alike))]].name}"


def _refuse_collinear(
    model: KernelModel, signals: Any, free: Sequence[int], held: Sequence[UnidentifiedCoefficient], name: str
) -> None:
    """Refuse cases that are so alike that they move two coefficients the same way, or one alone.

    Args:
        signals: effect of each coefficient over the least that identifies one.
    """
    leading = {model.coefficients[int(i)].name for i in np.argsort(-signals)[:3] if signals[i] >= 1}
    stuck = [coefficient for coefficient in held if coefficient.name in leading]
    if len(free) < 2 or len(stuck) > 1:
        wanted = "; ".join(dict.fromkeys(coefficient.pinned_by for coefficient in stuck or held[:3]))
        pinned = " and ".join(model.coefficients[i].name for i in free) or "no coefficient"
        raise SpecError(
            f"calibrate: {name}: the cases are too alike, they identify {pinned} alone; add {wanted} "
            "('nearpeak calibrate plan' lists good ones)"
        )


def _unseen(
    model: KernelModel, cases: Sequence[Case], measured: Any, target: Target, setting: Setting, start: Any, spread: Any,
    fixed: Sequence[str],
) -> Any:  # fmt: skip
    """Return the predicted time of each case by coefficients fitted on the other folds."""
    order = sorted(range(len(cases)), key=lambda i: cases[i].digest)
    unseen = np.empty(len(cases))
    for fold in range(FOLD_COUNT):
        out = order[fold::FOLD_COUNT]
        seen = sorted(set(range(len(cases))) - set(out))
        times = times_of([cases[i] for i in seen], model, target, setting)
        values = fit(model, times, measured[seen], fixed=fixed, start=start, spread=spread).values
        unseen[out] = times_of([cases[i] for i in out], model, target, setting)(values)
    return unseen


def _ends(
    model: KernelModel, cases: Sequence[Case], measured: Any, unseen: Any, target: Target, setting: Setting,
    fitted: Fit, start: Calibration,
) -> dict[str, tuple[float, float]]:  # fmt: skip
    """Return the interval of each regime from cases left out of the fit.

    A regime with hardly any case keeps an interval at least as wide as before.
    """
    names, regimes = [model.regimes[term] for term in model.terms], np.empty(len(cases), dtype=object)
    for rows, columns in columns_by_group(cases):
        parts = model.rows(target, columns, fitted.values, setting).parts_s
        regimes[rows] = [names[i] for i in leading(model, parts)]
    ends = interval_ends(measured / unseen, regimes, np.arange(len(cases)), names, unseen)
    for name in (regime for regime in set(names) if (regimes == regime).sum() < LEAST_OF_REGIME):
        ends[name] = (min(ends[name][0], start.low_ratio[name]), max(ends[name][1], start.high_ratio[name]))
    return ends


def _error(predicted: Any, measured: Any) -> float:
    return float(np.mean(np.abs(predicted / measured - 1)))
