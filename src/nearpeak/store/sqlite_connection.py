"""SQLite connections: settings, locks that this process holds, and reading where no file can be written."""

import errno
import os
import shutil
import sqlite3
import tempfile
import threading
import weakref
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DisconnectionError

from nearpeak.errors import StoreError

BUSY_MS = 30_000
"""How long a writer waits for another one; a run of a million sets takes its time."""
PAGE_BYTES = 8192
"""SQLite page: larger ones pack sample blobs better."""
_REFUSALS = {
    "SQLITE_CANTOPEN": "the file cannot be written: it, or its folder, is read-only",
    "SQLITE_READONLY": "the file cannot be written: it, or its folder, is read-only",
    "SQLITE_FULL": "no space left; nothing was written; make room, or archive samples with 'nearpeak store retain'",
    "SQLITE_IOERR": "the disk failed, or no space is left; nothing was written",
}
"""Errors of SQLite that end a connection which could still read, and what a writer is told."""
_TRIES = 5
_FileKey = tuple[int, int] | None
_Identity = tuple[tuple[int, int], ...]
_FILES: weakref.WeakKeyDictionary[Any, _FileKey] = weakref.WeakKeyDictionary()
"""Files by connection of this process; a connection that nobody holds leaves, as another file may take its number."""
_FILES_LOCK = threading.Lock()


class ReadOnlyConnection(sqlite3.Connection):
    """A connection that needs no file beside the store: SQLite's own index of its log could not be written."""

    path: Path
    """The store."""
    identity: _Identity
    """Times and sizes of the store's files when it was opened."""
    reason: str
    """Why nothing can be written."""
    copy: tempfile.TemporaryDirectory[str] | None = None
    """Folder of the copy that it reads, where the log holds commits that the file lacks."""

    def is_current(self) -> bool:
        """Return whether the store is still what was opened."""
        return self.identity == _identity(self.path)

    def close(self) -> None:
        """Close the connection, and remove what it read from."""
        super().close()
        if self.copy is not None:
            self.copy.cleanup()


def connected(path: Path, *, options: str = "", timeout_s: float = BUSY_MS / 1000) -> sqlite3.Connection:
    """Return a connection to a store file; one that only reads where its folder or disk takes no more files.

    SQLite keeps an index of the log beside the file, even for readers. Where that cannot be made, the file is read as
    one that nobody changes; commits that only the log holds are read from a temporary copy.

    Args:
        options: of SQLite's URI, e.g. `mode=ro`.

    Raises:
        sqlite3.Error: it cannot be read.
        StoreError: this user may not read it, or it was written to all the while that it was copied.
    """
    place = f"{path.resolve().as_uri()}?{options}" if options else str(path)
    if os.path.exists(path) and not os.access(path, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
        raise StoreError(f"{path}: cannot be read: {os.strerror(errno.EACCES)}")
    connection = sqlite3.connect(place, uri=bool(options), timeout=timeout_s, check_same_thread=False)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        connection.close()
        reasons = [words for code, words in _REFUSALS.items() if error.sqlite_errorname.startswith(code)]
        if not reasons:
            raise
        return _read_only(path, reasons[0])
    except BaseException:
        connection.close()
        raise
    return connection


def _read_only(path: Path, reason: str) -> ReadOnlyConnection:
    log = path.with_name(path.name + "-wal")
    for _ in range(_TRIES):
        identity, place, copy = _identity(path), f"{path.resolve().as_uri()}?immutable=1", None
        if log.exists() and log.stat().st_size:
            copy = _copied(path, log)
            place = (Path(copy.name) / path.name).as_uri()
        if identity == _identity(path):
            break
    else:
        raise StoreError(f"{path}: was written to while it was read, without a lock; read a backup of it")
    connection = sqlite3.connect(place, uri=True, check_same_thread=False, factory=ReadOnlyConnection)
    connection.path, connection.identity, connection.reason, connection.copy = path, identity, reason, copy
    connection.execute("PRAGMA temp_store=MEMORY")
    connection.execute("PRAGMA query_only=ON")
    return connection


def _copied(*files: Path) -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="nearpeak-store-")
    try:
        for file in files:
            shutil.copyfile(file, Path(folder.name) / file.name)
    except OSError as error:
        folder.cleanup()
        raise StoreError(
            f"{files[0]}: nothing can be written beside it, and its log holds commits, which are read from a copy; the"
            f" copy failed: {error.strerror}; TMPDIR names a folder with room for it"
        ) from None
    return folder


def _identity(path: Path) -> _Identity:
    files = (path, path.with_name(path.name + "-wal"))
    stats = [file.stat() for file in files if file.exists()]
    return tuple((stat.st_mtime_ns, stat.st_size) for stat in stats if stat.st_size)


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
    key = _file_key(path)
    with _FILES_LOCK:
        return key is not None and key in _FILES.values()


def sqlite_engine(url: URL, synchronous: str) -> Engine:
    """Return the engine of a store file; `synchronous` is SQLite's setting of that name."""
    path = Path(str(url.database))
    engine = create_engine(url, creator=lambda: connected(path))

    @event.listens_for(engine, "connect")
    def _connected(connection: sqlite3.Connection, record: Any) -> None:
        connection.isolation_level = None  # the driver would begin transactions of its own, too late and too weak
        for pragma in (
            f"page_size={PAGE_BYTES}", "foreign_keys=ON", f"synchronous={synchronous}", "cache_size=-65536",
            "journal_size_limit=67108864",
        ):  # fmt: skip
            connection.execute(f"PRAGMA {pragma}")
        with _FILES_LOCK:
            _FILES[record] = _file_key(path)

    @event.listens_for(engine, "checkout")
    def _checked_out(connection: sqlite3.Connection, *_: object) -> None:
        if isinstance(connection, ReadOnlyConnection) and not connection.is_current():
            raise DisconnectionError  # the pool opens another one

    @event.listens_for(engine, "close")
    def _closed(_: sqlite3.Connection, record: Any) -> None:
        with _FILES_LOCK:
            _FILES.pop(record, None)

    @event.listens_for(engine, "begin")
    def _begun(connection: Connection) -> None:
        writes = connection.get_execution_options().get("nearpeak_writes")
        reader = reader_of(connection)
        if writes and reader is not None:
            raise StoreError(f"{path}: {reader.reason}")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def reader_of(connection: Connection) -> ReadOnlyConnection | None:
    """Return the connection of the driver where it can only read; none for others."""
    driver: object = connection.connection.dbapi_connection
    return driver if isinstance(driver, ReadOnlyConnection) else None


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
