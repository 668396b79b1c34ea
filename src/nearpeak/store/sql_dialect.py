"""Differences between SQLite and PostgreSQL: connections, transactions, insert-or-select, error classes."""

import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, Insert, Table, create_engine, event, func, make_url, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import ArgumentError, DBAPIError, SQLAlchemyError

from nearpeak.errors import MissingExtraError, SpecError, StoreError

BUSY_MS = 30_000
"""How long a writer waits for another one; a run of a million sets takes its time."""
PAGE_BYTES = 8192
"""SQLite page: larger ones pack sample blobs better."""
APPLICATION_ID = 0x6E70_6B31
"""Marks an SQLite file as a store of nearpeak."""
_INSERTS: dict[str, Callable[[Table, list[str]], Insert]] = {
    "sqlite": lambda table, unique: sqlite.insert(table).on_conflict_do_nothing(index_elements=unique),
    "postgresql": lambda table, unique: postgresql.insert(table).on_conflict_do_nothing(index_elements=unique),
}
"""How each engine inserts what is not there yet."""


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
        return _sqlite_engine(url, "FULL" if durable else "NORMAL")
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
def together(engine: Engine, name: str) -> Iterator[None]:
    """Make everything that is read and written within the block one transaction.

    Raises:
        StoreError: the store cannot be written; says why.
    """
    with writing(engine, name) as connection:
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
    with explained(name), engine.connect().execution_options(nearpeak_writes=True) as connection, connection.begin():
        yield connection


@contextmanager
def reading(engine: Engine, name: str) -> Iterator[Connection]:
    """Hold a transaction that sees one state of the store throughout.

    Raises:
        StoreError: the store cannot be read; says why.
    """
    if (held := _held(engine)) is not None:
        yield held
        return
    with explained(name), engine.connect() as connection, connection.begin():
        yield connection


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
        connection = sqlite3.connect(path, timeout=BUSY_MS / 1000, isolation_level=None)
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
        connection.execute(_INSERTS[connection.dialect.name](table, list(unique)), list(rows))


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


_FileKey = tuple[int, int] | None
_IN_USE: Counter[_FileKey] = Counter()
"""Connections of this process by file."""


def _file_key(path: Path) -> _FileKey:
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


def is_in_use(path: Path) -> bool:
    """Say whether this process has connections to a file: closing any descriptor of it would drop their locks.

    Another process then takes itself for the last one and removes the log; what is written to it later is lost.

    Source: POSIX, fcntl; SQLite, "How To Corrupt An SQLite Database File", section 2.2.
    """
    return (key := _file_key(path)) is not None and _IN_USE[key] > 0


def _sqlite_engine(url: URL, synchronous: str) -> Engine:
    engine = create_engine(url, connect_args={"timeout": BUSY_MS / 1000, "check_same_thread": False})

    @event.listens_for(engine, "connect")
    def _connected(connection: sqlite3.Connection, record: Any) -> None:
        connection.isolation_level = None  # the driver would begin transactions of its own, too late and too weak
        for pragma in (
            f"page_size={PAGE_BYTES}", f"busy_timeout={BUSY_MS}", "foreign_keys=ON", f"synchronous={synchronous}",
            "cache_size=-65536", "journal_size_limit=67108864",
        ):  # fmt: skip
            connection.execute(f"PRAGMA {pragma}")
        record.info["file"] = key = _file_key(Path(str(url.database)))
        _IN_USE[key] += 1

    @event.listens_for(engine, "close")
    def _closed(_: sqlite3.Connection, record: Any) -> None:
        _IN_USE[record.info.pop("file", None)] -= 1

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        writes = connection.get_execution_options().get("nearpeak_writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


NETWORK_FILE_SYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs", "lustre", "gpfs"})


def network_file_system(path: Path, mounts: str | None = None) -> str:
    """Return the network file system that `path` lies on; empty for a local one, or where the machine does not say.

    Args:
        mounts: text of /proc/mounts.

    >>> network_file_system(Path("/data/a.db"), "s:/x /data nfs4 rw 0 0")
    'nfs4'
    """
    if mounts is None:
        try:
            mounts = Path("/proc/mounts").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
    best, kind = "", ""
    whole = os.path.abspath(path)
    for line in mounts.splitlines():
        point, name = line.split()[1:3]
        inside = whole == point or whole.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, name
    return kind if kind in NETWORK_FILE_SYSTEMS else ""
