"""Tree corrections and interval scales for kernel times, and time ranges over quantities that a case does not state."""

from functools import lru_cache
from typing import Any

import numpy as np

from nearpeak.base.identity_key import Same
from nearpeak.core.answers.prediction import Calibration
from nearpeak.core.work.target import Target
from nearpeak.prediction.calibration.interval_scale import POWER
from nearpeak.prediction.kernel_model import CaseColumns, KernelModel, Rows, Setting, row_of
from nearpeak.prediction.residual_correction import correction_inputs_of_case, seen
from nearpeak.prediction.scalar_or_column import chosen, is_number, larger, smaller


def open_value_ratios(
    calibration: Calibration, model: KernelModel, target: Target, cases: CaseColumns, setting: Setting, kernel_s: Any
) -> tuple[Any, Any]:
    """Return the least and largest time ratio over unstated quantities; ones where there are none.

    Args:
        cases: as they were given.
        kernel_s: corrected times with those values as they are expected to be.
    """
    is_open, ways = model.open_values(cases, setting)
    if not ways:
        return 1.0, 1.0
    is_one = is_number(kernel_s)
    low = high = 1.0 if is_one else np.ones(len(kernel_s))
    for extreme, how in ways:
        rows = (row_of if is_one else _rows_of)(model, target, extreme, coefficients_of(calibration), how)
        ratio = rows.time_s * correction_and_scale(calibration, model, target, extreme, how, rows)[0] / kernel_s
        ratio = chosen(bool(np.any(is_open)), ratio, 1.0) if is_one else np.where(is_open, ratio, 1.0)
        low, high = smaller(low, ratio), larger(high, ratio)
    return low, high


def _rows_of(model: KernelModel, target: Target, cases: CaseColumns, coefficients: Any, setting: Setting) -> Rows:
    return model.rows(target, cases, coefficients, setting)


def correction_and_scale(
    calibration: Calibration, model: KernelModel, target: Target, cases: CaseColumns, setting: Setting, rows: Rows
) -> tuple[Any, Any]:
    """Return the bounded correction factor of each time, and the scale of each interval.

    Kernels that follow one another are looked at one by one, and count as much as their time; so is a case that
    another one stands for.
    """
    kernels = model.kernels(cases)
    if kernels[0] is cases or calibration.correction is calibration.scale is None:
        return _trees(calibration, model, target, cases, setting, rows)
    rule = row_of if is_number(rows.time_s) else _rows_of
    alone = [rule(model, target, kernel, coefficients_of(calibration), setting) for kernel in kernels]
    pairs = [
        _trees(calibration, model, target, kernel, setting, its) for kernel, its in zip(kernels, alone, strict=True)
    ]
    whole = sum(its.time_s for its in alone)
    ratio, scale = (
        sum(pair[place] * its.time_s for pair, its in zip(pairs, alone, strict=True)) / whole for place in (0, 1)
    )
    return ratio, scale


def _trees(
    calibration: Calibration, model: KernelModel, target: Target, cases: CaseColumns, setting: Setting, rows: Rows
) -> tuple[Any, Any]:
    """Return the correction and the scale of kernels; ones where the coefficients have none."""
    ensembles, names = (calibration.correction, calibration.scale), _tree_columns(Same(calibration))
    ratio = 1.0 if is_number(rows.time_s) else np.ones(len(rows.time_s))
    if calibration.correction is calibration.scale is None:
        return ratio, ratio
    from nearpeak.prediction import correction_kernel as kernel

    is_known = model.corrected(target, cases)
    if not np.any(is_known):
        return ratio, ratio
    if is_number(rows.time_s):
        walk = kernel.case_walk(Same(calibration), names, POWER)
        correction, scale = walk(correction_inputs_of_case(names, model, target, cases, setting, rows))
        return correction, scale
    values = seen(names, model, target, cases, setting, rows)
    first, second = (
        ratio if trees is None else np.where(is_known, kernel.ratio(trees, names, values, power), ratio)
        for trees, power in zip(ensembles, (1.0, POWER), strict=True)
    )
    return first, second


@lru_cache(maxsize=256)
def _tree_columns(same: "Same[Calibration]") -> tuple[str, ...]:
    """Return the names of what the trees of a calibration look at."""
    trees = [ensemble for ensemble in (same.held.correction, same.held.scale) if ensemble is not None]
    return tuple(sorted({name for ensemble in trees for name in ensemble.columns}))


def coefficients_of(calibration: Calibration) -> Any:
    """Return the coefficients as the array that models read."""
    return _scalars(Same(calibration))


@lru_cache(maxsize=256)
def _scalars(same: "Same[Calibration]") -> Any:
    return np.array([coefficient.value for coefficient in same.held.coefficients])
