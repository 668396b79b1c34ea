"""Retention of samples: old samples are archived, the archive is verified, and only then rows are deleted."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, delete, func, insert, select, update

from nearpeak.core.history.alert import CLOSED
from nearpeak.errors import StoreError
from nearpeak.store.database import Store
from nearpeak.store.maintenance import ARCHIVED
from nearpeak.store.run_ingest import PLACE_BITS
from nearpeak.store.sql_dialect import reading, writing
from nearpeak.store.table_export import MANIFEST, export, sha256_of, verify
from nearpeak.store.table_schema import TABLES

NEAR_COMMITS = 20
"""Commits on either side of a change point whose samples are never archived."""
_DAY_NS = 86_400 * 10**9


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """What may be removed, or was."""

    runs: tuple[int, ...]
    """Runs whose samples are old and needed by nothing."""
    kept_count: int
    """Old runs whose samples stay: near a change point, in an open alert, or of a baseline."""
    sets_count: int
    """Sets of samples."""
    data_bytes: int
    """Bytes of the samples."""
    archive: Path | None
    """Where they went; none where nothing was removed yet."""


def plan(store: Store, days: float, *, now_ns: int | None = None) -> Retention:
    """Return what could be removed: samples of runs that began more than `days` ago; nothing is changed.

    Kept are runs within twenty commits of a change point that still holds, those of open alerts, and those that a
    named baseline selects. Summaries, findings and alerts are kept for ever.
    """
    border_ns = (time.time_ns() if now_ns is None else now_ns) - int(days * _DAY_NS)
    with reading(store.engine, store.name) as connection:
        r = TABLES["run"].c
        old = list(connection.execute(select(r.id).where(r.started_ns < border_ns).order_by(r.id)).scalars())
        needed = _needed(connection)
        runs = [run for run in old if run not in needed and _blobs_of(connection, run)[0]]
        sizes = [_blobs_of(connection, run) for run in runs]
    return Retention(
        runs=tuple(runs), kept_count=len(set(old) & needed), sets_count=sum(count for count, _ in sizes),
        data_bytes=sum(size for _, size in sizes), archive=None,
    )  # fmt: skip


def retain(store: Store, planned: Retention, archive: Path) -> Retention:
    """Write the samples of `planned` to an archive, read it back, and remove them run by run.

    Raises:
        StoreError: the archive does not hold what is to be removed; nothing is removed then.
    """
    if not planned.runs:
        return planned
    written = export(store, archive, runs=planned.runs)
    with reading(store.engine, store.name) as connection:
        m = TABLES["measurement"].c
        counted = select(func.coalesce(func.sum(m.n), 0)).where(m.sample_id.is_not(None))
        wanted = sum(int(connection.execute(counted.where(m.run_id == run)).scalar_one()) for run in planned.runs)
    if verify(archive)["sample"] != wanted:
        raise StoreError(f"{written.folder}: holds other samples than are to be removed; nothing was removed")
    for run in planned.runs:
        with writing(store.engine, store.name) as connection:
            _remove(connection, run)
    with writing(store.engine, store.name) as connection:
        connection.execute(insert(TABLES["retention_log"]).values(
            at_ns=time.time_ns(), archive=str(archive), manifest_hash=sha256_of(archive / MANIFEST),
            run_count=len(planned.runs), blob_count=planned.sets_count, byte_count=planned.data_bytes,
        ))  # fmt: skip
    return Retention(
        runs=planned.runs, kept_count=planned.kept_count, sets_count=planned.sets_count,
        data_bytes=planned.data_bytes, archive=archive,
    )  # fmt: skip


def _needed(connection: Connection) -> set[int]:
    """Return the runs whose samples something still refers to."""
    c, r = TABLES["change_point"].c, TABLES["run"].c
    member, alert = TABLES["alert_member"].c, TABLES["alert"].c
    in_alert = (
        select(member.change_point_id)
        .join(TABLES["alert"], alert.id == member.alert_id)
        .where(alert.status.not_in(CLOSED))
    )
    places = connection.execute(
        select(c.series_id, c.order_key).where(c.retracted_ns.is_(None) | c.id.in_(in_alert))
    ).all()
    needed: set[int] = set()
    reach = NEAR_COMMITS << PLACE_BITS
    for _, key in places:
        near = select(r.id).where(r.order_key.between(key - reach, key + reach))
        needed |= set(connection.execute(near).scalars())
    baselines = connection.execute(select(TABLES["baseline"].c.selector)).scalars().all()
    v = TABLES["revision"].c
    named = select(r.id).join(TABLES["revision"], v.id == r.revision_id).where(v.sha.in_(baselines))
    return needed | set(connection.execute(named).scalars())


def _blobs_of(connection: Connection, run: int) -> Sequence[int]:
    b = TABLES["sample_blob"].c
    within = (b.id >= run << PLACE_BITS) & (b.id < (run + 1) << PLACE_BITS)
    count, size = connection.execute(select(func.count(), func.sum(func.length(b.data))).where(within)).one()
    return int(count), int(size or 0)


def _remove(connection: Connection, run: int) -> None:
    m, b = TABLES["measurement"], TABLES["sample_blob"]
    connection.execute(
        update(m)
        .where(m.c.run_id == run, m.c.sample_id.is_not(None))
        .values(sample_id=None, flags=m.c.flags.op("|")(ARCHIVED))
    )
    within = (b.c.id >= run << PLACE_BITS) & (b.c.id < (run + 1) << PLACE_BITS)
    connection.execute(delete(b).where(within))
    r = TABLES["record_blob"]
    connection.execute(delete(r).where(r.c.run_id == run, r.c.kind == "telemetry"))
