"""Read-only access to profiler SQLite files; damage ends a table and is recorded as a loss."""

import os
import re
import shutil
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

from nearpeak.core.traces.trace import END
from nearpeak.errors import SpecError
from nearpeak.traces.reading.table_rows import EventRows

MAGIC = b"SQLite format 3\x00"
_BATCH = 50_000
_UUID = "_[0-9A-Fa-f]{8}(?:[_-]?[0-9A-Fa-f]{4}){3}[_-]?[0-9A-Fa-f]{12}"
_DAMAGE = (sqlite3.Error, OverflowError, MemoryError, UnicodeDecodeError)
"""What a damaged file makes the library raise; messages that quote damaged names cannot even be decoded."""
_MOST_TIMES = 1000
"""A file that says it is this many times as long as it is does not know its length."""
_LEAST_ROW_BYTES = 4
"""A row takes more: a table with more rows than the file has room for runs in a circle."""


_LONGEST_CELL_BYTES = 1 << 24
_TICK_STEPS, _LEAST_STEPS, _STEPS_PER_BYTE = 1_000_000, 1_000_000_000, 1_000
"""Steps of SQLite's virtual machine between two looks; that every file may take, and for each of its bytes: a row of
many bytes takes about a hundred."""


class Database:
    """Tables of one file."""

    def __init__(self, connection: sqlite3.Connection, path: Path, rows: EventRows) -> None:
        """Probe which tables there are.

        Raises:
            SpecError: the file is no database, or its list of tables is damaged.
        """
        self._connection, self.path, self._rows = connection, path, rows
        self._most = path.stat().st_size // _LEAST_ROW_BYTES + 1
        try:
            tables = connection.execute(
                "select name, sql from sqlite_master where type in ('table', 'view')"
            ).fetchall()
        except _DAMAGE as error:
            raise _unreadable(path, error) from None
        self.tables = {str(name): str(sql) for name, sql in tables}

    def suffixes(self, *stems: str) -> tuple[str, ...]:
        """Return the suffixes of the form _<uuid> of tables with these stems, or the empty one where there are none.

        Ids count within one suffix only, so that a view over several of them is no table of its own.
        """
        suffixed = re.compile("(?:" + "|".join(map(re.escape, stems)) + f")({_UUID})")
        suffixes = {match[1] for name in self.tables if (match := suffixed.fullmatch(name))}
        return tuple(sorted(suffixes)) or ("",)

    def columns(self, table: str) -> tuple[str, ...]:
        """Return the columns of a table."""
        try:
            return tuple(str(row[1]) for row in self._connection.execute(f"pragma table_info({_quoted(table)})"))
        except _DAMAGE as error:
            self._rows.lose("dropped", f"table {table}", example=_line(error))
            return ()

    def count(self, table: str) -> int:
        """Return how many rows a table has; 1 where damage hides it."""
        try:
            return int(self._connection.execute(f"select count(*) from {_quoted(table)}").fetchone()[0])
        except _DAMAGE:
            return 1

    def read(
        self, table: str, wanted: Sequence[str], *, needed: Sequence[str] = ()
    ) -> Iterator[list[Sequence[object]]]:
        """Yield batches of a table, one sequence of cells per wanted column; a column that is absent holds none.

        Args:
            needed: columns without which the table says nothing.
        """
        there = self.columns(table)
        if lost := [name for name in needed if name not in there]:
            if there:
                self._rows.lose("dropped", f"table {table}", example=f"it has no column {', '.join(lost)}")
            return
        have = [name for name in wanted if name in there]
        count = 0
        try:
            cursor = self._connection.execute(f"select {', '.join(map(_quoted, have))} from {_quoted(table)}")
            for rows, damage in _batches(cursor):
                if rows:
                    columns = dict(zip(have, zip(*rows, strict=True), strict=True))
                    yield [columns.get(name, (None,) * len(rows)) for name in wanted]
                    count += len(rows)
                if damage is not None:
                    raise damage
                if count > self._most:
                    raise sqlite3.DatabaseError("it has more rows than the file has room for")
        except _DAMAGE as error:
            self._rows.lose("dropped", f"rest of table {table}", example=f"after {count} rows: {_line(error)}")

    def pairs(self, table: str, key: str, value: str) -> dict[object, object]:
        """Return a small table as a mapping; empty where it is absent."""
        if table not in self.tables:
            return {}
        mapping: dict[object, object] = {}
        for keys, values in self.read(table, (key, value), needed=(key, value)):
            mapping.update(zip(keys, values, strict=True))
        return mapping


def _batches(cursor: sqlite3.Cursor) -> Iterator[tuple[list[Any], Exception | None]]:
    """Yield rows in batches; where damage ends them, those before it, and the damage."""
    while True:
        rows: list[Any] = []
        try:
            for row in islice(cursor, _BATCH):
                rows.append(row)  # what came before an error must be kept
        except _DAMAGE as error:
            yield rows, error
            return
        if not rows:
            return
        yield rows, None


def _stated_bytes(path: Path) -> int:
    """Return how large a file says it is; 0 where its header cannot be trusted.

    Source: sqlite.org/fileformat2.html, section 1.3: page size at byte 16, change counter at 24, pages at 28, the
    change for which that count holds at 92.
    """
    with path.open("rb") as file:
        head = file.read(100)
    if len(head) < 100 or head[24:28] != head[92:96]:
        return 0
    page = int.from_bytes(head[16:18])
    return int.from_bytes(head[28:32]) * (65536 if page == 1 else page)


@contextmanager
def opened(path: Path, rows: EventRows) -> Iterator[Database]:
    """Open a file read-only; what a log beside it holds that was not yet written into it is noted as lost.

    Raises:
        SpecError: it is no database.
    """
    log = path.with_name(f"{path.name}-wal")
    if log.is_file() and log.stat().st_size:
        rows.lose("dropped", "rows that are only in the write-ahead log", example=f"{log.name}: close its writer first")
    with _at_stated_length(path, rows) as file:
        yield from _connected(file, path, rows)


def _connected(file: Path, path: Path, rows: EventRows) -> Iterator[Database]:
    try:
        connection = sqlite3.connect(f"file:{quote(str(file.absolute()))}?mode=ro&immutable=1", uri=True)
    except _DAMAGE as error:
        raise SpecError(f"{path.name}: cannot be opened: {_line(error)}") from None
    try:
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        for pragma in ("cell_size_check = on", "trusted_schema = off", "cache_size = -65536"):
            connection.execute(f"pragma {pragma}")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_CELL_BYTES)
        # A view may compute without end; an interrupted statement is damage like any other.
        budget = iter(range(1 + (_LEAST_STEPS + _STEPS_PER_BYTE * path.stat().st_size) // _TICK_STEPS))
        connection.set_progress_handler(lambda: next(budget, -1) < 0, _TICK_STEPS)
        yield Database(connection, path, rows)
    except _DAMAGE as error:
        raise _unreadable(path, error) from None
    finally:
        connection.close()


@contextmanager
def _at_stated_length(path: Path, rows: EventRows) -> Iterator[Path]:
    """Yield the file, or where its end is lost a copy as long as it says it is: the library opens no shorter one."""
    size, stated = path.stat().st_size, _stated_bytes(path)
    if size >= stated or stated > _MOST_TIMES * size:
        yield path
        return
    rows.lose("dropped", f"{END} the file", example=f"{size:,} of {stated:,} bytes are there")
    with TemporaryDirectory() as folder:
        copy = Path(folder) / "whole.sqlite"
        try:
            shutil.copyfile(path, copy)
            os.truncate(copy, stated)  # no space is taken for what is lost
        except OSError as error:
            raise SpecError(f"{path.name}: is cut off, and cannot be copied to be read: {error.strerror}") from None
        yield copy


def _unreadable(path: Path, error: BaseException) -> SpecError:
    size, stated = path.stat().st_size, _stated_bytes(path)
    cut = f", cut off after {size:,} of {stated:,} bytes and with them its list of tables" if size < stated else ""
    return SpecError(f"{path.name}: is no SQLite file that can be read{cut}: {_line(error)}")


def _line(error: BaseException) -> str:
    """Return the message of an error in one line."""
    return " ".join(str(error).split())


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def schema_of(path: Path) -> bytes:
    """Return the statements that made the tables of a file, wherever they stand in it; nothing where they are lost."""
    try:
        connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)
        try:
            connection.text_factory = bytes
            return b"\n".join(sql for (sql,) in connection.execute("select sql from sqlite_master") if sql)
        finally:
            connection.close()
    except _DAMAGE:
        return b""
