"""Tables of cases that commands read and write."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearpeak.cli._cases import suite_of_words
from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from nearpeak.ops._table import CaseTable


def read_cases(path: Path | None, command: str) -> tuple[dict[str, Any], "CaseTable"]:
    """Return the columns of a table file, a suite, or JSON lines on standard input, and the cases that they state."""
    from nearpeak import api
    from nearpeak.capture.table_file import parse_jsonl, read_columns, rows_to_columns

    if path is None or str(path) == "-":
        records = parse_jsonl(sys.stdin.read(), "stdin")
        if not records:
            raise SpecError(f"{command}: stdin holds no cases; pipe JSON lines with op, dtype and axes")
        columns: dict[str, Any] = rows_to_columns(records)
    elif (suite := suite_of_words([str(path)])) is not None:
        columns = rows_to_columns([{**one.case.record(), "calls": one.call_count} for one in suite.chosen])
    else:
        columns = read_columns(path)
    table = api.case_table(columns)
    if table.passed_through:
        sys.stderr.write(f"passed through, no axis of an operator here: {', '.join(table.passed_through)}\n")
    return columns, table


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
