"""Differences between SQLite and PostgreSQL: connections, transactions, insert-or-select, error classes."""

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, Table, create_engine, func, make_url, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from nearpeak.errors import MissingExtraError, SpecError, StoreError
from nearpeak.store.sqlite_connection import BUSY_MS, connected, reader_of, sqlite_engine

APPLICATION_ID = 0x6E70_6B31
"""Marks an SQLite file as a store of nearpeak."""
_INSERTS: dict[str, Callable[[Table], Any]] = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}
"""Statements of each engine that insert what is not there yet, or change what is."""


def store_url(place: str) -> URL:
    """Return the URL of a store that is named by a path or by a URL.

    Raises:
        SpecError: it is neither, or of an engine that nearpeak does not know.

    >>> store_url("results.db").database, store_url("postgresql://me@host/perf").drivername
    ('results.db', 'postgresql+psycopg')
    """
    if "://" not in place:
        return URL.create("sqlite", database=place)
    try:
        url = make_url(place)
    except (ArgumentError, ValueError):
        raise SpecError(
            f"store {place.rsplit('@', maxsplit=1)[-1]!r}: is no URL; e.g. postgresql+psycopg://user@host/name"
        ) from None
    if url.drivername in ("postgresql", "postgresql+psycopg"):
        return url.set(drivername="postgresql+psycopg")
    if url.drivername != "sqlite" or not url.database:
        raise SpecError(f"store {url.render_as_string()}: is neither a file nor postgresql+psycopg://…")
    return url


def name_of(url: URL) -> str:
    """Return what messages call a store; a password never shows.

    >>> name_of(store_url("postgresql://me:secret@host/perf"))
    'postgresql+psycopg://me:***@host/perf'
    """
    return str(url.database) if url.drivername == "sqlite" else url.render_as_string(hide_password=True)


def engine_of(url: URL, *, durable: bool = False) -> Engine:
    """Return the engine of a store; nothing is opened or made yet.

    Args:
        durable: SQLite only: a commit survives a power cut, not only a kill; slower.
    """
    if url.drivername == "sqlite":
        return sqlite_engine(url, "FULL" if durable else "NORMAL")
    try:
        import psycopg  # noqa: F401
    except ImportError:
        raise MissingExtraError(f"{name_of(url)}: PostgreSQL needs psycopg; pip install 'nearpeak[postgres]'") from None
    return create_engine(url, pool_pre_ping=True, connect_args={"application_name": "nearpeak", "connect_timeout": 10})


def is_sqlite(connection: Connection | Engine) -> bool:
    """Say whether the store is a file."""
    return connection.dialect.name == "sqlite"


_HELD: ContextVar[tuple[Engine, Connection] | None] = ContextVar("nearpeak_held", default=None)
"""Current transaction that nested calls join, and its engine."""


@contextmanager
def together(engine: Engine, name: str, claimed: str = "") -> Iterator[None]:
    """Make everything that is read and written within the block one transaction.

    Args:
        claimed: what only one process does at a time; see `claim`.

    Raises:
        StoreError: the store cannot be written; says why.
    """
    with writing(engine, name) as connection:
        if claimed:
            claim(connection, claimed)
        before = _HELD.set((engine, connection))
        try:
            yield
        finally:
            _HELD.reset(before)


def _held(engine: Engine) -> Connection | None:
    held = _HELD.get()
    return held[1] if held is not None and held[0] is engine else None


@contextmanager
def writing(engine: Engine, name: str) -> Iterator[Connection]:
    """Hold a transaction that may write, committed at the end of the block, and undone where it raises.

    On SQLite it holds the only right to write from its start: one that asks later fails at once when another writer
    was quicker, independent of the timeout.

    Raises:
        StoreError: the store cannot be written; says why.
    """
    if (held := _held(engine)) is not None:
        yield held
        return
    with explained(name), engine.connect().execution_options(nearpeak_writes=True) as connection:
        if is_sqlite(connection) and reader_of(connection) is not None:
            connection.invalidate()  # space may have been made since
        with connection.begin():
            yield connection


@contextmanager
def reading(engine: Engine, name: str) -> Iterator[Connection]:
    """Hold a transaction that sees one state of the store throughout.

    It needs no right to write: on SQLite no file is made where none can be, on PostgreSQL no row is locked.

    Raises:
        StoreError: the store cannot be read; says why.
    """
    if (held := _held(engine)) is not None:
        yield held
        return
    options = {} if is_sqlite(engine) else {"isolation_level": "REPEATABLE READ"}
    with explained(name), engine.connect().execution_options(**options) as connection, connection.begin():
        yield connection
        if is_sqlite(connection) and (reader := reader_of(connection)) is not None and not reader.is_current():
            raise StoreError(f"{name}: was written to while it was read; read it again")


def claim(connection: Connection, name: str) -> None:
    """Wait until no other transaction has claimed `name`; on SQLite the transaction is the only writer anyway."""
    if not is_sqlite(connection):
        connection.execute(select(func.pg_advisory_xact_lock(func.hashtextextended(name, 0))))


def now_ns(connection: Connection) -> int:
    """Return the time of the database in ns since 1970 UTC, the only clock that leases go by."""
    text = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER) * 1000000"
    if not is_sqlite(connection):
        text = "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint) * 1000"
    return int(connection.exec_driver_sql(f"SELECT {text}").scalar_one())


def pragma(path: Path, words: str) -> tuple[Any, ...]:
    """Return what a pragma of SQLite answers, on a connection of its own, outside any transaction."""
    with explained(str(path)):
        connection = connected(path)
        connection.isolation_level = None
        try:
            return tuple(connection.execute(f"PRAGMA {words}").fetchall())
        finally:
            connection.close()


def add_rows(connection: Connection, table: Table, rows: Sequence[tuple[Any, ...]]) -> None:
    """Insert many whole rows, by the quickest way that the engine has.

    Args:
        rows: values in the order of the table's columns.
    """
    if not rows:
        return
    names = ", ".join(column.name for column in table.columns)
    if is_sqlite(connection):
        holes = ", ".join("?" * len(table.columns))
        connection.exec_driver_sql(f"INSERT INTO {table.name} ({names}) VALUES ({holes})", list(rows))
        return
    types = [_COPIED[type(column.type).__name__] for column in table.columns]
    cursor = connection.connection.cursor()
    with cursor.copy(f"COPY {table.name} ({names}) FROM STDIN (FORMAT BINARY)") as copy:
        copy.set_types(types)
        for row in rows:
            copy.write_row(row)


_COPIED = {"BigInteger": "int8", "Double": "float8", "Text": "text", "LargeBinary": "bytea"}
"""What PostgreSQL calls each type when rows are copied in its binary form."""


def insert_new(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]], unique: Sequence[str]) -> None:
    """Insert those of `rows` whose `unique` columns no row has yet."""
    if rows:
        statement = _INSERTS[connection.dialect.name](table).on_conflict_do_nothing(index_elements=list(unique))
        connection.execute(statement, list(rows))


def put_row(
    connection: Connection, table: Table, row: Mapping[str, Any], unique: Sequence[str], *, kept: Sequence[str] = ()
) -> None:
    """Insert a row, or give the one with the same `unique` columns its other values.

    Args:
        kept: columns that a row which is there keeps.
    """
    changed = {name: value for name, value in row.items() if name not in (*unique, *kept)}
    statement = _INSERTS[connection.dialect.name](table).values(dict(row))
    connection.execute(statement.on_conflict_do_update(index_elements=list(unique), set_=changed))


def id_of(connection: Connection, table: Table, row: Mapping[str, Any], unique: Sequence[str]) -> int:
    """Return the id of the row with the `unique` columns of `row`, which is inserted where there is none."""
    query = select(table.c.id).where(*(table.c[name] == row[name] for name in unique))
    number = connection.execute(query).scalar()
    if number is None:
        insert_new(connection, table, [row], unique)
        number = connection.execute(query).scalar_one()
    return int(number)


@contextmanager
def explained(name: str) -> Iterator[None]:
    """Turn what an engine raises into one line that says what to do.

    Args:
        name: what the line calls the store.
    """
    try:
        yield
    except DBAPIError as error:
        raise StoreError(f"{name}: {_reason(error.orig)}") from error
    except SQLAlchemyError as error:
        raise StoreError(f"{name}: {_line(error)}") from error
    except sqlite3.Error as error:
        raise StoreError(f"{name}: {_reason(error)}") from error
    except UnicodeEncodeError as error:  # bytes of a command line or a file name that are no text
        raise StoreError(f"{name}: {str(error.object)[:60]!r} is no text that a database keeps") from None


_REASONS = {
    "SQLITE_FULL": "no space left; nothing was written; make room, or archive samples with 'nearpeak store retain'",
    "SQLITE_BUSY": f"another process has been writing for more than {BUSY_MS / 1000:g} s; try again when it is done",
    "SQLITE_LOCKED": "another connection of this process is writing; try again when it is done",
    "SQLITE_CORRUPT": "the file is damaged; 'nearpeak store salvage' copies what can still be read",
    "SQLITE_NOTADB": "is no store: not an SQLite file, or its header is damaged",
    "SQLITE_READONLY": "the file cannot be written: it, or its folder, is read-only",
    "SQLITE_CANTOPEN": "cannot be opened; does its folder exist, and may it be read?",
    "SQLITE_IOERR": "the disk failed, or no space is left; nothing was written",
    "SQLITE_PERM": "may not be opened by this user",
    "SQLITE_TOOBIG": "a value is larger than SQLite takes",
}


def _reason(error: BaseException | None) -> str:
    code = getattr(error, "sqlite_errorname", "") or ""
    for known, words in _REASONS.items():
        if code.startswith(known):
            return words
    state = getattr(error, "sqlstate", None) or ""
    if state.startswith("53"):
        return f"PostgreSQL has no room: {_line(error)}; nothing was written"
    if type(error).__name__ == "OperationalError" and not code:
        return f"cannot be reached: {_line(error)}"
    return _line(error)


def _line(error: BaseException | None) -> str:
    return " ".join(str(error).split())[:300]
