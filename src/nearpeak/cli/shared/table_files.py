"""Tables of cases that commands read and write."""

import json
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearpeak.base.input_files import standard_input
from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.case_arguments import suite_of_words
from nearpeak.errors import NearpeakError, NotModelledError, SpecError

if TYPE_CHECKING:
    from nearpeak.ops.shared.tables.case_table import CaseTable
    from nearpeak.ops.shared.tables.usable_rows import UsableTable

_SUITE_COLUMNS = ("digest", "call_count")


def read_usable(path: Path | None, command: str) -> tuple[dict[str, Any], "UsableTable"]:
    """Return the columns of a table, of the cases of a suite, or of JSON lines on standard input, and usable rows."""
    from nearpeak.ops.shared.tables.usable_rows import usable_rows

    columns = _suite_columns(path) or _read(path, command)
    with naming(path):
        usable = usable_rows({name: column for name, column in columns.items() if name not in _SUITE_COLUMNS})
    if passed := usable.table.passed_through:
        sys.stderr.write(f"passed through, no axis of an operator here: {', '.join(passed)}\n")
    return columns, usable


@contextmanager
def naming(path: Path | None) -> Iterator[None]:
    """Add the file's name to errors about its table."""
    try:
        yield
    except NearpeakError as error:
        text = str(error).removeprefix("table: ")
        raise type(error)(f"table {path if path is not None and str(path) != '-' else 'stdin'}: {text}") from None


def _read(path: Path | None, command: str) -> dict[str, Any]:
    from nearpeak.frontends.files.case_tables import parse_jsonl, read_columns, rows_to_columns

    if path is not None and str(path) != "-":
        return read_columns(path)
    records = parse_jsonl(standard_input(), "stdin")
    if not records:
        raise SpecError(f"{command}: stdin holds no cases; pipe JSON lines with op, dtype and axes")
    return dict(rows_to_columns(records))


def _suite_columns(path: Path | None) -> dict[str, Any] | None:
    """Return the chosen cases of a suite file, or of a ready-made one, as columns with digest and calls.

    None where it is no suite.
    """
    from nearpeak.frontends.files.case_tables import rows_to_columns

    suite = None if path is None else suite_of_words([str(path)])
    if suite is None:
        return None
    records = [
        entry.case.record() | {"digest": entry.case.digest, "call_count": entry.call_count} for entry in suite.chosen
    ]
    if not records:
        raise SpecError(f"{path}: the suite runs no case")
    return dict(rows_to_columns(records))


def write_answered(
    path: Path | None, command: str, columns: Mapping[str, Any], usable: "UsableTable", added: Mapping[str, Any],
    refused: Mapping[int, str], *, plain: bool,
) -> None:  # fmt: skip
    """Write a table with the columns added to its usable rows; then name rows without an answer, if any.

    Args:
        plain: print JSON lines where no file is written; people read sentences else.
        added: columns of the usable rows.
        refused: why some of them have no answer, by position among them.

    Raises:
        NotModelledError: rows are without an answer; the table is written, with a column that says why.
    """
    if path is None or path.suffix.lower() != ".csv":
        columns = _plain_axes(columns, usable.table)
    why = {row: f"{column}: {text}" if column else text for row, (column, text) in usable.refused.items()}
    why |= {int(usable.rows[row]): reason for row, reason in refused.items()}
    for_people = path is None and not plain
    write = partial(_tell, tuple(added)) if for_people else partial(write_cases, path)
    if not why:
        write({**columns, **added})
        return
    count = len(usable.rows) + len(usable.refused)
    write({**columns, **_spread(added, usable.rows, why, count)})
    row, others = min(why), ", the others answered" if len(why) < count else ""
    raise NotModelledError(
        f"{command}: {len(why)} of {count} rows are refused{others} (column 'refused'); "
        f"the first is row {row + 1}: {why[row]}"
    )


def _plain_axes(columns: Mapping[str, Any], table: "CaseTable") -> dict[str, Any]:
    """Return the columns with numbers in those of axes that CSV has as text, as some of their cells are not right."""
    from nearpeak.frontends.files.case_tables import number_or_text

    axes = {name for group in table.groups for name in group.axes}
    texts = {
        name for name in axes.intersection(columns) if getattr(getattr(columns[name], "dtype", None), "kind", "") == "U"
    }
    return {
        name: [number_or_text(cell) for cell in column.tolist()] if name in texts else column
        for name, column in columns.items()
    }


def _spread(added: Mapping[str, Any], rows: Any, refused: Mapping[int, str], count: int) -> dict[str, list[object]]:
    """Return the columns at the places of their rows, with those of refused rows blank, and why these are."""
    spread_columns: dict[str, list[object]] = {}
    for name, column in added.items():
        cells: list[object] = [None] * count
        for row, cell in zip(rows.tolist(), column.tolist(), strict=True):
            cells[row] = None if row in refused else cell
        spread_columns[name] = cells
    return spread_columns | {"refused": [refused.get(row) for row in range(count)]}


def check_table(path: Path | None) -> None:
    """Refuse a path that cannot become a table file, before any work is done for it."""
    from nearpeak.frontends.files.case_tables import check_suffix

    shared.check_writable(path)
    if path is not None:
        check_suffix(path)


def write_cases(path: Path | None, columns: Mapping[str, Any]) -> None:
    """Write the columns to a table file, or as JSON lines to standard output."""
    from nearpeak.frontends.files.case_tables import numbers_of, write_columns

    if path is not None:
        write_columns(path, columns)
        sys.stderr.write(f"wrote {path}\n")
        return
    for row in _rows({name: numbers_of(column) for name, column in columns.items()}):
        sys.stdout.write(json.dumps(row) + "\n")


def _tell(added: Collection[str], columns: Mapping[str, Any]) -> None:
    """Print each row in a sentence."""
    from nearpeak.reports.answer_row import in_words
    from nearpeak.reports.figure_text import hung

    for row in _rows(columns):
        sys.stdout.write("\n".join(hung([in_words(row, added)])) + "\n")


def _rows(columns: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table without their blank cells."""
    plain = {name: (c.tolist() if hasattr(c, "tolist") else c) for name, c in columns.items()}
    for cells in zip(*plain.values(), strict=True):
        yield {name: cell for name, cell in zip(plain, cells, strict=True) if cell is not None}
