"""Reads a stored run back as it was written, so that another store can ingest it under the same identity."""

from collections.abc import Iterator, Sequence

from sqlalchemy import Connection, select

from nearpeak.core.history.stored_run import RunRecord, SampleSet, Series, Source
from nearpeak.store import series_queries
from nearpeak.store.database import Store
from nearpeak.store.rows.row_identity import importer_of
from nearpeak.store.sample_blobs import unpacked
from nearpeak.store.sql_dialect import reading
from nearpeak.store.table_schema import TABLES


def records_of(store: Store, runs: Sequence[int] | None = None) -> Iterator[RunRecord]:
    """Yield the runs of a store that count, oldest first, each with its samples.

    A run whose samples are archived or damaged raises.

    Args:
        runs: only these.

    Raises:
        StoreError: samples of a run are not there any more, or damaged.
    """
    r, wanted = TABLES["run"].c, None if runs is None else set(runs)
    query = select(r.id).where(r.superseded_by.is_(None)).order_by(r.order_key, r.id)
    with reading(store.engine, store.name) as connection:
        ids = [run for run in connection.execute(query).scalars() if wanted is None or run in wanted]
    for run in ids:
        with reading(store.engine, store.name) as connection:
            yield _record(connection, run)


def _record(connection: Connection, number: int) -> RunRecord:
    (run,) = series_queries.runs_of(connection, [number])
    table = TABLES["run"]
    row = connection.execute(select(table).where(table.c.id == number)).mappings().one()
    importer, version, selector = importer_of(row["importer"])
    m = TABLES["measurement"].c
    members = TABLES["series"].c.id.in_(select(m.series_id).where(m.run_id == number))
    rows = connection.execute(series_queries.series_select().where(members))
    series = {entry.id: series_queries.series_row(entry, 0) for entry in rows}
    return RunRecord(
        device=run.device, samples=tuple(_sets(connection, number, series)), revision=run.revision,
        branch=row["branch"], stack=run.stack, track=next((entry.track for entry in series.values()), ()),
        started_ns=run.started_ns, ended_ns=row["ended_ns"],
        trigger=run.trigger, dirty=row["dirty_hash"], facts=run.facts,
        source=Source(
            digest=row["source_digest"], importer=importer, version=version, selector=selector, name=run.source,
            lost=run.lost, uid=run.uid,
        ),
    )  # fmt: skip


def _sets(connection: Connection, run: int, series: dict[int, Series]) -> Iterator[SampleSet]:
    m, b = TABLES["measurement"].c, TABLES["sample_blob"].c
    query = select(m.series_id, m.launch, m.outcome, m.note, m.clock_hz, m.n, b.format, b.crc32, b.data)
    query = query.outerjoin_from(TABLES["measurement"], TABLES["sample_blob"], b.id == m.sample_id)
    channels = _channels(connection, run)
    for number, launch, outcome, note, clock_hz, count, *blob in connection.execute(
        query.where(m.run_id == run).order_by(m.series_id, m.launch)
    ):
        entry, what = series[number], f"run {run}, series {number}, launch {launch}"
        yield SampleSet(
            case=entry.case, label=entry.label, metric=entry.metric, testbed=entry.testbed, workload=entry.workload,
            values=tuple(unpacked(what, *blob).tolist()) if count else (), parameters=entry.parameters, launch=launch,
            outcome=outcome, note=note or "", clock_hz=clock_hz, channels=channels.get((number, launch), {}),
            records=series_queries.record_texts(connection, run, number, launch),
        )  # fmt: skip


def _channels(connection: Connection, run: int) -> dict[tuple[int, int], dict[str, tuple[float, ...]]]:
    c = TABLES["channel_blob"].c
    channels: dict[tuple[int, int], dict[str, tuple[float, ...]]] = {}
    query = select(c.series_id, c.launch, c.channel, c.format, c.crc32, c.data).where(c.run_id == run)
    for series, launch, name, *blob in connection.execute(query):
        values = unpacked(f"run {run}, series {series}, {name}", *blob).tolist()
        channels.setdefault((series, launch), {})[name] = tuple(values)
    return channels
