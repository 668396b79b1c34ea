"""Predictions of single cases and of case tables, bounded from below by the proved bound."""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from nearpeak.base.arrow_stream import stream_of
from nearpeak.base.identity_key import Same
from nearpeak.bounds.bound_table import bounds_s
from nearpeak.bounds.terms.column_pieces import PIECE_ROWS
from nearpeak.core.answers.prediction import Calibration, Prediction
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.ops.shared.tables.case_table import CaseGroup, CaseTable
from nearpeak.prediction.calibration.intervals import cells_of, ends_by_band, stretched
from nearpeak.prediction.documented_target import stock_of
from nearpeak.prediction.engine.engine_coefficients import has_engine_model
from nearpeak.prediction.engine.engine_prediction import engine_prediction
from nearpeak.prediction.kernel_model import USUAL, CaseColumns, KernelModel, Rows, Setting, case_columns, leading
from nearpeak.prediction.model_choice import model_of
from nearpeak.prediction.power.predicted_energy import (  # fmt: skip
    POWER_TERM,
    clocked_places,
    has_power,
    may_hide_power_limit,
    power_limit_cost,
)
from nearpeak.prediction.power.sustained_clock import load_of, rows_added_s, sustained_predictions
from nearpeak.prediction.power.unit_activity import busy_times
from nearpeak.prediction.provenance import ANY, BOUND, CLASSICAL, FARTHEST, LIBRARY, beyond, group_calibration
from nearpeak.prediction.refinement import coefficients_of, correction_and_scale, open_value_ratios
from nearpeak.prediction.single_case import predicted
from nearpeak.prediction.software_ratio import ratio_of_cases

BEYOND = (LIBRARY, POWER_TERM, BOUND)
"""Parts of a time that are no terms of its model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionTable:
    """Predictions as columns, in the row order of the case table."""

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
    """Whether the bound, not the model, gave the time."""

    def columns(self) -> dict[str, Any]:
        """Return the table by column, all of one length."""
        return {field.name: np.asarray(getattr(self, field.name)) for field in fields(self)}

    def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
        """Return the table as an Arrow C stream, which pandas, polars, pyarrow and DuckDB read.

        Raises:
            MissingExtraError: nanoarrow is not installed (extra `tables`).
        """
        return stream_of(self.columns())


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
    if setting.is_sustained:
        burst = predict_case(case, target, replace(setting, is_sustained=None), file)
        return sustained_predictions(target, [(case, burst, 1.0)])[0]
    if file is not None:
        return predicted(case_columns(case), target, setting, file)
    if setting.engine and has_engine_model(target):
        return engine_prediction(case, target)
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
        model, calibration, pieces = _group_rows(group, target, setting, file, count)
        regimes, kind = [model.regimes[item] for item in model.terms], model.kind(group.attributes)
        ends = [np.log(ends_by_band(item, regimes, kind)) for item in (calibration.low_ratio, calibration.high_ratio)]
        for where, stated_cases, part, rows in pieces:
            place, most_s = largest(rows.parts_s)
            first = leading(model, rows.parts_s) if model.bundles else place
            piece_setting = _setting_of(setting, where)
            ratio, scale = correction_and_scale(calibration, model, target, part, piece_setting, rows)
            kernel_s, least_s = rows.time_s * ratio, bound_s[where]
            reaches = open_value_ratios(calibration, model, target, stated_cases, piece_setting, kernel_s)
            kernel_s, its_logs = _of_software(model, target, part, setting, kernel_s, np.array(regimes)[first])
            model_s, its_limiter = _limited(target, part, model, rows, (kernel_s, least_s), (place, most_s))
            expected_s = np.maximum(model_s, least_s)
            if setting.is_sustained:
                expected_s = expected_s + _sustained_s(target, part, model, calibration, (expected_s, rows.parts_s))
            time_s[where] = expected_s
            aparts, steps = beyond(calibration, model.extrapolation(target, part))
            for its, logs, apart, far in zip((low_s, high_s), ends, aparts, reaches, strict=True):
                is_low = its is low_s
                cells = cells_of(logs, first, model_s) * scale
                if its_logs is not None:
                    cells = np.where(np.isnan(its_logs[0]), cells, its_logs[0 if is_low else 1])
                its[where] = expected_s * (stretched(cells, 1.0, apart, is_low=is_low) * far)
            low_s[where] = np.maximum(low_s[where], least_s)
            limiter[where] = its_limiter + len(names)
            decides[where], distance[where] = (
                least_s > model_s,
                np.minimum(calibration.distance_count + steps, FARTHEST),
            )
        names += [*model.terms, *BEYOND]
    return PredictionTable(
        predicted_s=time_s, low_s=low_s, high_s=high_s, bound_s=bound_s,
        limiter=np.array(names, dtype=object)[limiter], distance_count=distance, bound_decides=decides,
    )  # fmt: skip


def _of_software(
    model: KernelModel, target: Target, cases: CaseColumns, setting: Setting, kernel_s: Any, regimes: Any
) -> tuple[Any, Any]:
    """Return the times of a setting's framework, and the ends of their intervals as logarithms, NaN for best ones.

    For the best of all frameworks the times are as they are, and there are no ends.
    """
    if not setting.software:
        return kernel_s, None
    decodes = np.char.startswith(regimes.astype(str), "decode")
    times_s, logs = kernel_s.copy(), np.full((2, len(kernel_s)), np.nan)
    for is_decode in sorted({*decodes.tolist()}):
        ratio = ratio_of_cases(model, target, cases, setting, decodes=is_decode)
        if ratio is not None:
            rows = decodes == is_decode
            times_s[rows] *= ratio.of(kernel_s[rows])
            logs[:, rows] = np.log([[ratio.low_ratio], [ratio.high_ratio]])
    return times_s, logs


def _limited(
    target: Target, cases: CaseColumns, model: KernelModel, rows: Rows, times_s: tuple[Any, Any], most: tuple[Any, Any]
) -> tuple[Any, Any]:
    """Return the times of cases under the board's limit, and the place of their largest parts among terms and BEYOND.

    Args:
        times_s: corrected times, and bounds.
        most: place of the largest term of the model, and that part.
    """
    from nearpeak.prediction.largest_part import largest

    (kernel_s, least_s), (place, most_s) = times_s, (most[0].copy(), most[1])
    model_s, power_s = kernel_s, None
    some = np.flatnonzero(may_hide_power_limit(target, model, rows.parts_s, most_s))
    if len(some):
        those = replace(cases, axes={name: column[some] for name, column in cases.axes.items()})
        cost = power_limit_cost(target, those, model, kernel_s[some], rows.parts_s[some].T)
        model_s, power_s = kernel_s.copy(), np.zeros_like(kernel_s)
        model_s[some], power_s[some] = kernel_s[some] + cost.added_s, cost.power_s
        place[some], most_s[some] = largest(np.stack(cost.parts_s, 1))
    for added, part_s in enumerate((kernel_s - rows.time_s, power_s, least_s - model_s), len(model.terms)):
        larger = () if part_s is None else np.flatnonzero(part_s > most_s)
        if len(larger):
            place[larger], most_s[larger] = added, part_s[larger]
    return model_s, place


def _sustained_s(
    target: Target, cases: CaseColumns, model: KernelModel, used: Calibration, times_s: tuple[Any, Any]
) -> Any:
    """Return by how much cases take longer that each run for seconds.

    Args:
        times_s: expected times in bursts, and the parts of the model.
    """
    expected_s, parts_s = times_s
    if not has_power(target):
        return 0.0
    clocked_s = parts_s[:, clocked_places(Same(model))[0]].sum(axis=1)
    busy = busy_times(target, stock_of(target), cases, is_one=False)
    load = load_of(target, cases, (expected_s, clocked_s), busy, used)
    return 0.0 if load is None else rows_added_s(target, load)


def _bounds_s(table: CaseTable, target: Target) -> Any:
    """Return the bound of each row: for classical algorithms, or for any where libraries use others."""
    classical_s, count = bounds_s(table, target, CLASSICAL), table.row_count
    admitted = np.zeros(count, dtype=bool)
    for group in table.groups:
        model = model_of(group.op, group.phase, target, group.dtypes, group.attributes)
        admitted[slice(None) if group.rows is None else group.rows] = model.admits_any(group_columns(group, count))
    return np.where(admitted, bounds_s(table, target, ANY), classical_s) if admitted.any() else classical_s


def _group_rows(
    group: CaseGroup, target: Target, setting: Setting, file: Path | None, count: int
) -> tuple[KernelModel, Calibration, Iterator[tuple[Any, CaseColumns, CaseColumns, Rows]]]:
    """Return the model of one group, its coefficients, and its times piece by piece with their places in the table.

    A piece has its cases as given, and with what they leave open.
    """
    model = model_of(group.op, group.phase, target, group.dtypes, group.attributes)
    cases = group_columns(group, count)
    size = count if group.rows is None else len(group.rows)
    calibration = group_calibration(target, model, cases, setting, file)
    coefficients = coefficients_of(calibration)

    def pieces() -> Iterator[tuple[Any, CaseColumns, CaseColumns, Rows]]:
        for start in range(0, size, PIECE_ROWS):
            piece = slice(start, min(start + PIECE_ROWS, size))
            where = piece if group.rows is None else group.rows[piece]
            piece_cases, piece_setting = (
                replace(cases, axes={n: column[piece] for n, column in cases.axes.items()}),
                _setting_of(setting, where),
            )
            part = model.completed(piece_cases, piece_setting)
            yield where, piece_cases, part, model.rows(target, part, coefficients, piece_setting)

    return model, calibration, pieces()


def _setting_of(setting: Setting, where: Any) -> Setting:
    """Return the setting of some rows of a table."""
    columns = {name: getattr(setting, name) for name in ("layer_tokens_count", "layer_rows_count")}
    return replace(setting, **{name: np.asarray(column)[where] for name, column in columns.items() if np.ndim(column)})


def group_columns(group: CaseGroup, count: int) -> CaseColumns:
    """Return a group of a table of `count` rows as models read it, one value per row in every axis."""
    size = count if group.rows is None else len(group.rows)
    axes = {name: np.broadcast_to(np.asarray(column), (size,)) for name, column in group.axes.items()}
    return CaseColumns(op=group.op, phase=group.phase, dtypes=group.dtypes, axes=axes, attributes=group.attributes)
