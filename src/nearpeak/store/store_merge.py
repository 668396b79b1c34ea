"""Merge of one store into another: idempotent, and independent of the direction."""

from collections.abc import Iterable

from sqlalchemy import Connection, select, update

from nearpeak.core.history.stored_run import Revision
from nearpeak.store import newest_runs
from nearpeak.store.database import Store
from nearpeak.store.rows.row_copy import Copier
from nearpeak.store.run_ingest import lock_runs, order_key
from nearpeak.store.sql_dialect import reading, writing
from nearpeak.store.table_schema import TABLES


def merge(source: Store, target: Store) -> int:
    """Copy every run of `source` that `target` lacks, with what was found in it; return how many there were.

    Raises:
        StoreError: the stores contradict each other: a run of one identity with different content, a metric in two
            units, a commit at two places. Nothing is written then.
    """
    with reading(source.engine, source.name) as old, writing(target.engine, target.name) as new:
        lock_runs(new)
        copier = Copier(old, new)
        copier.dimensions()
        runs = old.execute(select(TABLES["run"].c.id).order_by(TABLES["run"].c.id)).scalars().all()
        count = sum([copier.run(run) for run in runs])
        copier.superseded()
        copier.findings()
        reorder(new)
    return count


def replace_positions(store: Store, history: Iterable[Revision]) -> int:
    """Give commits the positions that they have now, after a history was rewritten; return how many stood elsewhere.

    Commits that the history no longer holds keep their place.
    """
    v, p = TABLES["revision"].c, TABLES["repo"].c
    count = 0
    with writing(store.engine, store.name) as connection:
        lock_runs(connection)
        for commit in history:
            repository = select(p.id).where(p.url == commit.repository).scalar_subquery()
            moved = update(TABLES["revision"]).where(
                v.repo_id == repository, v.sha == commit.sha, v.fp_pos.is_distinct_from(commit.position)
            )
            count += connection.execute(moved.values(fp_pos=commit.position)).rowcount
        reorder(connection)
    return count


def reorder(connection: Connection) -> None:
    """Compute the order of all runs again from where their commits stand; runs of one commit are in order of time."""
    r, v = TABLES["run"].c, TABLES["revision"].c
    query = (
        select(r.id, r.revision_id, r.order_key, r.started_ns, v.fp_pos, v.committed_ns)
        .outerjoin_from(TABLES["run"], TABLES["revision"], v.id == r.revision_id)
        .order_by(r.revision_id, r.started_ns, r.uid)
    )
    number, before = 0, None
    for row in connection.execute(query).all():
        number = number + 1 if row.revision_id is not None and row.revision_id == before else 0
        before = row.revision_id
        right = row.started_ns
        if row.revision_id is not None:
            right = order_key(row.fp_pos, row.committed_ns or row.started_ns, number)
        if right != row.order_key:
            connection.execute(update(TABLES["run"]).where(r.id == row.id).values(order_key=right))
    newest_runs.refresh(connection)
