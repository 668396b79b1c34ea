"""Fits a device's scalars to measurements of its own, starting from what other devices let expect."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearpeak.core.answers.calibration import GroupFit, Held, Residual, SetAside
from nearpeak.core.answers.prediction import Calibration
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.errors import NearpeakError, NotModelledError, SpecError
from nearpeak.prediction.calibration.case_times import columns_by_group, first_columns, times_of
from nearpeak.prediction.calibration.coefficient_file import group_entry
from nearpeak.prediction.calibration.coefficient_store import calibration_for, device_calibrations
from nearpeak.prediction.calibration.fit import END_PLACE, Fit, coordinates, fit, scalars_at
from nearpeak.prediction.calibration.intervals import interval_ends
from nearpeak.prediction.calibration.sample_screen import check_fit, screened
from nearpeak.prediction.calibration.samples import Samples, best_of, check_device
from nearpeak.prediction.kernel_model import USUAL, Form, Setting, leading
from nearpeak.prediction.model_choice import form_of
from nearpeak.prediction.refinement import scalars_of

USUAL_SPREAD = 1.0
"""Deviation of a scalar over devices, in coordinates, where none tells: 0.7 for streams to 1.2 for products."""
USUAL_COUNT = 2.0
"""Devices that it counts for where some tell: two that happen to be alike do not prove that the next one is."""
NOISE_RATIO = 0.05
"""Deviation of one measurement from a form with right scalars: repeats of one software differ by 3 to 5 %."""
LEAST_SIGNAL = 2.0
"""Effect of a scalar on all cases together, in deviations of one measurement, below which they say little about it."""
APART_RATIO = 0.15
"""Share of a scalar's effect that no other scalar has, below which measurements cannot tell them apart."""
LEAST_OF_REGIME = 3
"""Cases below which a regime keeps the interval that it had, if that is wider: a scalar is pinned down by as many."""
LEAST_CASES = 8
"""Cases below which nothing is fitted."""
FOLD_COUNT = 5
_STEP = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True)
class Fits:
    """What a table of measurements gave."""

    fits: tuple[GroupFit, ...]
    """The fit of each kind of case that could be fitted."""
    refused: Mapping[str, NearpeakError]
    """Why others could not, by name and number of cases."""
    set_aside: tuple[SetAside, ...]
    """Rows of the table that cannot be used, in their order."""
    left_out: tuple[SetAside, ...]
    """Rows that could, and are not: slower repeats, and those of kinds that could not be fitted."""


def calibrate(samples: Samples, target: Target, source: str, setting: Setting = USUAL) -> tuple[GroupFit, ...]:
    """Return a fit for each kind of case among the samples.

    Args:
        source: provenance that the coefficients carry.

    Raises:
        SpecError: too few cases of a kind, or cases that cannot tell the scalars that matter apart.
        NotModelledError: no form answers for an operator.
    """
    found = calibrate_each(samples, target, source, setting)
    if found.refused:
        raise next(iter(found.refused.values()))
    return found.fits


def calibrate_each(samples: Samples, target: Target, source: str, setting: Setting = USUAL) -> Fits:
    """Return a fit for each kind of case that can be fitted, and why the other kinds cannot.

    Rows that cannot be measurements of the device are set aside, see `nearpeak.prediction.calibration.sample_screen`.

    Raises:
        SpecError: the table says that it is of another device.
    """
    check_device(samples, target)
    left = screened(samples, target, setting)
    kinds: dict[tuple[str, str], list[Case]] = {}
    best, fits, refused = best_of(left.samples), [], dict[str, NearpeakError]()
    why = dict[Case, str]()
    for case in best:
        try:
            form = form_of(case.op, case.phase)
            kinds.setdefault((form.name, form.groups(case.op, dict(case.dtypes))[0]), []).append(case)
        except NotModelledError as error:
            refused[f"{case.op} {case.phase}"] = error
            why[case] = str(error)
    for (name, kind), cases in sorted(kinds.items()):
        label = f"{name}.{kind}, {len(cases)} cases"
        if f"{name}.{kind}" in left.refused:
            refused[label] = left.refused[f"{name}.{kind}"]
        else:
            try:
                form = form_of(cases[0].op, cases[0].phase)
                places = np.array([best[case] for case in cases])
                fits.append(_group_fit(form, kind, left.samples, places, target, source, setting))
            except NearpeakError as error:
                refused[label] = error
        why |= dict.fromkeys(cases, str(refused[label])) if label in refused else {}
    return Fits(
        fits=tuple(fits), refused=refused, set_aside=left.samples.set_aside,
        left_out=tuple(_left_out(left.samples, best, why)),
    )  # fmt: skip


def _left_out(samples: Samples, best: Mapping[Case, int], why: Mapping[Case, str]) -> Iterator[SetAside]:
    """Yield the rows that no fit used, though they could be measurements, with the reason."""
    for place, (row, case) in enumerate(zip(samples.rows.tolist(), samples.cases, strict=True)):
        if case in why:
            yield SetAside(row=row, column="", text=f"not fitted: {why[case]}")
        elif best[case] != place:
            text = f"a repeat of row {int(samples.rows[best[case]])}, which is no slower"
            yield SetAside(row=row, column=samples.time_name, text=text)


def slopes(times: Any, form: Form, values: Any) -> Any:
    """Return by how much the logarithm of each time grows per coordinate of each scalar: rows by scalars."""
    point = coordinates(form, values)
    base = np.log(times(scalars_at(form, point)))
    return np.stack([np.log(times(scalars_at(form, point + d))) - base for d in np.eye(len(point)) * _STEP], 1) / _STEP


def spread_of(form: Form, kind: str, start: Any) -> Any:
    """Return by how much each scalar may be expected to be off `start`, in coordinates: as over measured devices."""
    known = [
        (scalars_of(one), [c.name for c in one.coefficients if not c.identified])
        for one in device_calibrations(form, kind)
    ]
    return spread_from(form, known, start)


def spread_from(form: Form, known: Sequence[tuple[Any, Sequence[str]]], start: Any) -> Any:
    """Return by how much scalars of another device may be off `start`: as a next draw is off the mean of known ones.

    Where the start is an end of the range, as of slow-downs that are none until measured, known ones are not around it:
    their distance from it counts as well.

    Args:
        known: for each device its scalars, and the names of those that its data do not pin down.
    """
    places = [coordinates(form, values) for values, _ in known]
    columns = [
        np.array([place[i] for place, (_, loose) in zip(places, known, strict=True) if scalar.name not in loose])
        for i, scalar in enumerate(form.scalars)
    ]
    return np.array([
        math.hypot(_next_draw(column), column.mean() - place if len(column) and abs(place) >= END_PLACE else 0.0)
        for column, place in zip(columns, coordinates(form, start), strict=True)
    ])  # fmt: skip


def _next_draw(column: Any) -> float:
    """Return the deviation of a next value from the mean of some, whose variance is held near the usual one."""
    count = max(len(column), 1)
    squares = float(((column - column.mean()) ** 2).sum()) if len(column) else 0.0
    variance = (USUAL_COUNT * USUAL_SPREAD**2 + squares) / (USUAL_COUNT + count - 1)
    return math.sqrt(variance * (1 + 1 / count))


def _group_fit(
    form: Form, kind: str, samples: Samples, places: Any, target: Target, source: str, setting: Setting
) -> GroupFit:
    name, measured, cases = f"{form.name}.{kind}", samples.measured_s[places], [samples.cases[i] for i in places]
    if len(cases) < LEAST_CASES:
        raise SpecError(
            f"calibrate: {name}: {len(cases)} distinct cases; at least {LEAST_CASES} are needed "
            "('nearpeak calibrate plan' lists good ones)"
        )
    start = calibration_for(target, form, first_columns(cases[0]))
    values, spread, times = (
        scalars_of(start),
        spread_of(form, kind, scalars_of(start)),
        times_of(cases, form, target, setting),
    )
    effects = slopes(times, form, values) * spread
    held, fixed = _held(form, effects, name), [form.scalars[i].name for i in unmoved(effects)]
    found = fit(form, times, measured, fixed=fixed, start=values, spread=spread)
    unseen = _unseen(form, cases, measured, target, setting, values, spread, fixed)
    before_ratio, fitted_ratio = (_error(times(one), measured) for one in (values, found.values))
    check_fit(name, before_ratio, fitted_ratio, measured / times(found.values), target)
    ends = _ends(form, cases, measured, unseen, target, setting, found, start)
    now = Fit(values=found.values, unidentified=tuple(sorted({one.name for one in held})))
    return GroupFit(
        name=name, start=start, held=held, case_count=len(cases),
        values={s.name: float(v) for s, v in zip(form.scalars, found.values, strict=True)},
        before_ratio=before_ratio, fitted_ratio=fitted_ratio,
        unseen_ratio=_error(unseen, measured), bias_ratio=float(np.mean(unseen / measured - 1)),
        entry=group_entry(form, now, ends, len(cases), source),
        residuals=_residuals(cases, samples.rows[places], measured, times(found.values)),
    )  # fmt: skip


def _residuals(cases: Sequence[Case], rows: Any, measured: Any, fitted: Any) -> tuple[Residual, ...]:
    each = zip(rows.tolist(), cases, measured.tolist(), fitted.tolist(), strict=True)
    return tuple(
        Residual(row=row, case=case, measured_s=measured_s, predicted_s=predicted_s)
        for row, case, measured_s, predicted_s in sorted(each, key=lambda one: one[0])
    )


def held_of(effects: Any) -> list[int]:
    """Return the scalars that cases do not pin down: the others are chosen one by one, by what no chosen one explains.

    A scalar that is pinned down takes three cases.

    Args:
        effects: change of the logarithm of each time when each scalar is off by what may be expected.
    """
    return sorted(set(range(effects.shape[1])) - set(_apart(effects, len(effects) // 3)))


def _apart(effects: Any, count: int) -> list[int]:
    """Return at most `count` scalars that cases tell apart, the one that says most about what is left first."""
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


def unmoved(effects: Any) -> list[int]:
    """Return the scalars that hardly matter to cases; fits fix these alone.

    Of scalars that the cases cannot tell apart none is fixed: one at its start may be what is wrong on this device.
    They share what is seen by how far each may be off.

    Args:
        effects: change of the logarithm of each time when each scalar is off by what may be expected.
    """
    sizes = np.sqrt((effects**2).mean(axis=0))
    return [int(i) for i in np.flatnonzero(sizes < least_effect(len(effects)))]


def least_effect(count: int) -> float:
    """Return the change of predicted times that a scalar must make for `count` cases to say something about it."""
    return LEAST_SIGNAL * NOISE_RATIO / float(np.sqrt(count))


def _held(form: Form, effects: Any, name: str) -> tuple[Held, ...]:
    """Return the scalars that the cases do not pin down, with the reason."""
    sizes, kept = np.sqrt((effects**2).mean(axis=0)), held_of(effects)
    free = [i for i in range(len(form.scalars)) if i not in kept]
    held = tuple(
        Held(name=scalar.name, reason=_reason(i, effects, sizes, free, form), pinned_by=scalar.pinned_by)
        for i, scalar in enumerate(form.scalars)
        if i in kept
    )
    apart = {form.scalars[i].name for i in _apart(effects, len(form.scalars))}
    alike = [one for one in held if one.name not in apart]
    _refuse_collinear(form, sizes / least_effect(len(effects)), free, alike, name)
    return held


def _reason(position: int, effects: Any, sizes: Any, free: Sequence[int], form: Form) -> str:
    """Return why a scalar is not pinned down: it does not matter to these cases, or another one moves them alike."""
    if sizes[position] < least_effect(len(effects)) or not free:
        return "hardly matters to these cases"
    own = effects[:, position]
    alike = [abs(own @ effects[:, i]) / (np.linalg.norm(own) * np.linalg.norm(effects[:, i])) for i in free]
    return f"these cases cannot tell it from {form.scalars[free[int(np.argmax(alike))]].name}"


def _refuse_collinear(form: Form, signals: Any, free: Sequence[int], held: Sequence[Held], name: str) -> None:
    """Refuse cases that are so alike that they move two scalars the same way, or one alone.

    Args:
        signals: effect of each scalar over the least that says something.
    """
    leading = {form.scalars[int(i)].name for i in np.argsort(-signals)[:3] if signals[i] >= 1}
    stuck = [one for one in held if one.name in leading]
    if len(free) < 2 or len(stuck) > 1:
        wanted = "; ".join(dict.fromkeys(one.pinned_by for one in stuck or held[:3]))
        pinned = " and ".join(form.scalars[i].name for i in free) or "no scalar"
        raise SpecError(
            f"calibrate: {name}: the cases are too alike, they pin down {pinned} alone; add {wanted} "
            "('nearpeak calibrate plan' lists good ones)"
        )


def _unseen(
    form: Form, cases: Sequence[Case], measured: Any, target: Target, setting: Setting, start: Any, spread: Any,
    fixed: Sequence[str],
) -> Any:  # fmt: skip
    """Return the predicted time of each case by scalars fitted on the other folds."""
    order = sorted(range(len(cases)), key=lambda i: cases[i].digest)
    unseen = np.empty(len(cases))
    for fold in range(FOLD_COUNT):
        out = order[fold::FOLD_COUNT]
        seen = sorted(set(range(len(cases))) - set(out))
        times = times_of([cases[i] for i in seen], form, target, setting)
        values = fit(form, times, measured[seen], fixed=fixed, start=start, spread=spread).values
        unseen[out] = times_of([cases[i] for i in out], form, target, setting)(values)
    return unseen


def _ends(
    form: Form, cases: Sequence[Case], measured: Any, unseen: Any, target: Target, setting: Setting, found: Fit,
    start: Calibration,
) -> dict[str, tuple[float, float]]:  # fmt: skip
    """Return the interval of each regime from cases left out of the fit.

    That of a regime which hardly any case was in is at least as wide as before: those of others show nothing of it.
    """
    names, regimes = [form.regimes[term] for term in form.terms], np.empty(len(cases), dtype=object)
    for rows, columns in columns_by_group(cases):
        parts = form.rows(target, columns, found.values, setting).parts_s
        regimes[rows] = [names[i] for i in leading(form, parts)]
    ends = interval_ends(measured / unseen, regimes, np.arange(len(cases)), names, unseen)
    for name in (one for one in set(names) if (regimes == one).sum() < LEAST_OF_REGIME):
        ends[name] = (min(ends[name][0], start.low_ratio[name]), max(ends[name][1], start.high_ratio[name]))
    return ends


def _error(predicted: Any, measured: Any) -> float:
    return float(np.mean(np.abs(predicted / measured - 1)))
