"""Checks a file or URL before opening it as a store, and refuses anything that is not one without touching it."""

import os
import sqlite3
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

from sqlalchemy import URL, Connection, Engine

from nearpeak.base.folders import take_name
from nearpeak.errors import NotFoundError, SpecError, StoreError
from nearpeak.store.schema_versions import check_version, lock_schema, migrate, version_of
from nearpeak.store.sql_dialect import (
    APPLICATION_ID,
    engine_of,
    explained,
    name_of,
    pragma,
    reading,
    store_url,
    writing,
)
from nearpeak.store.sqlite_connection import connected, is_in_use, network_file_system
from nearpeak.store.table_schema import TABLES

ENVIRONMENT = "NEARPEAK_STORE"
"""Variable that names the store where no option does."""
_MAGIC = b"SQLite format 3\x00"
_NAMED_S = 0.2
"""How long a new name may be empty on a file system without hard links."""
_LOOK_S = 0.05
"""Longest look at the pages of a file when it is opened."""


def place_of(option: str | None) -> str:
    """Return the store that `--store` or the environment names.

    Raises:
        SpecError: neither does, or the option holds a password.
    """
    place = option or os.environ.get(ENVIRONMENT, "")
    if not place:
        raise SpecError(f"--store: is missing, and {ENVIRONMENT} is not set; e.g. --store results.db")
    if option and store_url(option).password:
        raise SpecError(
            "--store: holds a password, which others could read; use PGPASSWORD, a pgpass file or NEARPEAK_STORE"
        )
    return place


def engine_at(place: str, *, create: bool = False, durable: bool = False) -> tuple[Engine, str]:
    """Return the engine of the store at `place`, whose version is this nearpeak's, and its name for messages.

    Args:
        create: make the store where there is none.
        durable: SQLite: a commit survives a power cut too.

    Raises:
        NotFoundError: there is none.
        StoreError: what is there is no store, is damaged, or cannot be reached.
        SchemaVersionError: it is older or newer.
    """
    engine, name = unchecked_engine(place, create=create, durable=durable)
    try:
        with reading(engine, name) as connection:
            version = version_of(connection, f"{name}: ")
        check_version(name, version)
    except BaseException:
        engine.dispose()
        raise
    return engine, name


def unchecked_engine(place: str, *, create: bool = False, durable: bool = False) -> tuple[Engine, str]:
    """Return the engine of a store of any version, and its name."""
    url = store_url(place)
    name = name_of(url)
    if url.drivername == "sqlite":
        path = Path(str(url.database))
        if create and not _is_there(path):
            _make_file(path)
        _check_file(path)
        return engine_of(url, durable=durable), name
    engine = engine_of(url)
    if create:
        _make_tables(engine, name)
    return engine, name


def _make_tables(engine: Engine, name: str) -> None:
    """Make the tables of a store on a server that has none; of several processes at once one does, the others wait."""
    with reading(engine, name) as connection:
        if version_of(connection) is not None:
            return
    with writing(engine, name) as connection:
        lock_schema(connection)
        if version_of(connection) is None:
            _fill(connection)


def _make_file(path: Path) -> None:
    """Make an empty store that appears whole: a process that dies here leaves no file of that name."""
    if not path.parent.is_dir():
        raise StoreError(f"{path}: its folder does not exist")
    if not os.access(path.parent, os.W_OK):
        raise StoreError(f"{path}: its folder may not be written to")
    kind = network_file_system(path)
    if kind:
        sys.stderr.write(
            f"{path}: lies on {kind}; SQLite is safe on a local disk only, use PostgreSQL for several hosts\n"
        )
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        try:
            # It may hold commands for a farm: letting others at it is its owner's decision. SQLite's files beside it
            # get the mode that it has.
            os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            make_at(part)
        except StoreError as error:
            raise StoreError(str(error).replace(str(part), str(path))) from None
        except OSError as error:
            raise StoreError(f"{path}: cannot be made: {error.strerror}") from None
        with suppress(FileExistsError):  # another process was quicker; its store is as empty as ours
            take_name(part, path)
    finally:
        for suffix in ("", "-wal", "-shm", "-journal"):
            part.with_name(part.name + suffix).unlink(missing_ok=True)


def make_at(path: Path, version: str = "head") -> None:
    """Make the file of an empty store of some version, in place of nothing or of an empty file."""
    engine, name = engine_of(URL.create("sqlite", database=str(path)), durable=True), str(path)
    try:
        with writing(engine, name) as connection:
            _fill(connection, version)
            connection.exec_driver_sql(f"PRAGMA application_id={APPLICATION_ID}")
    finally:
        engine.dispose()
    pragma(path, "journal_mode=WAL")


def _fill(connection: Connection, version: str = "head") -> None:
    migrate(connection, version)
    rows = [{"name": "uid", "value": uuid.uuid4().hex}, {"name": "made_ns", "value": str(time.time_ns())}]
    connection.execute(TABLES["store_info"].insert(), rows)


def _check_file(path: Path) -> None:
    """Refuse what is no whole SQLite file, without writing to it."""
    if not _is_there(path):
        raise NotFoundError(f"{path}: there is no store; 'nearpeak store import … --store {path}' makes one")
    if path.is_dir():
        raise StoreError(f"{path}: is a folder; name a file")
    if is_in_use(path):
        return  # it was looked at when it was first opened
    _refuse_planted(path)
    head = _head(path)
    if not head:
        raise StoreError(f"{path}: is empty, no store; remove it or name another")
    if head[:16] != _MAGIC or len(head) < 100:
        raise StoreError(f"{path}: is no store: not an SQLite file, or its header is damaged; restore a backup")
    _check_length(path, head)
    _look(path)


def _refuse_planted(path: Path) -> None:
    """Refuse a log beside the file that a user made who may not write to the file: SQLite would play it back into it.

    In a folder such as /tmp, where all may make files, it would let anybody change the store.

    Source: SQLite, "Write-Ahead Log File Format" and "Atomic Commit In SQLite", hot rollback journals.
    """
    path = path.resolve()  # SQLite's files lie beside the file that a link leads to
    store = path.stat()
    if os.name != "posix" or store.st_mode & 0o022:  # others may write to it anyway
        return
    for suffix in ("-wal", "-journal", "-shm"):
        log = path.with_name(path.name + suffix)
        with suppress(FileNotFoundError):
            if log.lstat().st_uid not in (0, os.geteuid(), store.st_uid):
                raise StoreError(f"{log}: another user made it, who may not write to {path.name}; remove it")


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:  # a folder above it is closed to this user, or the name is too long
        raise StoreError(f"{path}: cannot be read: {error.strerror}") from None


def _head(path: Path) -> bytes:
    """Return the header of a file; where it is empty, what another process gives the name that it has just made."""
    deadline_s = time.monotonic() + _NAMED_S
    while True:
        try:
            with path.open("rb") as file:
                head = file.read(100)
        except OSError as error:
            raise StoreError(f"{path}: cannot be read: {error.strerror}") from None
        if head or time.monotonic() > deadline_s:
            return head
        time.sleep(0.01)


def _check_length(path: Path, head: bytes) -> None:
    """Refuse a file that was cut: its header counts the pages, unless its write-ahead log holds newer ones."""
    page_bytes = int.from_bytes(head[16:18], "big") or 1 << 16
    page_bytes = 1 << 16 if page_bytes == 1 else page_bytes
    counted = head[24:28] == head[92:96]
    wanted = int.from_bytes(head[28:32], "big") * page_bytes
    if counted and path.stat().st_size < wanted and not path.with_name(path.name + "-wal").exists():
        raise StoreError(
            f"{path}: is cut: {path.stat().st_size} of {wanted} bytes; restore a backup, or 'nearpeak store salvage'"
        )


def _look(path: Path) -> None:
    """Refuse a file whose pages contradict each other, as far as a short look shows."""
    deadline_s = time.monotonic() + _LOOK_S
    with explained(str(path)):
        connection = connected(path, options="mode=ro", timeout_s=5.0)
        try:
            connection.set_progress_handler(lambda: time.monotonic() > deadline_s, 10_000)
            (first,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        except sqlite3.OperationalError as error:
            if getattr(error, "sqlite_errorname", "") != "SQLITE_INTERRUPT":
                raise
            first = "ok"
        finally:
            connection.close()
    if first != "ok":
        first = " ".join(first.split())
        raise StoreError(
            f"{path}: is damaged ({first}); restore a backup, or 'nearpeak store salvage' copies what can be read"
        )
