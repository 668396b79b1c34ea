"""Detection of table rows whose axes contradict each other, by bisection over the operators' work rules."""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from nearpeak.bounds.terms.column_pieces import PIECE_ROWS, row_of, some_rows, wide_rows
from nearpeak.core.work.dtype import dtype_of
from nearpeak.errors import NearpeakError, NotModelledError
from nearpeak.ops import OPS
from nearpeak.ops.shared.tables.case_table import CaseTable

Rule = Callable[..., Any]


def contradictions(table: CaseTable) -> Mapping[int, str]:
    """Return why rows are no case that exists, by position in the table: the rule refuses what they state.

    >>> from nearpeak.ops.shared.tables.case_table import case_table
    >>> rows = {"op": "attention", "dtype": "bf16", "batch": 1, "heads": 8, "q": 64, "kv": 64, "dim": 64}
    >>> contradictions(case_table(rows | {"kv_heads": [2, 3, 4]}))
    {1: 'attention: heads=8 contradicts kv_heads=3; it must be a multiple of it'}
    """
    refused: dict[int, str] = {}
    for group in table.groups:
        formats = {name: dtype_of(value) for name, value in group.dtypes.items()}
        rule = partial(OPS[group.op].rule(group.phase), **formats, **group.attributes)
        rows = np.arange(table.row_count) if group.rows is None else group.rows
        for start in range(0, len(rows), PIECE_ROWS):
            piece = slice(start, start + PIECE_ROWS)
            refused |= _refused(rule, some_rows(group.axes, piece), rows[piece], OPS[group.op].degree_count)
    return dict(sorted(refused.items()))


def _refused(rule: Rule, axes: Mapping[str, Any], rows: Any, degree: int) -> dict[int, str]:
    """Return why the rule refuses rows of one piece of a group; rows that could overflow are checked one by one."""
    wide = wide_rows(axes, len(rows), degree)
    if wide is None:
        return dict(_halved(rule, axes, rows))
    alone = [(int(rows[i]), _reason(rule, row_of(axes, int(i)))) for i in np.flatnonzero(wide)]
    narrow = dict(_halved(rule, some_rows(axes, ~wide), rows[~wide])) if not wide.all() else {}
    return narrow | {row: reason for row, reason in alone if reason is not None}


def _halved(rule: Rule, axes: Mapping[str, Any], rows: Any) -> Iterator[tuple[int, str]]:
    """Yield the rows that the rule refuses, by bisection: few bad rows among many need few calls."""
    try:
        rule(**axes)
    except NotModelledError as error:
        if all(_unmodelled(rule, row_of(axes, index)) == str(error) for index in (0, -1)):
            return  # it is about the operator, not about rows
    except NearpeakError:
        pass
    else:
        return
    if len(rows) == 1:
        reason = _reason(rule, row_of(axes, 0))
        if reason is not None:
            yield int(rows[0]), reason
        return
    middle = len(rows) // 2
    for half in (slice(None, middle), slice(middle, None)):
        yield from _halved(rule, some_rows(axes, half), rows[half])


def _reason(rule: Rule, axes: Mapping[str, int]) -> str | None:
    """Return why the rule refuses one row; none where it accepts the row or does not model it."""
    try:
        rule(**axes)
    except NotModelledError:
        return None
    except NearpeakError as error:
        return str(error)
    return None


def _unmodelled(rule: Rule, axes: Mapping[str, int]) -> str | None:
    try:
        rule(**axes)
    except NotModelledError as error:
        return str(error)
    except NearpeakError:
        return None
    return None
