"""What stands on top of fitted scalars: corrections, scales of intervals, and the intervals themselves."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.accuracy.family import Block, Family, folds
from nearpeak.core.answers.prediction import Correction
from nearpeak.prediction.calibration.coefficient_file import Refinement
from nearpeak.prediction.calibration.interval_scale import LEAST_COUNT, LEAST_SITES, fit_scale
from nearpeak.prediction.calibration.intervals import interval_ends
from nearpeak.prediction.case_prediction import group_columns
from nearpeak.prediction.kernel_model import CaseColumns, Rows, Setting, leading
from nearpeak.prediction.residual_correction import columns_of, correction_ratio, fit_correction
from nearpeak.targets import target_of

FITTED, INTERVAL = (0, 1), (2,)
"""Folds that scalars and corrections are fitted on; folds that intervals are set on."""
CORRECTED_ROWS = 100
"""Rows that a correction needs: fewer would not show that it holds on sites they do not have."""
WORTHWHILE = 0.97
"""Share of the error that a correction may leave on sites that it was not fitted on; else there is none."""


def refined(family: Family, group: Sequence[Block], values: Any) -> Refinement:
    """Return the correction of a group, its scale, and the interval with both; none of what does not help."""
    return with_interval(family, group, values, _correction(family, group, values))


def with_interval(family: Family, group: Sequence[Block], values: Any, correction: Correction | None) -> Refinement:
    """Return a correction with the interval on the folds that set it, and the scale if enough rows show one."""
    seen = [_seen(family, block, values, correction, INTERVAL) for block in group]
    rest, regimes, sites = (np.concatenate([one[place] for one in seen]) for place in (1, 2, 3))
    if len(rest) < LEAST_COUNT or len(np.unique(sites)) < LEAST_SITES:
        ends = interval(family, [(block, values) for block in group], correction)
        return Refinement(correction=correction, scale=None, ends=ends)
    fitted = [_seen(family, block, values, correction, FITTED) for block in group]
    every = _joined([columns for columns, *_ in (*seen, *fitted)])
    here, there = slice(None, len(rest)), slice(len(rest), None)
    columns, more = ({name: column[rows] for name, column in every.items()} for rows in (here, there))
    scale, each = fit_scale(columns, rest, sites, (more, np.concatenate([one[1] for one in fitted])))
    ends = interval_ends(np.exp(rest / each), regimes, sites, family.model.regimes.values())
    return Refinement(correction=correction, scale=scale, ends=ends)


def interval(
    family: Family, pairs: Sequence[tuple[Block, Any]], correction: Correction | None = None
) -> dict[str, tuple[float, float]]:
    """Return the 5th and 95th percentile of measured over predicted by regime, on rows that no fit has seen."""
    model, ratios, regimes, sites, times, kinds = family.model, [], [], [], [], []
    for block, values in pairs:
        rows, found = _late(family, block, values, correction, INTERVAL)
        ratios.append(block.measured_s[rows] / found.time_s)
        regimes.append(_regimes(family, found))
        sites.append(block.sites[rows])
        times.append(found.time_s)
        kinds.append(np.full(len(rows), model.kind(block.attributes), dtype=object))
    joined = [np.concatenate(each) for each in (ratios, regimes, sites, times, kinds)]
    return interval_ends(*joined[:3], model.regimes.values(), *joined[3:])


def _late(
    family: Family, block: Block, values: Any, correction: Correction | None, chosen: Sequence[int]
) -> tuple[Any, Rows]:
    """Return the rows of some folds of a block and their times; not those that its source rounds away."""
    rows = np.flatnonzero(np.isin(folds(block), chosen))
    found = corrected_rows(family, block, rows, values, correction)
    whole = found.time_s >= block.least_s
    return rows[whole], Rows(time_s=found.time_s[whole], parts_s=found.parts_s[whole])


def _regimes(family: Family, found: Rows) -> Any:
    names = np.array([family.model.regimes[name] for name in family.model.terms], dtype=object)
    return names[leading(family.model, found.parts_s)]


def _seen(
    family: Family, block: Block, values: Any, correction: Correction | None, chosen: Sequence[int]
) -> tuple[dict[str, Any], Any, Any, Any]:
    """Return what a scale may look at, the logarithm of measured over predicted time, regimes and sites."""
    rows, corrected = _late(family, block, values, correction, chosen)
    cases, setting, found = _predicted(family, block, rows, values)
    columns = columns_of(family.model, target_of(block.device), cases, setting, found)
    known = {name: np.broadcast_to(column, rows.shape) for name, column in columns.items()}
    rest = np.log(block.measured_s[rows] / corrected.time_s)
    return known, rest, _regimes(family, found), block.sites[rows]


def _correction(family: Family, group: Sequence[Block], values: Any) -> Correction | None:
    """Return the trees that fit what the scalars leave on the fitted folds; none where they do not help on others.

    The folds that set the interval tell: there they must take a part of the error.
    """
    seen = [_errors(family, block, FITTED, values) for block in group]
    rest = np.concatenate([one for _, one in seen])
    if len(rest) < CORRECTED_ROWS:
        return None
    found = fit_correction(_joined([columns for columns, _ in seen]), rest, family.tree_count)
    plain, left = np.empty(0), np.empty(0)
    for block in group:
        rows = np.flatnonzero(np.isin(folds(block), INTERVAL))
        for corrected in (False, True):
            times = corrected_rows(family, block, rows, values, found if corrected else None).time_s
            errors = np.abs(times / block.measured_s[rows] - 1)
            plain, left = (plain, np.append(left, errors)) if corrected else (np.append(plain, errors), left)
    return found if left.mean() < WORTHWHILE * plain.mean() else None


def _errors(family: Family, block: Block, chosen: Sequence[int], values: Any) -> tuple[dict[str, Any], Any]:
    """Return what a correction may look at, and the logarithm of measured over predicted time, of some folds."""
    rows = np.flatnonzero(np.isin(folds(block), chosen))
    cases, setting, found = _predicted(family, block, rows, values)
    columns = columns_of(family.model, target_of(block.device), cases, setting, found)
    known = {name: np.broadcast_to(column, rows.shape) for name, column in columns.items()}
    return known, np.log(block.measured_s[rows] / found.time_s)


def _joined(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the columns of several blocks as one; what a block lacks is 0 there."""
    names, sizes = dict.fromkeys(name for part in parts for name in part), [len(part["time_s"]) for part in parts]
    return {
        name: np.concatenate([part.get(name, np.zeros(size)) for part, size in zip(parts, sizes, strict=True)])
        for name in names
    }


def _predicted(family: Family, block: Block, rows: Any, values: Any) -> tuple[CaseColumns, Setting, Rows]:
    """Return rows of a block as predictions see them, and their times without a correction."""
    (group,) = block.table(rows).groups
    cases, setting = group_columns(group, len(rows)), block.setting_of(rows)
    return cases, setting, family.model.rows(target_of(block.device), cases, np.asarray(values), setting)


def corrected_rows(family: Family, block: Block, rows: Any, values: Any, correction: Correction | None) -> Rows:
    """Return the predicted times of rows of a block with a correction."""
    cases, setting, found = _predicted(family, block, rows, values)
    if correction is None:
        return found
    ratio = correction_ratio(correction, family.model, target_of(block.device), cases, setting, found)
    return Rows(time_s=found.time_s * ratio, parts_s=found.parts_s)
