"""Reading and writing of case tables: CSV, JSON lines, and Parquet (extra `tables`)."""

import csv
import importlib.util
import io
import json
import math
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from nearpeak.base.canonical_json import parsed_once
from nearpeak.base.folders import whole_file
from nearpeak.base.input_files import border, check_file, reading, text_of_file
from nearpeak.base.spreadsheet_cells import may_be_formula, plain_cell, plain_cells
from nearpeak.base.table_engine import table_engine
from nearpeak.errors import SpecError
from nearpeak.units import show

SUFFIXES = (".csv", ".jsonl", ".parquet")
_MAGIC = b"PAR1"
"""First and last bytes of a Parquet file."""
_PATTERN = frozenset("*?[")
"""Characters that make a file name a pattern for DuckDB."""


@border("table")
def read_columns(path: Path) -> dict[str, Any]:
    """Return the columns of the table file at `path`; cells of CSV become numbers where a whole column allows it.

    Raises:
        SpecError: the file is missing, a folder, empty, malformed, or of another kind.
    """
    check_file(path, f"table {path}")
    with path.open("rb") as file:
        if file.read(2) == b"\x1f\x8b":
            raise SpecError(f"table {path}: is packed by gzip; unpack it (gunzip) and give what is in it")
    check_suffix(path)
    with reading(f"table {path}", "table"):
        if path.suffix.lower() == ".jsonl":
            columns = rows_to_columns(parse_jsonl(text_of_file(path, f"table {path}"), str(path)))
        else:
            columns = (_read_csv if path.suffix.lower() == ".csv" else _read_parquet)(path)
    if not columns or not len(next(iter(columns.values()))):
        raise SpecError(f"table {path}: has no rows")
    return columns


def check_suffix(path: Path) -> None:
    """Refuse a table whose suffix names no format.

    >>> check_suffix(Path("cases.txt"))
    Traceback (most recent call last):
    nearpeak.errors.SpecError: table cases.txt: suffix '.txt' is not one of .csv, .jsonl, .parquet
    """
    if path.suffix.lower() not in SUFFIXES:
        raise SpecError(f"table {path}: suffix {path.suffix!r} is not one of {', '.join(SUFFIXES)}")


def write_columns(path: Path, columns: Mapping[str, Any]) -> None:
    """Write the columns to `path`, by its suffix; the file appears whole or not at all, behind a link where it is one.

    Text of CSV that is a number, and stays the same as one, is a number in the other formats.
    """
    check_suffix(path)
    suffix = path.suffix.lower()
    writer = {".csv": _write_csv, ".jsonl": _write_jsonl, ".parquet": _write_parquet}[suffix]
    held = columns if suffix == ".csv" else {name: numbers_of(column) for name, column in columns.items()}
    with whole_file(path) as part:
        writer(part, held)


def rows_to_columns(records: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return records as columns, absent cells as None.

    >>> rows_to_columns([{"a": 1}, {"a": 2, "b": 3}])
    {'a': [1, 2], 'b': [None, 3]}
    """
    names = dict.fromkeys(name for record in records for name in record)
    return {name: [record.get(name) for record in records] for name in names}


def parse_jsonl(text: str, where: str) -> list[dict[str, Any]]:
    """Return the objects of JSON lines; a bad line is named.

    >>> parse_jsonl('{"op": "gemm"}', "stdin")
    [{'op': 'gemm'}]
    """
    records = []
    for number, line in enumerate(text.split("\n"), start=1):  # a string may hold what else ends lines, as U+2028
        if line.strip():
            records.append(_record(line, f"{where}, line {number}"))
    return records


_NUMBER = re.compile(r"-?(0|[1-9][0-9]{0,400})(\.([0-9]+))?([eE][+-]?[0-9]+)?")
"""Numbers that survive a round trip: not 007 or +1, nor values beyond the range of floats."""


def numbers_of(column: Any) -> Any:
    """Return text of CSV as the numbers that it states, blank cells and nan as None; other columns as they are.

    Text stays text where a cell is no number, and where places behind the point differ and some end in 0: 2.9 and
    2.10 are versions.

    >>> numbers_of(np.array(["1.5", "", "16"])), numbers_of(np.array(["2.9", "2.10"])).tolist()
    ([1.5, None, 16], ['2.9', '2.10'])
    """
    if not isinstance(column, np.ndarray) or column.dtype.kind != "U":
        return column
    cells = column.tolist()
    matches = {cell: _NUMBER.fullmatch(cell) for cell in set(cells) if cell.lower() not in ("", "nan")}
    if not matches or None in matches.values():
        return column
    places = {item.group(3) for item in matches.values() if item is not None and item.group(3)}
    if len(set(map(len, places))) > 1 and any(len(item) > 1 and item.endswith("0") for item in places):
        return column
    numbers = {cell: _number(cell) for cell in matches}
    if not all(-(2**63) <= item < 2**63 if isinstance(item, int) else math.isfinite(item) for item in numbers.values()):
        return column
    return [numbers.get(cell) for cell in cells]


def number_or_text(cell: Any) -> Any:
    """Return the number that a cell of CSV states, None for a blank one, other text as it is.

    >>> number_or_text("4096.5"), number_or_text("many"), number_or_text("")
    (4096.5, 'many', None)
    """
    if isinstance(cell, str) and _NUMBER.fullmatch(cell):
        return _number(cell)
    return None if cell == "" else cell


def _number(text: str) -> int | float:
    return float(text) if set(text) & set(".eE") else int(text)


def _record(line: str, where: str) -> dict[str, Any]:
    try:
        record = parsed_once(line)
    except json.JSONDecodeError as error:
        raise SpecError(f"{where}: not JSON: {error.msg}") from None
    except SpecError as error:
        raise SpecError(f"{where}: {error}; each column has one cell in a row") from None
    except ValueError as error:
        why = "a number has more than 4300 digits" if "digits" in str(error) else error
        raise SpecError(f"{where}: {why}; each line must be an object of single values up to 2^63 - 1") from None
    if not isinstance(record, dict):
        raise SpecError(f"{where}: is {type(record).__name__}; each line must be an object")
    return record


_OTHER_SEPARATORS = (";", "\t", "|")
_LONGEST_CELL = 2**17
"""Longest accepted cell in characters."""


MOST_TABLE_BYTES = 2 << 30
"""Memory that the cells of a table may take."""
_CELL_BYTES = 60
"""Memory of a cell of CSV in CPython: a short text and a place in a list."""


def _read_csv(path: Path) -> dict[str, Any]:
    text = text_of_file(path, f"table {path}")
    if (size := _CELL_BYTES * (text.count(",") + text.count("\n"))) > MOST_TABLE_BYTES:
        raise SpecError(f"table {path}: its cells take about {show(size, 'B')}, over the limit of "
                        f"{show(MOST_TABLE_BYTES, 'B')}; write it as Parquet")  # fmt: skip
    with io.StringIO(text, newline="") as file:
        reader = csv.reader(file)
        known = csv.field_size_limit(_LONGEST_CELL)  # of the whole process: readers of traces take longer ones
        try:
            rows: list[tuple[int, list[str]]] = []
            for row in filter(None, reader):
                rows.append((reader.line_num, row))
                if len(row) != len(rows[0][1]):
                    break  # it is refused below: what follows it is not held
        except csv.Error as error:
            raise SpecError(f"table {path}, line {reader.line_num}: not CSV: {error}") from None
        finally:
            csv.field_size_limit(known)
    if not rows:
        return {}
    header = rows[0][1]
    separator = next((mark for mark in _OTHER_SEPARATORS if len(header) == 1 and mark in header[0]), "")
    if separator:
        raise SpecError(f"table {path}: its cells are separated by {separator!r}; separate them by commas")
    if len(set(header)) < len(header):
        twice, _ = Counter(header).most_common(1)[0]
        raise SpecError(f"table {path}: the column name {twice!r} occurs twice in its header")
    for number, row in rows[1:]:
        if len(row) != len(header):
            raise SpecError(f"table {path}, line {number}: has {len(row)} cells; the header has {len(header)}")
    cells_by_column = zip(*(row for _, row in rows[1:]), strict=True)
    return {name: _typed(np.array(cells)) for name, cells in zip(header, cells_by_column, strict=False)}


def _typed(cells: Any) -> Any:
    """Return whole-number text as int64, other text as it is."""
    try:
        numbers = cells.astype(np.int64)
    except (ValueError, OverflowError):
        return cells
    return numbers if (numbers.astype(cells.dtype) == cells).all() else cells


def _read_parquet(path: Path) -> dict[str, Any]:
    with table_engine() as engine, _plainly_named(path) as plain:
        import duckdb

        _check_parquet(path)
        try:
            name = _quoted(plain)
            row_count = engine.sql(f"select sum(num_rows) from parquet_file_metadata('{name}')").fetchall()[0][0]
            column_count = len(engine.sql(f"select * from read_parquet('{name}') limit 0").columns)
            if (size := 8 * int(row_count or 0) * column_count) > MOST_TABLE_BYTES:
                raise SpecError(
                    f"table {path}: its {row_count} rows take {show(size, 'B')} or more, over the limit of "
                    f"{show(MOST_TABLE_BYTES, 'B')}; split it"
                )
            columns = engine.sql(f"select * from read_parquet('{name}')").fetchnumpy()
        except duckdb.Error as error:
            raise SpecError(f"table {path}: not Parquet: {str(error).splitlines()[0]}") from None
    return {
        name: values.tolist() if np.ma.is_masked(values) else np.asarray(values) for name, values in columns.items()
    }  # tolist turns null into None; `filled` would turn it into 999999, even with None as fill value


def _check_parquet(path: Path) -> None:
    """Refuse files without Parquet's first and last bytes, with a clearer message than DuckDB's."""
    with path.open("rb") as file:
        begin = file.read(len(_MAGIC))
        if not begin:
            raise SpecError(f"table {path}: is empty; a Parquet file begins and ends with PAR1")
        file.seek(-len(begin), os.SEEK_END)
        if (begin, file.read()) != (_MAGIC, _MAGIC) or file.tell() < 2 * len(_MAGIC):
            raise SpecError(f"table {path}: is no Parquet file; one begins and ends with PAR1")


@contextmanager
def _plainly_named(path: Path) -> Iterator[Path]:
    """Yield a path to the file without pattern characters: DuckDB reads all files that match a pattern."""
    whole = path.resolve()
    if not _PATTERN.intersection(str(whole)):
        yield whole
        return
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "table.parquet"
        try:
            plain.symlink_to(whole)
        except OSError:  # links need privileges on some systems
            shutil.copyfile(whole, plain)
        yield plain


def _write_csv(path: Path, columns: Mapping[str, Any]) -> None:
    columns = {plain_cell(name): _plain_texts(column) for name, column in columns.items()}
    held = _arrays(columns)
    if held is not None:
        _copy(held, path, "format csv, header true")
        return
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*map(_plain, columns.values()), strict=True))


def _plain_texts(column: Any) -> Any:
    """Return a column without cells that spreadsheets run; arrays without such cells as they are."""
    if isinstance(column, np.ndarray):
        texts = column.dtype.kind == "O" or (
            column.dtype.kind == "U" and any(map(may_be_formula, np.unique(column.astype("U1")).tolist()))
        )
        return np.array(plain_cells(column.tolist()), dtype=object) if texts else column
    return plain_cells(column)


def _write_jsonl(path: Path, columns: Mapping[str, Any]) -> None:
    with path.open("w", encoding="utf-8") as file:
        for cells in zip(*map(_plain, columns.values()), strict=True):
            file.write(json.dumps({n: c for n, c in zip(columns, cells, strict=True) if c is not None}) + "\n")


def _write_parquet(path: Path, columns: Mapping[str, Any]) -> None:
    held = _arrays(columns)
    if held is not None:
        _copy(held, path, "format parquet")
        return
    kinds = {name: _kind(_plain(column)) for name, column in columns.items()}
    with tempfile.TemporaryDirectory() as folder, table_engine() as engine:
        lines = Path(folder) / "rows.jsonl"
        _write_jsonl(
            lines, {name: [_fitting(c, kinds[name]) for c in _plain(cells)] for name, cells in columns.items()}
        )
        named = ", ".join(f"'{name.replace(chr(39), chr(39) * 2)}': '{kind}'" for name, kind in kinds.items())
        read = f"read_json('{_quoted(lines)}', format='newline_delimited', columns={{{named}}})"
        engine.sql(f"copy (select * from {read}) to '{_quoted(path)}' (format parquet)")


def _kind(cells: Sequence[Any]) -> str:
    """Return the type of a column with gaps: DuckDB would guess it from the first rows.

    >>> _kind([None, 1, 2.5]), _kind([True, None]), _kind([16, "many"])
    ('DOUBLE', 'BOOLEAN', 'VARCHAR')
    """
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds == {bool}:
        return "BOOLEAN"
    if kinds == {int} and all(cell is None or -(2**63) <= cell < 2**63 for cell in cells):
        return "BIGINT"
    return "DOUBLE" if kinds and kinds <= {int, float} else "VARCHAR"


def _fitting(cell: Any, kind: str) -> Any:
    """Return a cell as JSON value of its column's type; non-finite numbers become text."""
    if isinstance(cell, str) or cell is None:
        return cell
    if kind == "VARCHAR":
        return json.dumps(cell)
    return str(cell) if isinstance(cell, float) and not math.isfinite(cell) else cell


def _arrays(columns: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return columns as arrays of one type each; none if a column has gaps or DuckDB is not installed."""
    arrays = {}
    for name, column in columns.items():
        array = np.asarray(column)
        if array.dtype.kind == "O" and set(map(type, array)) <= {str}:
            array = array.astype(str)
        if array.dtype.kind not in "iufU":
            return None
        arrays[name] = array
    return arrays if importlib.util.find_spec("duckdb") else None


def _copy(held: Mapping[str, Any], path: Path, options: str) -> None:
    """Write arrays to a file without a Python object per cell."""
    with table_engine() as engine:
        engine.register("held", held)
        engine.sql(f"copy held to '{_quoted(path)}' ({options})")


def _plain(column: Any) -> list[Any]:
    return list(column.tolist() if isinstance(column, np.ndarray) else column)


def _quoted(path: Path) -> str:
    return str(path).replace("'", "''")
