"""Queries for series, their histories, runs and samples."""

import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, Row, Select, func, select

from nearpeak.core.history.stored_run import Device, Latest, Metric, Pairs, Revision, Run, Series, Testbed
from nearpeak.errors import NotFoundError, StoreError
from nearpeak.store.rows.row_identity import importer_of
from nearpeak.store.sample_blobs import checksum, unpacked
from nearpeak.store.table_schema import SUMMARIES, TABLES

_T = TABLES


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Summaries of a series, one row per launch, in the order of history.

    Shapes: each array [launches].
    """

    series: Series
    """The series."""
    run_ids: npt.NDArray[np.int64]
    """Run of each row; launches of one run stand together."""
    order_keys: npt.NDArray[np.int64]
    """Place of the run in history."""
    positions: npt.NDArray[np.int64]
    """First-parent position of the commit; −1 where it is not known."""
    shas: tuple[str, ...]
    """Commit; empty for a run without one."""
    stack_ids: npt.NDArray[np.int64]
    """Software stack; `Store.stack` tells its components."""
    device_ids: npt.NDArray[np.int64]
    """Unit that ran it."""
    launches: npt.NDArray[np.int64]
    """Number of the launch within its run."""
    sample_counts: npt.NDArray[np.int64]
    """Samples."""
    outcomes: tuple[str, ...]
    """How each ended."""
    median: npt.NDArray[np.float64]
    """Median of the samples, in the metric's unit; NaN where there are none, here and below."""
    q1: npt.NDArray[np.float64]
    """First quartile."""
    q3: npt.NDArray[np.float64]
    """Third quartile."""
    low: npt.NDArray[np.float64]
    """Lower end of the median's 95 % interval."""
    high: npt.NDArray[np.float64]
    """Upper end."""
    least: npt.NDArray[np.float64]
    """Shortest, or smallest, sample."""
    clock_hz: npt.NDArray[np.float64]
    """Mean clock of the device; NaN where unknown."""

    def __len__(self) -> int:
        """Return the number of launches."""
        return len(self.run_ids)


def series_of(connection: Connection, where: Mapping[str, str | int]) -> tuple[Series, ...]:
    """Return the series whose columns are as `where` says, by id.

    Args:
        where: `id`, `fingerprint`, `case`, `workload`, `metric`, `device`, `testbed`, `branch`, `owner`.
    """
    columns = {
        "id": _T["series"].c.id, "fingerprint": _T["series"].c.fingerprint, "case": _T["test_case"].c.case_digest,
        "workload": _T["workload"].c.name, "metric": _T["metric"].c.name, "device": _T["device_model"].c.name,
        "testbed": _T["testbed"].c.name, "branch": _T["series"].c.branch, "owner": _T["series"].c.owner,
    }  # fmt: skip
    query = series_select().where(*(columns[name] == value for name, value in where.items()))
    rows = connection.execute(query.order_by(_T["series"].c.id)).all()
    counts = run_counts(connection, [row.id for row in rows] if len(rows) <= 100 else None)
    return tuple(series_row(row, counts.get(row.id, 0)) for row in rows)


def history_of(connection: Connection, series: int) -> History:
    """Return the history of a series; superseded runs are left out.

    Raises:
        NotFoundError: there is no such series.
    """
    matches = series_of(connection, {"id": series})
    if not matches:
        raise NotFoundError(f"series {series}: is not in the store; 'nearpeak store info' counts what is")
    return histories_of(connection, matches)[0]


def histories_of(connection: Connection, series: Sequence[Series]) -> tuple[History, ...]:
    """Return the histories of some series, in their order; superseded runs are left out."""
    return _histories(connection, series, _history_select(series))


def newest_histories_of(connection: Connection, series: Sequence[Series]) -> tuple[History, ...]:
    """Return of each history what was measured at the newest commit that has a value; in the order of the series."""
    s, r, newest = _T["series"].c, _T["run"].c, _T["run"].alias()
    query = (
        _history_select(series)
        .join(_T["series"], s.id == _T["measurement"].c.series_id)
        .join(newest, newest.c.id == s.last_run_id)
        .where((r.id == newest.c.id) | (r.revision_id == newest.c.revision_id))
    )
    return _histories(connection, series, query)


def _history_select(series: Sequence[Series]) -> Select[Any]:
    m, r, v = _T["measurement"].c, _T["run"].c, _T["revision"].c
    return (
        select(
            r.id, r.order_key, func.coalesce(v.fp_pos, -1), func.coalesce(v.sha, ""), r.stack_id, r.device_id,
            m.launch, m.n, m.outcome, m.clock_hz, *(m[name] for name in SUMMARIES), m.series_id,
        )
        .join(_T["run"], r.id == m.run_id)
        .outerjoin(_T["revision"], v.id == r.revision_id)
        .where(m.series_id.in_([entry.id for entry in series]), r.superseded_by.is_(None))
        .order_by(m.series_id, r.order_key, r.id, m.launch)
    )  # fmt: skip


def _histories(connection: Connection, series: Sequence[Series], query: Select[Any]) -> tuple[History, ...]:
    rows: dict[int, list[Any]] = {}
    for row in connection.execute(query).tuples():
        rows.setdefault(row[-1], []).append(row)
    return tuple(_history(entry, rows.get(entry.id, [])) for entry in series)


def _history(series: Series, rows: Sequence[Any]) -> History:
    columns = list(zip(*rows, strict=True)) or [()] * (11 + len(SUMMARIES))
    whole = [np.array(columns[place], dtype=np.int64) for place in (0, 1, 2, 4, 5, 6, 7)]
    reals = {
        name: np.array([np.nan if value is None else value for value in column], dtype=np.float64)
        for name, column in zip(("clock_hz", *SUMMARIES), columns[9:-1], strict=True)
    }
    return History(
        series=series, run_ids=whole[0], order_keys=whole[1], positions=whole[2], shas=tuple(columns[3]),
        stack_ids=whole[3], device_ids=whole[4], launches=whole[5], sample_counts=whole[6],
        outcomes=tuple(columns[8]), **reals,
    )  # fmt: skip


def latest_against_previous(connection: Connection, series: Iterable[int] | None = None) -> tuple[Latest, ...]:
    """Return the newest and the previous run of each series that has at least two.

    The value of a run is the median over its launches.
    """
    s, m = _T["series"].c, _T["measurement"].c
    medians: dict[tuple[int, int, int], tuple[list[float], list[float]]] = {}
    wanted = None if series is None else list(series)
    for which, column in enumerate(("last_run_id", "previous_run_id")):
        at = (m.run_id == s[column]) & (m.series_id == s.id)
        # An outer join keeps SQLite from starting with all measurements.
        query = select(s.id, s.last_run_id, s.previous_run_id, m.median).outerjoin(_T["measurement"], at)
        query = query.where(s.previous_run_id.is_not(None))
        half = query if wanted is None else query.where(s.id.in_(wanted))
        for number, last, previous, value in connection.execute(half).tuples().all():
            if value is not None:
                medians.setdefault((number, last, previous), ([], []))[which].append(value)
    return tuple(
        Latest(series=number, run=run, value=_middle(new), previous_value=_middle(old))
        for (number, run, previous), (new, old) in sorted(medians.items())
        if new and old
    )


def runs_of(connection: Connection, ids: Sequence[int] | None = None, limit: int | None = None) -> tuple[Run, ...]:
    """Return runs in the order of history: some by id, or all, or only the `limit` newest."""
    r, v, d = _T["run"].c, _T["revision"].c, _T["device"].c
    query = (
        select(_T["run"], _T["repo"].c.url, *_prefixed("revision"), d.uuid.label("d_uuid"), d.mig_profile,
               *_prefixed("device_model"), _T["host"].c.name.label("host"))
        .join(_T["device"], d.id == r.device_id)
        .join(_T["device_model"], _T["device_model"].c.id == d.device_model_id)
        .join(_T["host"], _T["host"].c.id == d.host_id)
        .outerjoin(_T["revision"], v.id == r.revision_id)
        .outerjoin(_T["repo"], _T["repo"].c.id == v.repo_id)
        .order_by(r.order_key.desc(), r.id.desc())
    )  # fmt: skip
    query = query if ids is None else query.where(r.id.in_(list(ids)))
    rows = connection.execute(query.limit(limit)).all()[::-1]
    stacks = {stack: stack_of(connection, stack) for stack in {row.stack_id for row in rows}}
    return tuple(_run(row, stacks[row.stack_id]) for row in rows)


def stack_of(connection: Connection, stack: int) -> Pairs:
    """Return the components of a software stack, by name."""
    c = _T["stack_component"].c
    query = select(c.name, c.version).where(c.stack_id == stack).order_by(c.name)
    return tuple((name, version) for name, version in connection.execute(query).tuples())


def samples_of(connection: Connection, run: int, series: int, launch: int = 0, channel: str = "") -> npt.NDArray[Any]:
    """Return the samples of one launch, or of one of its channels, in measurement order.

    Raises:
        NotFoundError: there are none: it failed, or they were archived.
        StoreError: their bytes are not those that were written.
    """
    what = f"run {run}, series {series}, launch {launch}{f', {channel}' if channel else ''}"
    m, b, c = _T["measurement"].c, _T["sample_blob"].c, _T["channel_blob"].c
    key = (run, series, launch)
    query: Any
    if channel:
        query = select(c.format, c.crc32, c.data).where(c.channel == channel)
        query = query.where(c.run_id == run, c.series_id == series, c.launch == launch)
    else:
        query = select(b.format, b.crc32, b.data).join(_T["measurement"], m.sample_id == b.id)
        query = query.where(
            *(column == value for column, value in zip((m.run_id, m.series_id, m.launch), key, strict=True))
        )
    row = connection.execute(query).one_or_none()
    if row is None:
        raise NotFoundError(f"{what}: no samples are stored: there were none, or they were archived")
    return unpacked(what, *row)


def records_of(connection: Connection, run: int, series: int, launch: int = 0) -> dict[str, Any]:
    """Return the records attached to one launch, by kind: `validation`, `telemetry`, `ledger`, ….

    Raises:
        StoreError: their bytes are not those that were written.
    """
    return {kind: json.loads(text) for kind, text in record_texts(connection, run, series, launch).items()}


def record_texts(connection: Connection, run: int, series: int, launch: int = 0) -> dict[str, str]:
    """Return the records as JSON text."""
    c = _T["record_blob"].c
    query = select(c.kind, c.crc32, c.data).where(c.run_id == run, c.series_id == series, c.launch == launch)
    texts = {}
    for kind, crc32, data in connection.execute(query.order_by(c.kind)).tuples():
        if checksum(data) != crc32:
            raise StoreError(
                f"run {run}, series {series}, launch {launch}, {kind}: is damaged on disk; import its file again"
            )
        texts[kind] = zlib.decompress(data).decode()
    return texts


def _prefixed(table: str) -> list[Any]:
    return [column.label(f"{table}_{column.name}") for column in _T[table].c]


def series_select() -> Select[Any]:
    """Return the question for all series, with all that `series_row` needs."""
    s = _T["series"].c
    return (
        select(
            s.id, s.fingerprint, s.branch, s.stack_track, s.owner, _T["test_case"].c.case_digest,
            _T["test_case"].c.label, _T["test_case"].c.parameters, _T["workload"].c.name.label("workload"),
            *_prefixed("metric"), _T["device_model"].c.name.label("device"), _T["testbed"].c.name.label("testbed"),
            _T["testbed"].c.policy,
        )
        .join(_T["test_case"], _T["test_case"].c.id == s.test_case_id)
        .join(_T["workload"], _T["workload"].c.id == _T["test_case"].c.workload_id)
        .join(_T["metric"], _T["metric"].c.id == s.metric_id)
        .join(_T["device_model"], _T["device_model"].c.id == s.device_model_id)
        .join(_T["testbed"], _T["testbed"].c.id == s.testbed_id)
    )  # fmt: skip


def run_counts(connection: Connection, series: Sequence[int] | None) -> dict[int, int]:
    """Return the runs that count of some series, or of all."""
    m = _T["measurement"].c
    query = (
        select(m.series_id, func.count(m.run_id.distinct()))
        .join(_T["run"], _T["run"].c.id == m.run_id)
        .where(_T["run"].c.superseded_by.is_(None))
        .group_by(m.series_id)
    )
    query = query if series is None else query.where(m.series_id.in_(series))
    return {number: int(count) for number, count in connection.execute(query).tuples()}


def series_row(row: Row[Any], run_count: int) -> Series:
    """Return a row of `series_select` as a series."""
    metric = Metric(
        name=row.metric_name, unit=row.metric_unit, direction=row.metric_direction, scale=row.metric_scale,
        kind=row.metric_kind,
    )  # fmt: skip
    return Series(
        id=row.id, fingerprint=row.fingerprint, case=row.case_digest, label=row.label,
        parameters=json.loads(row.parameters), workload=row.workload, metric=metric, device=row.device,
        testbed=Testbed(name=row.testbed, policy=json.loads(row.policy)), branch=row.branch,
        track=tuple((name, version) for name, version in json.loads(row.stack_track)), owner=row.owner,
        run_count=run_count,
    )  # fmt: skip


def _run(row: Row[Any], stack: Pairs) -> Run:
    device = Device(
        name=row.device_model_name, vendor=row.device_model_vendor, architecture=row.device_model_architecture,
        uuid=row.d_uuid, partition=row.mig_profile, host=row.host,
        settings=tuple(sorted(json.loads(row.settings).items())),
    )  # fmt: skip
    return Run(
        id=row.id, uid=row.uid, revision=_revision(row), order_key=row.order_key, device=device, stack=stack,
        started_ns=row.started_ns, trigger=row.run_trigger, source=row.source_name,
        lost=tuple(json.loads(row.lost)), facts=json.loads(row.facts), selector=importer_of(row.importer)[2],
    )  # fmt: skip


def _revision(row: Row[Any]) -> Revision | None:
    if row.revision_sha is None:
        return None
    return Revision(
        sha=row.revision_sha, repository=row.url, position=row.revision_fp_pos, parent_sha=row.revision_parent_sha,
        author=row.revision_author, authored_ns=row.revision_authored_ns, committed_ns=row.revision_committed_ns,
        subject=row.revision_subject, pull_request=row.revision_pull_request,
    )  # fmt: skip


def _middle(values: Sequence[float]) -> float:
    return values[0] if len(values) == 1 else float(np.median(values))
