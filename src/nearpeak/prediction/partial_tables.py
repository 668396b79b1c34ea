"""Predictions of tables with unpredictable rows: all others are predicted, and each gap has its reason."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from nearpeak.bounds.contradictory_rows import contradictions
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.ops.shared.tables.case_table import CaseGroup, CaseTable
from nearpeak.prediction.calibration.coefficient_store import calibration_for, is_user_calibration
from nearpeak.prediction.case_prediction import PredictionTable, predict_table
from nearpeak.prediction.kernel_model import USUAL, CaseColumns, Setting
from nearpeak.prediction.model_choice import model_of

_TIMES = ("predicted_s", "low_s", "high_s", "bound_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredTable:
    """Predictions of those rows that have one."""

    predictions: PredictionTable
    """Predictions; times that are not numbers, and no limiter, where a row has none."""
    refused: Mapping[int, str]
    """Reasons for missing predictions, by position in the table."""


def answered_predictions(
    table: CaseTable, target: Target, setting: Setting = USUAL, file: Path | None = None
) -> AnsweredTable:
    """Return the predictions of those cases of `table` that have one on `target`, and why the others have none.

    Rows whose axes contradict each other are among those that have none.

    >>> from nearpeak.ops.shared.tables.case_table import case_table
    >>> from nearpeak.targets import target_of
    >>> mixed = case_table({"op": "gemm", "dtype": ["bf16", "int32"], "m": 64, "n": 64, "k": 64})
    >>> list(answered_predictions(mixed, target_of("h100_sxm")).refused)
    [1]
    """
    refused = dict[int, str]()
    try:
        return AnsweredTable(predictions=predict_table(table, target, setting, file), refused=refused)
    except (NotModelledError, SpecError) as error:
        refused = dict(contradictions(table))
        if isinstance(error, SpecError) and not refused:
            raise
    return _answered(table.less(refused), refused, target, setting, file)


def _answered(
    table: CaseTable, refused: dict[int, str], target: Target, setting: Setting, file: Path | None
) -> AnsweredTable:
    """Return predictions group by group; `refused` are rows without a group."""
    count = table.row_count
    columns: dict[str, Any] = {name: np.full(count, np.nan) for name in _TIMES}
    columns |= {"limiter": np.full(count, None, dtype=object), "distance_count": np.full(count, -1, dtype=np.int8)}
    columns["bound_decides"] = np.zeros(count, dtype=bool)
    for group in table.groups:
        rows = np.arange(count) if group.rows is None else group.rows
        for places, answer in _answers(group, np.arange(len(rows)), target, setting, file):
            if isinstance(answer, PredictionTable):
                for name, column in columns.items():
                    column[rows[places]] = getattr(answer, name)
            else:
                refused |= {int(row): answer for row in rows[places]}
    return AnsweredTable(predictions=PredictionTable(**columns), refused=dict(sorted(refused.items())))


def _answers(
    group: CaseGroup, places: Any, target: Target, setting: Setting, file: Path | None
) -> Iterator[tuple[Any, PredictionTable | str]]:
    """Yield predictions of the rows at `places` of a group, or why they have none, found by halving."""
    axes = {name: value if isinstance(value, int) else value[places] for name, value in group.axes.items()}
    part = CaseTable(row_count=len(places), groups=(replace(group, axes=axes, rows=None),))
    try:
        yield places, predict_table(part, target, setting, file)
    except NotModelledError as error:
        if len(places) == 1 or _same_for_all(group, places, target, setting, file, str(error)):
            yield places, str(error)
            return
        middle = len(places) // 2
        yield from _answers(group, places[:middle], target, setting, file)
        yield from _answers(group, places[middle:], target, setting, file)


def _same_for_all(
    group: CaseGroup, places: Any, target: Target, setting: Setting, file: Path | None, reason: str
) -> bool:
    """Return whether the reason names no row and both ends of the rows give it: then it is about the operator."""
    if "row" in reason:
        return False
    for place in (places[:1], places[-1:]):
        axes = {name: value if isinstance(value, int) else value[place] for name, value in group.axes.items()}
        try:
            predict_table(CaseTable(row_count=1, groups=(replace(group, axes=axes, rows=None),)), target, setting, file)
        except NotModelledError as error:
            if str(error) != reason:
                return False
        else:
            return False
    return True


def missing_groups(file: Path, predicted: Iterable[Case | CaseGroup], target: Target) -> tuple[str, ...]:
    """Return the groups that a user's file lacks for the `predicted` cases, for which shipped coefficients are used.

    A group of a file also serves similar formats, such as `gemm.bf16` for fp16.
    """
    lacked = set[str]()
    for op, phase, dtypes, attributes in {
        (item.op, item.phase, tuple(dict(item.dtypes).items()), tuple(dict(item.attributes).items()))
        for item in predicted
    }:
        try:
            model = model_of(op, phase, target, dict(dtypes), dict(attributes))
            if model.calibration is not None:
                continue
            cases = CaseColumns(op=op, phase=phase, dtypes=dict(dtypes), axes={}, attributes=dict(attributes))
            if not is_user_calibration(calibration_for(target, model, cases, file), file):
                lacked.add(f"{model.name}.{model.groups(op, dict(dtypes))[0]}")
        except NotModelledError:
            continue
    return tuple(sorted(lacked))
