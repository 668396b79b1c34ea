"""Backup, upgrade, integrity check and repair of a store."""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

from sqlalchemy import Connection, Engine, func, inspect, select, text, update

from nearpeak.base.folders import take_name
from nearpeak.errors import SpecError, StoreError
from nearpeak.store.rows.row_copy import Copier, readable_rows
from nearpeak.store.sample_blobs import checksum
from nearpeak.store.schema_versions import check_version, lock_schema, migrate, version_of
from nearpeak.store.sql_dialect import engine_of, explained, is_sqlite, pragma, reading, store_url, writing
from nearpeak.store.sqlite_connection import PAGE_BYTES, connected
from nearpeak.store.store_check import make_at, unchecked_engine
from nearpeak.store.store_merge import reorder
from nearpeak.store.table_schema import HEAD, TABLES

DAMAGED, ARCHIVED = 1, 2
"""Flags of a measurement: its samples are damaged on disk; they lie in an archive."""
_HEADER_BYTES = 100


def backup(place: str, target: Path) -> Path:
    """Copy a store file as it is at one moment, while others may write to it; return the copy.

    Raises:
        SpecError: the target exists, or the store is no file.
    """
    path = _file_of(place, f"pg_dump --format=custom --file={target} DATABASE")
    try:
        return _copied(place, path, target)
    except FileExistsError:
        raise SpecError(f"{target}: exists already; a backup replaces nothing") from None


def _copied(place: str, path: Path, target: Path) -> Path:
    if target.exists():
        raise FileExistsError
    if not target.resolve().parent.is_dir():
        raise SpecError(f"{target}: its folder does not exist")
    unchecked_engine(place)[0].dispose()
    with tempfile.TemporaryDirectory(dir=target.resolve().parent, prefix=".nearpeak-") as folder:
        part = Path(folder) / target.name
        with explained(str(target)):
            source, copy = connected(path), sqlite3.connect(part)
            try:
                source.backup(copy)
            finally:
                source.close()
                copy.close()
        (first,) = pragma(part, "quick_check(1)")[0]
        if first != "ok":
            raise StoreError(f"{path}: is damaged ({first}), so that its copy would be; 'nearpeak store salvage' first")
        shutil.copymode(path, part)
        take_name(part, target)
    return target


def upgrade(place: str) -> tuple[str, str, str]:
    """Upgrade a store to the schema of this nearpeak; return old version, new version and path of the backup.

    Everything is one transaction: where anything fails, the store is what it was.

    Raises:
        StoreError: rows were lost, or the result is damaged.
    """
    engine, name = unchecked_engine(place)
    try:
        with reading(engine, name) as connection:
            before = version_of(connection)
        if before is None or before > HEAD:
            check_version(name, before)
        if before == HEAD:
            return HEAD, HEAD, ""
        copy = _saved(place, str(before), engine)
        with writing(engine, name) as connection:
            lock_schema(connection)
            if version_of(connection) == HEAD:  # another process upgraded it meanwhile
                return HEAD, HEAD, copy
            counted = _row_counts(connection)
            migrate(connection)
            _check_upgraded(connection, name, counted)
    finally:
        engine.dispose()
    return str(before), HEAD, copy


def check(engine: Engine, name: str, *, mark: bool = True) -> Iterator[str]:
    """Yield each fault of a store: pages, references, samples whose checksum differs, measurements without samples.

    Args:
        mark: flag measurements whose samples are damaged, so that they are not taken for good.
    """
    with reading(engine, name) as connection:
        if is_sqlite(connection):
            yield from _file_faults(connection)
        damaged = list(_damaged_samples(connection))
        yield from (words for _, _, _, words in damaged)
        yield from _missing_samples(connection)
        r, v = TABLES["run"].c, TABLES["revision"].c
        placed = select(r.id, r.order_key, v.fp_pos).join_from(TABLES["run"], TABLES["revision"], v.id == r.revision_id)
        for run, key, position in connection.execute(placed.where(v.fp_pos.is_not(None))):
            if key >> 20 != position:
                yield (
                    f"run {run}: stands elsewhere in history than its commit; give --repository to order all runs again"
                )
    if mark and damaged:
        m = TABLES["measurement"]
        with writing(engine, name) as connection:
            for run, series, launch, _ in damaged:
                where = (m.c.run_id == run) & (m.c.series_id == series) & (m.c.launch == launch)
                connection.execute(update(m).where(where).values(flags=m.c.flags.op("|")(DAMAGED)))


def salvage(place: str, target: Path) -> tuple[int, list[str]]:
    """Copy what can still be read of a damaged file into a new store; return how many runs, and what was lost.

    The damaged file is not changed. Runs are copied whole or not at all.

    Raises:
        SpecError: the target exists, or the store is no file.
        StoreError: nothing can be read.
    """
    path = _file_of(place, "pg_restore")
    if target.exists():
        raise SpecError(f"{target}: exists already; salvage writes a new store")
    if not path.is_file():
        raise SpecError(f"{path}: is no file")
    if not target.resolve().parent.is_dir():
        raise SpecError(f"{target}: its folder does not exist")
    with tempfile.TemporaryDirectory(dir=target.resolve().parent, prefix=".nearpeak-") as folder:
        work, part = Path(folder) / "damaged.db", Path(folder) / target.name
        make_at(part)
        shutil.copymode(path, part)
        _patched_copy(path, work, part)
        try:
            answer = _salvaged(work, part)
            take_name(part, target)
        except FileExistsError:
            raise SpecError(f"{target}: exists already; salvage writes a new store") from None
        except StoreError as error:
            raise StoreError(f"{path}: nothing can be read of it ({error}); restore a backup") from None
        return answer


def _file_of(place: str, instead: str) -> Path:
    url = store_url(place)
    if url.drivername != "sqlite":
        raise SpecError(f"{url.render_as_string()}: is no file; PostgreSQL has its own tools: {instead}")
    return Path(str(url.database))


def _saved(place: str, version: str, engine: Engine) -> str:
    if not is_sqlite(engine):
        return f"none: save it first with pg_dump --format=custom {engine.url.database}"
    path = Path(str(store_url(place).database))
    names = (f"{path.name}.{version}{'' if number == 1 else f'-{number}'}.backup" for number in count(1))
    while True:
        with suppress(FileExistsError):
            return str(_copied(place, path, path.with_name(next(names))))


def _row_counts(connection: Connection) -> dict[str, int]:
    names = [name for name in inspect(connection).get_table_names() if name != "alembic_version"]
    return {name: int(connection.execute(text(f'SELECT count(*) FROM "{name}"')).scalar_one()) for name in names}


def _check_upgraded(connection: Connection, name: str, counted: dict[str, int]) -> None:
    after = _row_counts(connection)
    lost = {table: (count, after.get(table)) for table, count in counted.items() if after.get(table) != count}
    if lost:
        raise StoreError(f"{name}: the upgrade would lose rows of {', '.join(sorted(lost))}; nothing was changed")
    faults = list(_file_faults(connection)) if is_sqlite(connection) else []
    if faults:
        raise StoreError(f"{name}: {faults[0]}; nothing was changed")


def _file_faults(connection: Connection) -> Iterator[str]:
    for (words,) in connection.execute(text("PRAGMA integrity_check(20)")):
        if words != "ok":
            yield f"pages: {' '.join(words.split())}"
    for table, row, parent, _ in connection.execute(text("PRAGMA foreign_key_check")):
        yield f"{table}: row {row} refers to a {parent} that is not there"


def _damaged_samples(connection: Connection) -> Iterator[tuple[int, int, int, str]]:
    m, b, c = TABLES["measurement"].c, TABLES["sample_blob"].c, TABLES["channel_blob"].c
    plain = select(m.run_id, m.series_id, m.launch, b.crc32, b.data).join_from(
        TABLES["measurement"], TABLES["sample_blob"], m.sample_id == b.id
    )
    beside = select(c.run_id, c.series_id, c.launch, c.crc32, c.data)
    r = TABLES["record_blob"].c
    records = select(r.run_id, r.series_id, r.launch, r.crc32, r.data)
    for query in (plain, beside, records):
        for run, series, launch, crc32, data in connection.execution_options(yield_per=1000).execute(query):
            if checksum(data) != crc32:
                words = f"run {run}, series {series}, launch {launch}: its samples are damaged (checksum differs)"
                yield run, series, launch, words


def _missing_samples(connection: Connection) -> Iterator[str]:
    m, b = TABLES["measurement"].c, TABLES["sample_blob"].c
    archived = m.flags.op("&")(ARCHIVED) != 0
    query = (
        select(m.run_id, m.series_id)
        .outerjoin_from(TABLES["measurement"], TABLES["sample_blob"], m.sample_id == b.id)
        .where(m.n > 0, b.id.is_(None), ~archived)
    )
    for run, series in connection.execute(query):
        yield f"run {run}, series {series}: its samples are missing"
    owned = select(m.sample_id).where(m.sample_id.is_not(None))
    orphans = connection.execute(select(func.count()).select_from(TABLES["sample_blob"]).where(b.id.not_in(owned)))
    count = orphans.scalar_one()
    if count:
        yield f"{count} sets of samples belong to no measurement"


def _patched_copy(path: Path, work: Path, sound: Path) -> None:
    """Copy a damaged file with the header of a sound one, which states pages of the same size.

    Its write-ahead log is copied where SQLite still accepts it: it may hold the newest commits.
    """
    shutil.copy(path, work)
    wal = path.with_name(path.name + "-wal")
    if wal.exists():
        shutil.copy(wal, work.with_name(work.name + "-wal"))
    with suppress(StoreError):
        if pragma(work, "quick_check(1)")[0] == ("ok",):
            return
    pages = work.stat().st_size // PAGE_BYTES
    with sound.open("rb") as file:
        header = bytearray(file.read(_HEADER_BYTES))
    header[28:32] = pages.to_bytes(4, "big")
    header[32:40] = bytes(8)  # no free pages: they would be taken from where the damage is
    for suffix in ("-wal", "-shm"):
        work.with_name(work.name + suffix).unlink(missing_ok=True)
    with work.open("r+b") as file:
        file.write(header)
        file.truncate(pages * PAGE_BYTES)
        os.fsync(file.fileno())


def _salvaged(work: Path, target: Path) -> tuple[int, list[str]]:
    lost: list[str] = []
    old, new = engine_of(store_url(str(work))), engine_of(store_url(str(target)))
    try:
        # The damaged file is left by closing it: even ending a transaction of reading could fail there.
        with explained(str(work)), old.connect() as source, writing(new, str(target)) as connection:
            copier = Copier(source, connection, tolerant=True)
            copier.dimensions()
            saved = sum(
                _salvage_run(copier, connection, run, lost)
                for run in sorted(int(row["id"]) for row in readable_rows(source, TABLES["run"]))
            )
            copier.superseded()
            try:
                with connection.begin_nested(), explained("findings"):
                    copier.findings()
            except StoreError as error:
                lost.append(str(error))
            reorder(connection)
    finally:
        old.dispose()
        new.dispose()
    return saved, lost


def _salvage_run(copier: Copier, connection: Connection, run: int, lost: list[str]) -> bool:
    try:
        with connection.begin_nested(), explained(f"run {run}"):
            return copier.run(run)
    except StoreError as error:
        lost.append(str(error))
    except LookupError:
        lost.append(f"run {run}: what it refers to cannot be read")
    return False
