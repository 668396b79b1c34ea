"""Tables of cases that commands read and write."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearpeak.cli._cases import suite_of_words
from nearpeak.cli._shared import check_writable
from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from nearpeak.ops._table import CaseTable
    from nearpeak.ops._usable import UsableTable

_SUITE_COLUMNS = ("digest", "call_count")


def read_cases(path: Path | None, command: str) -> tuple[dict[str, Any], "CaseTable"]:
    """Return the columns of a table file, a suite, or JSON lines on standard input, and the cases that they state."""
    from nearpeak import api

    columns = _suite_columns(path) or _read(path, command)
    table = api.case_table({name: column for name, column in columns.items() if name not in _SUITE_COLUMNS})
    _tell_passed(table)
    return columns, table


def read_usable(path: Path | None, command: str) -> tuple[dict[str, Any], "UsableTable"]:
    """Return the columns of a table, of the cases of a suite, or of JSON lines on standard input, and usable rows."""
    from nearpeak.ops._usable import usable_table

    columns = _suite_columns(path) or _read(path, command)
    usable = usable_table({name: column for name, column in columns.items() if name not in _SUITE_COLUMNS})
    _tell_passed(usable.table)
    return columns, usable


def _read(path: Path | None, command: str) -> dict[str, Any]:
    from nearpeak.capture.table_file import parse_jsonl, read_columns, rows_to_columns

    if path is not None and str(path) != "-":
        return read_columns(path)
    records = parse_jsonl(sys.stdin.read(), "stdin")
    if not records:
        raise SpecError(f"{command}: stdin holds no cases; pipe JSON lines with op, dtype and axes")
    return dict(rows_to_columns(records))


def _suite_columns(path: Path | None) -> dict[str, Any] | None:
    """Return the chosen cases of a suite file, or of a ready-made one, as columns with digest and calls.

    None where it is no suite.
    """
    from nearpeak.capture.table_file import rows_to_columns

    suite = None if path is None else suite_of_words([str(path)])
    if suite is None:
        return None
    records = [one.case.record() | {"digest": one.case.digest, "call_count": one.call_count} for one in suite.chosen]
    if not records:
        raise SpecError(f"{path}: the suite runs no case")
    return dict(rows_to_columns(records))


def _tell_passed(table: "CaseTable") -> None:
    if table.passed_through:
        sys.stderr.write(f"passed through, no axis of an operator here: {', '.join(table.passed_through)}\n")


def check_table(path: Path | None) -> None:
    """Refuse a path that cannot become a table file, before any work is done for it."""
    from nearpeak.capture.table_file import check_suffix

    check_writable(path)
    if path is not None:
        check_suffix(path)


def write_cases(path: Path | None, columns: Mapping[str, Any]) -> None:
    """Write the columns to a table file, or as JSON lines to standard output."""
    from nearpeak.capture.table_file import write_columns

    if path is not None:
        write_columns(path, columns)
        sys.stderr.write(f"wrote {path}\n")
        return
    plain = {name: (c.tolist() if hasattr(c, "tolist") else c) for name, c in columns.items()}
    for cells in zip(*plain.values(), strict=True):
        row = {name: cell for name, cell in zip(plain, cells, strict=True) if cell is not None}
        sys.stdout.write(json.dumps(row) + "\n")
