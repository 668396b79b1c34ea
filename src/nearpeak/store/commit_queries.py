"""Queries for commits that a store knows: their ages, times and subjects, the newest, and the one before another."""

from collections.abc import Iterable

from sqlalchemy import Engine, func, select

from nearpeak.core.history.stored_run import Revision
from nearpeak.store import series_queries
from nearpeak.store.page_queries import in_parts
from nearpeak.store.sql_dialect import reading
from nearpeak.store.table_schema import TABLES

_T = TABLES


class Commits:
    """Commits of a store."""

    def __init__(self, engine: Engine, name: str) -> None:
        """Take the engine of a store, and what messages call it."""
        self._engine, self._name = engine, name

    def ages(self, shas: Iterable[str]) -> dict[str, int]:
        """Return how many commits of its repository's history are newer than each commit, as far as the store knows it.

        Commits without a place in it are left out.
        """
        v = _T["revision"].c
        newest = _T["revision"].alias().c
        end = select(func.max(newest.fp_pos)).where(newest.repo_id == v.repo_id).scalar_subquery()
        ages: dict[str, int] = {}
        with reading(self._engine, self._name) as connection:
            for part in in_parts(sorted(set(shas))):
                query = select(v.sha, end - v.fp_pos).where(v.sha.in_(part), v.fp_pos.is_not(None))
                ages.update(connection.execute(query).tuples().all())
        return ages

    def texts(self, shas: Iterable[str]) -> dict[str, tuple[int | None, str]]:
        """Return, for each commit that the store knows, when it entered the history (ns since 1970) and its subject."""
        v, texts = _T["revision"].c, dict[str, tuple[int | None, str]]()
        with reading(self._engine, self._name) as connection:
            for part in in_parts(sorted(set(shas))):
                query = select(v.sha, func.coalesce(v.committed_ns, v.authored_ns), v.subject).where(v.sha.in_(part))
                texts.update(
                    {sha: (at_ns, subject or "") for sha, at_ns, subject in connection.execute(query).tuples()}
                )
        return texts

    def newest(self, limit: int = 200) -> tuple[Revision, ...]:
        """Return the newest commits that were measured, newest first."""
        r = _T["run"].c
        newest = (
            select(func.max(r.id)).where(r.revision_id.is_not(None)).group_by(r.revision_id)
            .order_by(func.max(r.order_key).desc()).limit(limit)
        )  # fmt: skip
        with reading(self._engine, self._name) as connection:
            ids = list(connection.execute(newest).scalars())
            runs = series_queries.runs_of(connection, ids)[::-1] if ids else ()
        return tuple(run.revision for run in runs if run.revision is not None)

    def before(self, sha: str) -> str:
        """Return the commit that was measured before another; empty where there is none, or that one never was."""
        r, v = _T["run"].c, _T["revision"].c
        of_commits = _T["run"].join(_T["revision"], v.id == r.revision_id)
        with reading(self._engine, self._name) as connection:
            first = select(func.min(r.order_key)).select_from(of_commits).where(v.sha == sha)
            key = connection.execute(first).scalar()
            if key is None:
                return ""
            before = select(v.sha).select_from(of_commits).where(r.order_key < key, v.sha != sha)
            return connection.execute(before.order_by(r.order_key.desc()).limit(1)).scalar() or ""
