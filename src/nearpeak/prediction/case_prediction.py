"""Predictions of cases and tables: the form with its scalars, never below the bound."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from nearpeak.base.identity_key import Same
from nearpeak.bounds.bound_table import bounds_s
from nearpeak.bounds.terms.column_pieces import PIECE_ROWS
from nearpeak.core.answers.prediction import Calibration, Prediction
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.ops.shared.tables.case_table import CaseGroup, CaseTable
from nearpeak.prediction.calibration.intervals import cells_of, ends_by_band, stretched
from nearpeak.prediction.kernel_model import USUAL, CaseColumns, Form, Rows, Setting, case_columns, leading
from nearpeak.prediction.model_choice import form_of
from nearpeak.prediction.power.predicted_energy import POWER_TERM, hides_power, powered
from nearpeak.prediction.provenance import ANY, BOUND, CLASSICAL, FARTHEST, LIBRARY, beyond, grounds_of
from nearpeak.prediction.refinement import reach, refined, scalars_of
from nearpeak.prediction.single_case import predicted

BEYOND = (LIBRARY, POWER_TERM, BOUND)
"""Parts of a time that are no terms of its form."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionTable:
    """Predictions as columns, row by row as the cases stand in their table."""

    predicted_s: Any
    """Expected times, never below the bounds."""
    low_s: Any
    """Low ends of the 90 % intervals."""
    high_s: Any
    """High ends of the 90 % intervals."""
    bound_s: Any
    """Times that nothing can beat; convolutions with several taps: not by any algorithm, classical or not."""
    limiter: Any
    """Name of the largest part of each row."""
    distance_count: Any
    """Steps from the data of each row."""
    bound_decides: Any
    """Whether the bound, not the form, gave the time."""


def predict_case(case: Case, target: Target, setting: Setting = USUAL, file: Path | None = None) -> Prediction:
    """Return the prediction of one case.

    >>> from nearpeak.ops import case
    >>> from nearpeak.targets import target_of
    >>> found = predict_case(case("gemm", m=4096, n=4096, k=4096, dtype="bf16"), target_of("h100_sxm"))
    >>> found.bound_s <= found.low_s <= found.time_s <= found.high_s
    True
    >>> abs(sum(term.time_s for term in found.terms) / found.time_s - 1) < 1e-9
    True
    """
    if file is not None:
        return predicted(case_columns(case), target, setting, file)
    return _shipped_prediction(case, Same(target), setting)


@lru_cache(maxsize=1 << 14)  # steps and searches ask for the same cases over and over
def _shipped_prediction(case: Case, target: "Same[Target]", setting: Setting) -> Prediction:
    return predicted(case_columns(case), target.held, setting)


def predict_table(
    table: CaseTable, target: Target, setting: Setting = USUAL, file: Path | None = None
) -> PredictionTable:
    """Return the predictions of all cases of `table`."""
    from nearpeak.prediction.largest_part import largest

    count, bound_s, names = table.row_count, _bounds_s(table, target), list[str]()
    time_s, low_s, high_s, decides = np.empty(count), np.empty(count), np.empty(count), np.empty(count, dtype=bool)
    limiter, distance = np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int8)
    for group in table.groups:
        form, calibration, pieces = _group_rows(group, target, setting, file, count)
        regimes, kind = [form.regimes[one] for one in form.terms], form.kind(group.attributes)
        ends = [np.log(ends_by_band(one, regimes, kind)) for one in (calibration.low_ratio, calibration.high_ratio)]
        for where, given, part, rows in pieces:
            place, most_s = largest(rows.parts_s)
            first = leading(form, rows.parts_s) if form.bundles else place
            own = _setting_of(setting, where)
            ratio, scale = refined(calibration, form, target, part, own, rows)
            kernel_s, least_s = rows.time_s * ratio, bound_s[where]
            reaches = reach(calibration, form, target, given, own, kernel_s)
            form_s, its_limiter = _limited(target, part, form, rows, (kernel_s, least_s), (place, most_s))
            time_s[where] = expected_s = np.maximum(form_s, least_s)
            aparts, steps = beyond(calibration, form.beyond(target, part))
            for its, logs, apart, far in zip((low_s, high_s), ends, aparts, reaches, strict=True):
                cells = cells_of(logs, first, form_s)
                its[where] = expected_s * (stretched(cells, scale, apart, is_low=its is low_s) * far)
            low_s[where] = np.maximum(low_s[where], least_s)
            limiter[where] = its_limiter + len(names)
            decides[where], distance[where] = least_s > form_s, np.minimum(calibration.distance_count + steps, FARTHEST)
        names += [*form.terms, *BEYOND]
    return PredictionTable(
        predicted_s=time_s, low_s=low_s, high_s=high_s, bound_s=bound_s,
        limiter=np.array(names, dtype=object)[limiter], distance_count=distance, bound_decides=decides,
    )  # fmt: skip


def _limited(
    target: Target, cases: CaseColumns, form: Form, rows: Rows, times_s: tuple[Any, Any], most: tuple[Any, Any]
) -> tuple[Any, Any]:
    """Return the times of cases under the board's limit, and the place of their largest parts among terms and BEYOND.

    Args:
        times_s: corrected times, and bounds.
        most: place of the largest term of the form, and that part.
    """
    from nearpeak.prediction.largest_part import largest

    (kernel_s, least_s), (place, most_s) = times_s, (most[0].copy(), most[1])
    form_s, power_s = kernel_s, None
    some = np.flatnonzero(hides_power(target, form, rows.parts_s, most_s))
    if len(some):
        those = replace(cases, axes={name: column[some] for name, column in cases.axes.items()})
        found = powered(target, those, form, kernel_s[some], rows.parts_s[some].T)
        form_s, power_s = kernel_s.copy(), np.zeros_like(kernel_s)
        form_s[some], power_s[some] = kernel_s[some] + found.added_s, found.power_s
        place[some], most_s[some] = largest(np.stack(found.parts_s, 1))
    for added, part_s in enumerate((kernel_s - rows.time_s, power_s, least_s - form_s), len(form.terms)):
        larger = () if part_s is None else np.flatnonzero(part_s > most_s)
        if len(larger):
            place[larger], most_s[larger] = added, part_s[larger]
    return form_s, place


def _bounds_s(table: CaseTable, target: Target) -> Any:
    """Return what bounds the time of each row: by classical algorithms, by any where libraries use others."""
    found, count = bounds_s(table, target, CLASSICAL), table.row_count
    admitted = np.zeros(count, dtype=bool)
    for group in table.groups:
        form = form_of(group.op, group.phase, target, group.dtypes, group.attributes)
        admitted[slice(None) if group.rows is None else group.rows] = form.admits_any(group_columns(group, count))
    return np.where(admitted, bounds_s(table, target, ANY), found) if admitted.any() else found


def _group_rows(
    group: CaseGroup, target: Target, setting: Setting, file: Path | None, count: int
) -> tuple[Form, Calibration, Iterator[tuple[Any, CaseColumns, CaseColumns, Rows]]]:
    """Return the form of one group, its scalars, and its times piece by piece with their places in the table.

    A piece has its cases as given, and with what they leave open.
    """
    form = form_of(group.op, group.phase, target, group.dtypes, group.attributes)
    cases = group_columns(group, count)
    size = count if group.rows is None else len(group.rows)
    calibration = grounds_of(target, form, cases, setting, file)
    scalars = scalars_of(calibration)

    def pieces() -> Iterator[tuple[Any, CaseColumns, CaseColumns, Rows]]:
        for start in range(0, size, PIECE_ROWS):
            piece = slice(start, min(start + PIECE_ROWS, size))
            where = piece if group.rows is None else group.rows[piece]
            given, own = (
                replace(cases, axes={n: column[piece] for n, column in cases.axes.items()}),
                _setting_of(setting, where),
            )
            part = form.stated(given, own)
            yield where, given, part, form.rows(target, part, scalars, own)

    return form, calibration, pieces()


def _setting_of(setting: Setting, where: Any) -> Setting:
    """Return the setting of some rows of a table."""
    columns = {name: getattr(setting, name) for name in ("layer_tokens_count", "layer_rows_count")}
    return replace(setting, **{name: np.asarray(one)[where] for name, one in columns.items() if np.ndim(one)})


def group_columns(group: CaseGroup, count: int) -> CaseColumns:
    """Return a group of a table of `count` rows as forms read it, one value per row in every axis."""
    size = count if group.rows is None else len(group.rows)
    axes = {name: np.broadcast_to(np.asarray(column), (size,)) for name, column in group.axes.items()}
    return CaseColumns(op=group.op, phase=group.phase, dtypes=group.dtypes, axes=axes, attributes=group.attributes)
