"""What stands on the scalars of a form: the bounded correction, scales of intervals, values that cases leave open."""

from functools import lru_cache
from typing import Any

import numpy as np

from nearpeak.base.identity_key import Same
from nearpeak.core.answers.prediction import Calibration
from nearpeak.core.work.target import Target
from nearpeak.prediction.calibration.interval_scale import POWER
from nearpeak.prediction.kernel_model import CaseColumns, Form, Rows, Setting, row_of
from nearpeak.prediction.residual_correction import seen, seen_of_one
from nearpeak.prediction.scalar_or_column import chosen, is_number, larger, smaller


def reach(
    calibration: Calibration, form: Form, target: Target, cases: CaseColumns, setting: Setting, kernel_s: Any
) -> tuple[Any, Any]:
    """Return how far values that cases leave open may take their times down and up; ones where they leave none.

    Args:
        cases: as they were given.
        kernel_s: corrected times with those values as they are expected to be.
    """
    is_open, ways = form.left_open(cases, setting)
    if not ways:
        return 1.0, 1.0
    is_one = is_number(kernel_s)
    low = high = 1.0 if is_one else np.ones(len(kernel_s))
    for one, how in ways:
        rows = (row_of if is_one else _rows_of)(form, target, one, scalars_of(calibration), how)
        ratio = rows.time_s * refined(calibration, form, target, one, how, rows)[0] / kernel_s
        ratio = chosen(bool(np.any(is_open)), ratio, 1.0) if is_one else np.where(is_open, ratio, 1.0)
        low, high = smaller(low, ratio), larger(high, ratio)
    return low, high


def _rows_of(form: Form, target: Target, cases: CaseColumns, scalars: Any, setting: Setting) -> Rows:
    return form.rows(target, cases, scalars, setting)


def refined(
    calibration: Calibration, form: Form, target: Target, cases: CaseColumns, setting: Setting, rows: Rows
) -> tuple[Any, Any]:
    """Return what the bounded correction multiplies each time by, and the scale of each interval.

    Kernels that follow one another are looked at one by one, and count as much as their time; so is a case that
    another one stands for.
    """
    kernels = form.kernels(cases)
    if kernels[0] is cases or calibration.correction is calibration.scale is None:
        return _trees(calibration, form, target, cases, setting, rows)
    given = row_of if is_number(rows.time_s) else _rows_of
    alone = [given(form, target, one, scalars_of(calibration), setting) for one in kernels]
    pairs = [_trees(calibration, form, target, one, setting, its) for one, its in zip(kernels, alone, strict=True)]
    whole = sum(its.time_s for its in alone)
    ratio, scale = (
        sum(pair[place] * its.time_s for pair, its in zip(pairs, alone, strict=True)) / whole for place in (0, 1)
    )
    return ratio, scale


def _trees(
    calibration: Calibration, form: Form, target: Target, cases: CaseColumns, setting: Setting, rows: Rows
) -> tuple[Any, Any]:
    """Return the correction and the scale of kernels; ones where the scalars have none."""
    found, names = (calibration.correction, calibration.scale), _looked_at(Same(calibration))
    ratio = 1.0 if is_number(rows.time_s) else np.ones(len(rows.time_s))
    if calibration.correction is calibration.scale is None:
        return ratio, ratio
    from nearpeak.prediction import correction_kernel as kernel

    if is_number(rows.time_s):
        walk = kernel.walk_of_one(Same(calibration), names, POWER)
        correction, scale = walk(seen_of_one(names, form, target, cases, setting, rows))
        return correction, scale
    values = seen(names, form, target, cases, setting, rows)
    first, second = (
        ratio if trees is None else kernel.ratio(trees, names, values, power)
        for trees, power in zip(found, (1.0, POWER), strict=True)
    )
    return first, second


@lru_cache(maxsize=256)
def _looked_at(same: "Same[Calibration]") -> tuple[str, ...]:
    """Return the names of what the trees of a calibration look at."""
    trees = [one for one in (same.held.correction, same.held.scale) if one is not None]
    return tuple(sorted({name for one in trees for name in one.columns}))


def scalars_of(calibration: Calibration) -> Any:
    """Return the scalars as the array that forms read."""
    return _scalars(Same(calibration))


@lru_cache(maxsize=256)
def _scalars(same: "Same[Calibration]") -> Any:
    return np.array([one.value for one in same.held.coefficients])
