"""The `Store` class: opens an SQLite or PostgreSQL store, writes runs, and reads series, histories and samples."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy.typing as npt
from sqlalchemy import Connection, func, select, update

from nearpeak.core.history.stored_run import Latest, Pairs, Run, RunRecord, Series, Source
from nearpeak.errors import StoreError
from nearpeak.store import series_queries
from nearpeak.store.access_tokens import Access, add_entry
from nearpeak.store.commit_queries import Commits
from nearpeak.store.page_queries import Browsing
from nearpeak.store.rows.finding_rows import Findings
from nearpeak.store.rows.investigation_rows import Investigations
from nearpeak.store.rows.policy_rows import Policies
from nearpeak.store.run_ingest import Ingested, Prepared, add_run, lock_runs, prepared, replace_run, stored_run, uid_of
from nearpeak.store.series_queries import History
from nearpeak.store.sql_dialect import is_sqlite, reading, together, writing
from nearpeak.store.store_check import engine_at
from nearpeak.store.table_schema import HEAD, TABLES


def open_store(place: str | Path, *, create: bool = False, durable: bool = False) -> "Store":
    """Return the store at a path, or at a URL `postgresql+psycopg://user@host/name`.

    Args:
        create: make it where there is none.
        durable: SQLite: a commit survives a power cut, not only a kill; slower.

    Raises:
        NotFoundError: there is none, and it is not to be made.
        SchemaVersionError: it is older (upgrade it first) or newer than this nearpeak.
        StoreError: what is there is no store, is damaged, or cannot be reached.
    """
    return Store(str(place), create=create, durable=durable)


class Store:
    """An open store; every call is a transaction of its own."""

    def __init__(self, place: str, *, create: bool = False, durable: bool = False) -> None:
        """Open the store at `place`; see `open_store`."""
        self.engine, self.name = engine_at(place, create=create, durable=durable)
        self.findings = Findings(self.engine, self.name)
        self.policies = Policies(self.engine, self.name)
        self.investigations = Investigations(self.engine, self.name)
        self.access = Access(self.engine, self.name)
        self.browsing = Browsing(self.engine, self.name)
        self.commits = Commits(self.engine, self.name)
        self._series: dict[str, int] = {}

    def __enter__(self) -> "Store":
        """Return the store."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the store."""
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def ingest(self, record: RunRecord, *, again: bool = False) -> Ingested:
        """Write a run, all of it or nothing; one that was read from the same source before is left as it is.

        Args:
            again: write it even then, and let the old one no longer count.

        Raises:
            SpecError: a metric has another unit in the store, the commit is not in the history that the store knows,
                samples are not finite.
            StoreError: it cannot be written: no space, another writer for too long, a damaged file.
        """
        return self.ingest_all((record,), again=again)[0]

    def holds(self, source: Source) -> bool:
        """Return whether a run of that source is in the store, so that `ingest` would leave it as it is."""
        with reading(self.engine, self.name) as connection:
            return stored_run(connection, uid_of(source)) is not None

    def together(self, claimed: str = "") -> AbstractContextManager[None]:
        """Make everything that is read and written within a `with` one transaction: committed whole or not at all.

        Args:
            claimed: what only one process does at a time; others wait for its end.
        """
        return together(self.engine, self.name, claimed)

    def ingest_all(
        self, records: Iterable[RunRecord], *, again: bool = False, sender: str = ""
    ) -> tuple[Ingested, ...]:
        """Write several runs, all of them or none; see `ingest`.

        Args:
            sender: name of the token that sent them, for the audit log where any of them is new.
        """
        ready = [prepared(record) for record in records]
        try:
            with writing(self.engine, self.name) as connection:
                lock_runs(connection)
                written = tuple(self._written(connection, run, again=again) for run in ready)
                new = sum(run.new for run in written)
                if sender and new:
                    add_entry(connection, sender, "send runs", f"{new} of {len(written)}", written[0].uid)
        except StoreError as error:
            if "space" in str(error):
                raise StoreError(
                    f"{error} (it takes about {2 * sum(run.data_bytes for run in ready)} bytes)"
                ) from error
            raise
        for run, done in zip(ready, written, strict=True):
            self._series.update(zip(run.fingerprints, done.series_ids, strict=False))
        return written

    def _written(self, connection: Connection, ready: Prepared, *, again: bool) -> Ingested:
        run = stored_run(connection, ready.uid)
        if run is None:
            return add_run(connection, ready, self._series)
        return replace_run(connection, ready, run, self._series) if again else run

    def series(
        self, *, id: int | None = None, case: str | None = None, metric: str | None = None, device: str | None = None,
        testbed: str | None = None, branch: str | None = None,
    ) -> tuple[Series, ...]:  # fmt: skip
        """Return the series that match all filters, ordered by id."""
        filters = {
            "id": id, "case": case, "metric": metric, "device": device, "testbed": testbed, "branch": branch,
        }  # fmt: skip
        with reading(self.engine, self.name) as connection:
            return series_queries.series_of(
                connection, {name: value for name, value in filters.items() if value is not None}
            )

    def history(self, series: int) -> History:
        """Return the summaries of a series in the order of history.

        Raises:
            NotFoundError: there is no such series.
        """
        with reading(self.engine, self.name) as connection:
            return series_queries.history_of(connection, series)

    def latest_against_previous(self, series: Iterable[int] | None = None) -> tuple[Latest, ...]:
        """Return the newest and the previous value of each series, or of some."""
        with reading(self.engine, self.name) as connection:
            return series_queries.latest_against_previous(connection, series)

    def runs(self, ids: Iterable[int] | None = None, *, limit: int | None = None) -> tuple[Run, ...]:
        """Return runs in the order of history: some by id, all, or the `limit` newest."""
        with reading(self.engine, self.name) as connection:
            return series_queries.runs_of(connection, None if ids is None else list(ids), limit)

    def samples(self, run: int, series: int, launch: int = 0, *, channel: str = "") -> npt.NDArray[Any]:
        """Return the samples of one launch, or of one of its channels, in measurement order.

        Raises:
            NotFoundError: there are none.
            StoreError: they are damaged on disk.
        """
        with reading(self.engine, self.name) as connection:
            return series_queries.samples_of(connection, run, series, launch, channel)

    def records(self, run: int, series: int, launch: int = 0) -> dict[str, Any]:
        """Return the records attached to one launch, by kind: `validation`, `telemetry`, `ledger`, ….

        Raises:
            StoreError: it is damaged on disk.
        """
        with reading(self.engine, self.name) as connection:
            return series_queries.records_of(connection, run, series, launch)

    def stack(self, stack: int) -> Pairs:
        """Return the components of a software stack, by name."""
        with reading(self.engine, self.name) as connection:
            return series_queries.stack_of(connection, stack)

    def set_owner(self, series: Iterable[int], owner: str) -> None:
        """Set the owner of some series."""
        table = TABLES["series"]
        with writing(self.engine, self.name) as connection:
            connection.execute(update(table).where(table.c.id.in_(list(series))).values(owner=owner))

    def info(self) -> dict[str, int | str]:
        """Return version, engine, size and row counts of the main tables."""
        names = ("run", "series", "measurement", "sample_blob", "revision", "stack", "change_point", "alert")
        with reading(self.engine, self.name) as connection:
            rows = {
                name: connection.execute(select(func.count()).select_from(TABLES[name])).scalar_one() for name in names
            }
        where = self.engine.url.database
        size = {"file_bytes": Path(str(where)).stat().st_size} if is_sqlite(self.engine) else {}
        return {"store": self.name, "engine": self.engine.dialect.name, "schema": HEAD, **rows, **size}
