"""Paged queries for the dashboard: series, runs and alerts, a few rows each, fast at any store size."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Engine, Select, and_, func, or_, select

from nearpeak.core.history.stored_run import Revision, Run, Series
from nearpeak.store import newest_runs, series_queries
from nearpeak.store.rows.finding_rows import changes_where
from nearpeak.store.rows.finding_values import StoredChange
from nearpeak.store.rows.list_rows import AlertEffects, AlertKey, AlertRow, DeviceRow, MeasuredRow, MemberRow, Part
from nearpeak.store.sql_dialect import reading
from nearpeak.store.table_schema import TABLES

_T = TABLES
_Id = TypeVar("_Id", int, str)
_NEWEST = and_(
    _T["measurement"].c.run_id == _T["series"].c.last_run_id, _T["measurement"].c.series_id == _T["series"].c.id,
    _T["measurement"].c.launch == 0,
)  # fmt: skip
"""Joins each series with the first launch of its newest run."""


def in_parts(ids: Sequence[_Id], most: int = 5000) -> list[list[_Id]]:
    """Return `ids` in parts that a question may name: engines bound their number.

    >>> in_parts([1, 2, 3], most=2)
    [[1, 2], [3]]
    """
    return [list(ids[start : start + most]) for start in range(0, len(ids), most)]


class Browsing:
    """Lists of a store, a page at a time."""

    def __init__(self, engine: Engine, name: str) -> None:
        """Keep where to read; `name` is what messages call the store."""
        self._engine, self._name = engine, name

    def series(self, words: Sequence[str] = (), where: Mapping[str, str] | None = None, *, limit: int = 100,
               offset: int = 0) -> Part:  # fmt: skip
        """Return the series whose texts hold all `words`, ordered for reading.

        Args:
            where: `device`, `testbed`, `branch`, `metric`, `owner`, `workload` or `case` with the value it must have.
        """
        query = _fitting(words, where or {})
        order = (_T["device_model"].c.name, _T["testbed"].c.name, _T["test_case"].c.label, _T["series"].c.id)
        with reading(self._engine, self._name) as connection:
            total = connection.execute(select(func.count()).select_from(query.subquery())).scalar_one()
            rows = connection.execute(query.order_by(*order).limit(limit).offset(offset)).all()
            counts = series_queries.run_counts(connection, [row.id for row in rows]) if len(rows) <= 50 else {}
        series = tuple(series_queries.series_row(row, counts.get(row.id, 0)) for row in rows)
        return Part(rows=series, total_count=int(total))

    def series_by_id(self, ids: Sequence[int]) -> tuple[Series, ...]:
        """Return some series, in the order of `ids`; those that are not there are left out."""
        query, column = series_queries.series_select(), _T["series"].c.id
        with reading(self._engine, self._name) as connection:
            rows = [row for part in in_parts(ids) for row in connection.execute(query.where(column.in_(part)))]
            counts = series_queries.run_counts(connection, [row.id for row in rows]) if len(rows) <= 50 else {}
        by_id = {row.id: series_queries.series_row(row, counts.get(row.id, 0)) for row in rows}
        return tuple(by_id[number] for number in ids if number in by_id)

    def cases(self) -> tuple[tuple[str, str, str], ...]:
        """Return digest, label and workload of each case."""
        c, w = _T["test_case"].c, _T["workload"].c
        query = select(c.case_digest, c.label, w.name).join_from(_T["test_case"], _T["workload"], w.id == c.workload_id)
        with reading(self._engine, self._name) as connection:
            return tuple(connection.execute(query.order_by(w.name, c.label, c.case_digest)).tuples())

    def choices(self) -> dict[str, tuple[str, ...]]:
        """Return the values that series have, by what they are chosen by."""
        with reading(self._engine, self._name) as connection:
            return {
                name: tuple(sorted(choice for choice in connection.execute(query).scalars() if choice))
                for name, query in _CHOICES.items()
            }

    def runs(self, words: Sequence[str] = (), *, limit: int = 100, offset: int = 0) -> tuple[tuple[Run, ...], int]:
        """Return runs, newest first, whose commit, subject, device or source holds all `words`; and how many."""
        r, v = _T["run"].c, _T["revision"].c
        texts = (func.coalesce(v.sha, ""), func.coalesce(v.subject, ""), _T["device_model"].c.name, r.source_name,
                 r.branch)  # fmt: skip
        query = (
            select(r.id)
            .outerjoin(_T["revision"], v.id == r.revision_id)
            .join(_T["device"], _T["device"].c.id == r.device_id)
            .join(_T["device_model"], _T["device_model"].c.id == _T["device"].c.device_model_id)
            .where(*(_holds(word, texts) for word in words))
        )
        newest = query.order_by(r.order_key.desc(), r.id.desc()).limit(limit).offset(offset)
        with reading(self._engine, self._name) as connection:
            total = int(connection.execute(select(func.count()).select_from(query.subquery())).scalar_one())
            ids = list(connection.execute(newest).scalars())
            return series_queries.runs_of(connection, ids)[::-1] if ids else (), total

    def measurements(self, run: int, *, limit: int = 200, offset: int = 0) -> Part:
        """Return the measurements of a run."""
        m, s = _T["measurement"].c, _T["series"].c
        query = (
            select(
                m.series_id.label("series"), _T["test_case"].c.label, _T["testbed"].c.name.label("testbed"),
                _T["metric"].c.name.label("metric"), _T["metric"].c.unit, m.launch, m.n.label("sample_count"),
                m.outcome, func.coalesce(m.note, "").label("note"), m.median.label("value"), m.low.label("low_value"),
                m.high.label("high_value"), m.clock_hz,
            )
            .join(_T["series"], s.id == m.series_id)
            .join(_T["test_case"], _T["test_case"].c.id == s.test_case_id)
            .join(_T["testbed"], _T["testbed"].c.id == s.testbed_id)
            .join(_T["metric"], _T["metric"].c.id == s.metric_id)
            .where(m.run_id == run).order_by(m.series_id, m.launch).limit(limit).offset(offset)
        )  # fmt: skip
        with reading(self._engine, self._name) as connection:
            total = connection.execute(select(func.count()).where(m.run_id == run)).scalar_one()
            rows = tuple(MeasuredRow(**row) for row in connection.execute(query).mappings())
        return Part(rows=rows, total_count=int(total))

    def histories(self, series: Sequence[Series]) -> tuple[series_queries.History, ...]:
        """Return the histories of some series, in their order."""
        with reading(self._engine, self._name) as connection:
            return tuple(
                history for part in _parts_of(series) for history in series_queries.histories_of(connection, part)
            )

    def newest_histories(self, series: Sequence[Series]) -> tuple[series_queries.History, ...]:
        """Return of each history what was measured at the newest commit that has a value."""
        with reading(self._engine, self._name) as connection:
            return tuple(
                history
                for part in _parts_of(series)
                for history in series_queries.newest_histories_of(connection, part)
            )

    def outcomes_since(self, series: Sequence[Series], outcomes: Sequence[str]) -> dict[int, str]:
        """Return, of series whose newest runs have no value, how the newest ended, where it is in `outcomes`."""
        with reading(self._engine, self._name) as connection:
            return {
                number: outcome
                for part in in_parts([item.id for item in series])
                for number, outcome in newest_runs.outcomes_since(connection, part, outcomes).items()
            }

    def alert_keys(self, *, since_event: int | None = None) -> tuple[AlertKey, ...]:
        """Return what alerts are ordered and found by, by number: of all, or of those with news after an event."""
        c, e = _T["alert"].c, _T["alert_event"].c
        query = select(*(c[name] for name in AlertKey._fields)).order_by(c.id)
        if since_event is not None:
            query = query.where(c.id.in_(select(e.alert_id).where(e.id > since_event)))
        with reading(self._engine, self._name) as connection:
            return tuple(map(AlertKey._make, connection.execute(query).tuples()))

    def alert_effects(self, alerts: Sequence[int] | None = None) -> AlertEffects:
        """Return the changes of a few alerts, or of all, as columns, with newest value and owner of each series."""
        a, p = _T["alert_member"].c, _T["change_point"].c
        query = select(a.alert_id, p.series_id, p.effect).join_from(
            _T["alert_member"], _T["change_point"], p.id == a.change_point_id
        )
        s, m, metric = _T["series"].c, _T["measurement"].c, _T["metric"].c
        known = (
            select(s.id, m.median, metric.unit, metric.direction, s.owner)
            .join_from(_T["series"], _T["metric"], metric.id == s.metric_id)
            .outerjoin(_T["measurement"], _NEWEST)
        )
        with reading(self._engine, self._name) as connection:
            query = query if alerts is None else query.where(a.alert_id.in_(list(alerts)))
            rows = connection.execute(query.order_by(a.alert_id, p.id)).all()
            columns = tuple(zip(*rows, strict=True)) or ((), (), ())
            known = known if alerts is None else known.where(s.id.in_(set(columns[1])))
            series = {
                number: (value if unit == "s" and direction == "lower" else None, owner)
                for number, value, unit, direction, owner in connection.execute(known).tuples()
            }
        return AlertEffects(alerts=columns[0], series=columns[1], effect_ratios=columns[2], known=series)

    def newest_event(self) -> int:
        """Return the number of the newest event of any alert; 0 where nothing ever happened."""
        with reading(self._engine, self._name) as connection:
            return int(connection.execute(select(func.coalesce(func.max(_T["alert_event"].c.id), 0))).scalar_one())

    def alerts(self, ids: Sequence[int]) -> tuple[AlertRow, ...]:
        """Return some alerts, in the order of `ids`; those that are not there are left out."""
        c = _T["alert"].c
        query = select(*(c[name] for name in AlertRow.__slots__))
        with reading(self._engine, self._name) as connection:
            by_id = {
                row["id"]: AlertRow(**row)
                for part in in_parts(ids) for row in connection.execute(query.where(c.id.in_(part))).mappings()
            }  # fmt: skip
        return tuple(by_id[number] for number in ids if number in by_id)

    def members(self, alerts: Sequence[int] | None = None) -> tuple[MemberRow, ...]:
        """Return the changes of some alerts, or of all, each with the newest value of its series."""
        a, p, s, metric = _T["alert_member"].c, _T["change_point"].c, _T["series"].c, _T["metric"].c
        query = (
            select(a.alert_id, p.series_id, a.role, p.effect, _T["measurement"].c.median, metric.unit,
                   metric.direction, s.owner)
            .join_from(_T["alert_member"], _T["change_point"], p.id == a.change_point_id)
            .join(_T["series"], s.id == p.series_id)
            .join(_T["metric"], metric.id == s.metric_id)
            .outerjoin(_T["measurement"], _NEWEST)
            .order_by(a.alert_id, p.id)
        )  # fmt: skip
        parts = [query] if alerts is None else [query.where(a.alert_id.in_(part)) for part in in_parts(alerts)]
        with reading(self._engine, self._name) as connection:
            return tuple(MemberRow._make(row) for part in parts for row in connection.execute(part).tuples())

    def changes(self, *, ids: Sequence[int] | None = None, series: Sequence[int] | None = None
                ) -> tuple[StoredChange, ...]:  # fmt: skip
        """Return change points that still hold, some by id or those of some series, by series and place."""
        table = _T["change_point"].c
        column, wanted = (table.id, ids) if ids is not None else (table.series_id, series or ())
        with reading(self._engine, self._name) as connection:
            return tuple(
                change
                for part in in_parts(wanted)
                for change in changes_where(connection, column.in_(part), retracted=False)
            )  # fmt: skip

    def change_counts(self, series: Sequence[int]) -> dict[int, int]:
        """Return how many change points of each series still hold, of those that have one."""
        c = _T["change_point"].c
        query = select(c.series_id, func.count()).where(c.retracted_ns.is_(None)).group_by(c.series_id)
        with reading(self._engine, self._name) as connection:
            return {
                number: count
                for part in in_parts(series)
                for number, count in connection.execute(query.where(c.series_id.in_(part))).tuples()
            }

    def commit_ages(self, shas: Iterable[str]) -> dict[str, int]:
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

    def commit_texts(self, shas: Iterable[str]) -> dict[str, tuple[int | None, str]]:
        """Return, for each commit that the store knows, when it entered the history (ns since 1970) and its subject."""
        v, texts = _T["revision"].c, dict[str, tuple[int | None, str]]()
        with reading(self._engine, self._name) as connection:
            for part in in_parts(sorted(set(shas))):
                query = select(v.sha, func.coalesce(v.committed_ns, v.authored_ns), v.subject).where(v.sha.in_(part))
                texts.update(
                    {sha: (at_ns, subject or "") for sha, at_ns, subject in connection.execute(query).tuples()}
                )
        return texts

    def member_roles(self, alert: int) -> tuple[tuple[int, str], ...]:
        """Return the change points of an alert with their roles."""
        m = _T["alert_member"].c
        query = select(m.change_point_id, m.role).where(m.alert_id == alert)
        with reading(self._engine, self._name) as connection:
            return tuple(connection.execute(query).tuples())

    def suspects(self, alerts: Sequence[int]) -> dict[int, tuple[tuple[str, str], ...]]:
        """Return, for each of some alerts, what may be behind it: axis and what it is."""
        t, causes = _T["attribution"].c, dict[int, tuple[tuple[str, str], ...]]()
        query = select(t.alert_id, t.axis, t.what).order_by(t.id)
        with reading(self._engine, self._name) as connection:
            for part in in_parts(alerts):
                for alert, axis, what in connection.execute(query.where(t.alert_id.in_(part))).tuples():
                    causes[alert] = (*causes.get(alert, ()), (axis, what))
        return causes

    def bisects(self, alert: int) -> tuple[int, ...]:
        """Return the searches that an alert led to."""
        b = _T["bisect"].c
        with reading(self._engine, self._name) as connection:
            return tuple(connection.execute(select(b.id).where(b.alert_id == alert).order_by(b.id)).scalars())

    def runs_at(self, order_keys: Sequence[int]) -> tuple[Run, ...]:
        """Return the runs at some places of the history."""
        r = _T["run"].c
        with reading(self._engine, self._name) as connection:
            query = select(r.id).where(r.order_key.in_(list(order_keys))).limit(100)
            ids = list(connection.execute(query).scalars())
            return series_queries.runs_of(connection, ids) if ids else ()

    def revisions(self, limit: int = 200) -> tuple[Revision, ...]:
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

    def commit_before(self, sha: str) -> str:
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

    def devices(self) -> tuple[DeviceRow, ...]:
        """Return all units that ran something, by model."""
        d, m, h, r = _T["device"].c, _T["device_model"].c, _T["host"].c, _T["run"].c
        query = (
            select(m.name, m.vendor, m.architecture, h.name.label("host"), d.uuid, func.count(r.id).label("run_count"),
                   func.max(r.started_ns).label("last_ns"))
            .join_from(_T["device"], _T["run"], r.device_id == d.id)
            .join(_T["device_model"], m.id == d.device_model_id).join(_T["host"], h.id == d.host_id)
            .group_by(d.id, m.name, m.vendor, m.architecture, h.name, d.uuid).order_by(m.name, h.name, d.id)
        )  # fmt: skip
        with reading(self._engine, self._name) as connection:
            return tuple(DeviceRow(**row) for row in connection.execute(query).mappings())

    def alerts_of_changes(self, changes: Sequence[int]) -> dict[int, int]:
        """Return the alert of each change point that has one."""
        m = _T["alert_member"].c
        query = select(m.change_point_id, m.alert_id)
        with reading(self._engine, self._name) as connection:
            return {
                change: alert
                for part in in_parts(changes)
                for change, alert in connection.execute(query.where(m.change_point_id.in_(part))).tuples()
            }

    def alerts_of_series(self, words: Sequence[str], *, limit: int) -> tuple[int, ...]:
        """Return the newest alerts on a series whose texts hold all `words`."""
        a, m, c = _T["alert"].c, _T["alert_member"].c, _T["change_point"].c
        fits = _fitting(words, {}).subquery()
        members = (
            select(m.alert_id).join(_T["change_point"], c.id == m.change_point_id)
            .where(m.alert_id == a.id, c.series_id.in_(select(fits.c.id)))
        )  # fmt: skip
        query = select(a.id).where(members.exists()).order_by(a.id.desc()).limit(limit)
        with reading(self._engine, self._name) as connection:
            return tuple(connection.execute(query).scalars())

    def newest(self, series: Sequence[int]) -> dict[int, tuple[int, float]]:
        """Return run and value of the newest launch of each of some series that has one."""
        s, m = _T["series"].c, _T["measurement"].c
        query = select(s.id, m.run_id, m.median).join_from(_T["series"], _T["measurement"], _NEWEST)
        query = query.where(m.median.is_not(None))
        with reading(self._engine, self._name) as connection:
            return {
                number: (run, value)
                for part in in_parts(series)
                for number, run, value in connection.execute(query.where(s.id.in_(part))).tuples()
            }  # fmt: skip

    def newest_values(self, series: Sequence[int], most: int) -> dict[int, tuple[float, ...]]:
        """Return the last values of each of some series, in order of their commits: those of the first launches."""
        m, r = _T["measurement"].c, _T["run"].c
        order = func.row_number().over(partition_by=m.series_id, order_by=(r.order_key.desc(), r.id.desc()))
        rows = (
            select(m.series_id, m.median, order.label("age"))
            .join(_T["run"], r.id == m.run_id)
            .where(m.launch == 0, m.median.is_not(None), r.superseded_by.is_(None))
        )
        values: dict[int, list[float]] = {}
        with reading(self._engine, self._name) as connection:
            for part in in_parts(series):
                aged = rows.where(m.series_id.in_(part)).subquery()
                query = select(aged.c.series_id, aged.c.median).where(aged.c.age <= most)
                for number, value in connection.execute(query.order_by(aged.c.age.desc())).tuples():
                    values.setdefault(number, []).append(value)
        return {number: tuple(known) for number, known in values.items()}

    def mark(self) -> tuple[int, ...]:
        """Return numbers that change whenever runs, changes or alerts come in: what is remembered holds until then."""
        with reading(self._engine, self._name) as connection:
            names = ("run", "change_point", "alert_event")
            return tuple(
                int(connection.execute(select(func.coalesce(func.max(_T[name].c.id), 0))).scalar_one())
                for name in names
            )


def _parts_of(series: Sequence[Series], most: int = 1000) -> list[Sequence[Series]]:
    return [series[start : start + most] for start in range(0, len(series), most)]


_CHOICES = {
    "device": select(_T["device_model"].c.name),
    "testbed": select(_T["testbed"].c.name).distinct(),
    "branch": select(_T["series"].c.branch).distinct(),
    "metric": select(_T["metric"].c.name),
    "owner": select(_T["series"].c.owner).distinct(),
    "workload": select(_T["workload"].c.name),
}
_COLUMNS: dict[str, ColumnElement[Any]] = {
    "device": _T["device_model"].c.name, "testbed": _T["testbed"].c.name, "branch": _T["series"].c.branch,
    "metric": _T["metric"].c.name, "owner": _T["series"].c.owner, "workload": _T["workload"].c.name,
    "case": _T["test_case"].c.case_digest,
}  # fmt: skip


def _holds(word: str, columns: Iterable[ColumnElement[Any]]) -> ColumnElement[bool]:
    """Return the condition that one of `columns` holds `word`, taken literally and in any case."""
    return or_(*(column.icontains(word, autoescape=True) for column in columns))


def _fitting(words: Sequence[str], where: Mapping[str, str]) -> Select[Any]:
    """Return the question for the series whose texts hold all `words`."""
    texts = (
        _T["test_case"].c.label,
        *(_COLUMNS[name] for name in ("workload", "device", "testbed", "branch", "owner")),
    )
    query = series_queries.series_select().where(*(_COLUMNS[name] == value for name, value in where.items()))
    for word in words:
        exact = [_T["test_case"].c.case_digest == word, _T["series"].c.fingerprint == word]
        query = query.where(or_(_holds(word, texts), *exact))
    return query
