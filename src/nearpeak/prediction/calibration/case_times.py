"""Predicted times of a list of cases as a function of a kernel model's coefficients."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.ops.shared.tables.case_table import table_of_cases
from nearpeak.prediction.case_prediction import group_columns
from nearpeak.prediction.kernel_model import CaseColumns, KernelModel, Setting


def times_of(cases: Sequence[Case], model: KernelModel, target: Target, setting: Setting) -> Any:
    """Return the predicted times of cases as a function of the coefficients."""
    parts = columns_by_group(cases)

    def times(coefficients: Any) -> Any:
        out = np.empty(len(cases))
        for rows, columns in parts:
            out[rows] = model.rows(target, columns, np.asarray(coefficients), setting).time_s
        return out

    return times


def columns_by_group(cases: Sequence[Case]) -> list[tuple[Any, CaseColumns]]:
    """Return the cases as columns by operator, phase and formats, with the positions of their rows."""
    table = table_of_cases(cases)
    return [
        (np.arange(len(cases)) if group.rows is None else group.rows, group_columns(group, table.row_count))
        for group in table.groups
    ]


def first_columns(case: Case) -> CaseColumns:
    """Return the lookup key of coefficients for a group of cases that begins with `case`."""
    return CaseColumns(op=case.op, phase=case.phase, dtypes=dict(case.dtypes), axes={})
