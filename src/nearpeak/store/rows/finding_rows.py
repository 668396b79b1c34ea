"""Reading and writing of finding rows: change points, comparisons, alerts with their events, gates."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Engine, and_, insert, select, update

from nearpeak.base.canonical_json import canonical_json, digest
from nearpeak.core.history.alert import CLOSED, check_status, check_step
from nearpeak.errors import NotFoundError, SpecError
from nearpeak.store.rows.finding_values import Alert, AlertEvent, Detector, Json, StoredChange, StoredComparison
from nearpeak.store.rows.record_columns import Columns
from nearpeak.store.rows.row_identity import new_uid
from nearpeak.store.sql_dialect import claim, id_of, insert_new, reading, writing
from nearpeak.store.table_schema import TABLES
from nearpeak.units import time_text

_T = TABLES


_CHANGE = Columns(
    StoredChange,
    {
        "series": "series_id", "effect_ratio": "effect", "low_ratio": "low", "high_ratio": "high",
        "score_ratio": "score", "before_count": "n_before", "after_count": "n_after",
    },
    texts=("evidence",),
)  # fmt: skip
_COMPARISON = Columns(
    StoredComparison,
    {
        "series": "series_id", "theta_ratio": "theta", "theta_clock_ratio": "theta_clock", "low_ratio": "low",
        "high_ratio": "high", "look_count": "look", "launch_count": "launches",
    },
    texts=("inputs",),
)  # fmt: skip
_DETECTOR = Columns(Detector, texts=("parameters",))
_EVENT = Columns(AlertEvent)


class Findings:
    """Everything that was concluded from a store's series."""

    def __init__(self, engine: Engine, name: str) -> None:
        """Keep where to write; `name` is what messages call the store."""
        self._engine, self._name = engine, name

    def record_changes(
        self, series: int, detector: Detector, changes: Sequence[StoredChange]
    ) -> tuple[StoredChange, ...]:
        """Store what `detector` finds in a series now, and return it with identities.

        A change point that is stored already is brought up to date, and stays confirmed if it is; one of this detector
        that is not among `found` is marked as retracted, never deleted; one that comes back is no longer retracted.
        """
        now_ns = time.time_ns()
        with writing(self._engine, self._name) as connection:
            identity = digest([detector.name, detector.version, dict(detector.parameters)])
            detector_id = id_of(connection, _T["detector"], {**_DETECTOR.row(detector), "hash": identity}, ["hash"])
            claim(connection, f"changes of series {series}")
            table = _T["change_point"]
            mine = and_(table.c.series_id == series, table.c.detector_id == detector_id)
            rows = connection.execute(select(table).where(mine)).mappings()
            known = {row["order_key"]: dict(row) for row in rows}
            for change in changes:
                if change.series != series:
                    raise SpecError(f"change point of series {change.series}: is recorded for series {series}")
                row = _CHANGE.row(change, "id") | {"last_seen_ns": now_ns, "retracted_ns": None}
                if change.order_key in known:
                    old = known[change.order_key]
                    evidence = canonical_json({**json.loads(old["evidence"]), **json.loads(row["evidence"])})
                    values = row | {
                        "tier": "confirmed" if old["tier"] == "confirmed" else row["tier"],
                        "evidence": evidence,
                    }
                    connection.execute(update(table).where(table.c.id == old["id"]).values(values))
                else:
                    first = {"uid": new_uid(), "detector_id": detector_id, "first_seen_ns": now_ns}
                    connection.execute(insert(table).values(row | first))
            gone = [old["id"] for key, old in known.items() if key not in {change.order_key for change in changes}]
            lost = update(table).where(table.c.id.in_(gone), table.c.retracted_ns.is_(None))
            connection.execute(lost.values(retracted_ns=now_ns))
            return changes_where(connection, mine, retracted=False)

    def changes(
        self, *, series: int | None = None, tier: str | None = None, retracted: bool = False, detector: str = ""
    ) -> tuple[StoredChange, ...]:
        """Return change points by series and place: of one series or all, of one tier or both.

        Args:
            retracted: also those that their detector no longer finds.
            detector: only those of detectors of this name; empty for all.
        """
        c, d = _T["change_point"].c, _T["detector"].c
        wanted = [column == value for column, value in ((c.series_id, series), (c.tier, tier)) if value is not None]
        wanted += [c.detector_id.in_(select(d.id).where(d.name == detector))] if detector else []
        with reading(self._engine, self._name) as connection:
            return changes_where(connection, and_(True, *wanted), retracted=retracted)

    def confirm(self, change_point: int, evidence: Json) -> None:
        """Raise a suspect to the confirmed tier, and keep what confirmed it."""
        table = _T["change_point"]
        with writing(self._engine, self._name) as connection:
            row = connection.execute(select(table.c.evidence).where(table.c.id == change_point)).scalar()
            if row is None:
                raise NotFoundError(f"change point {change_point}: is not in the store")
            merged = canonical_json({**json.loads(row), **evidence})
            connection.execute(
                update(table).where(table.c.id == change_point).values(tier="confirmed", evidence=merged)
            )

    def record_comparison(self, comparison: StoredComparison) -> int:
        """Store a verdict and return its identity."""
        row = _COMPARISON.row(comparison, "id") | {"uid": new_uid(), "created_ns": time.time_ns()}
        with writing(self._engine, self._name) as connection:
            statement = insert(_T["comparison"]).values(row).returning(_T["comparison"].c.id)
            return int(connection.execute(statement).scalar_one())

    def comparisons(self, *, series: int | None = None, verdict: str | None = None) -> tuple[StoredComparison, ...]:
        """Return verdicts, oldest first."""
        c = _T["comparison"].c
        wanted = [
            column == value for column, value in ((c.series_id, series), (c.verdict, verdict)) if value is not None
        ]
        with reading(self._engine, self._name) as connection:
            rows = connection.execute(select(_T["comparison"]).where(*wanted).order_by(c.id)).mappings().all()
        return tuple(map(_COMPARISON.value, rows))

    def open_alert(
        self, title: str, members: Mapping[int, str], *, rev_lo: str = "", rev_hi: str = "", note: str = "",
    ) -> int:  # fmt: skip
        """Open an alert over change points, each with its role, and return its identity."""
        now_ns = time.time_ns()
        row = {
            "uid": new_uid(), "title": title, "rev_lo": rev_lo, "rev_hi": rev_hi, "stack_from": "",
            "stack_to": "", "status": "new", "assignee": "", "priority": 3, "tracker_url": "",
            "created_ns": now_ns,
        }  # fmt: skip
        with writing(self._engine, self._name) as connection:
            statement = insert(_T["alert"]).values(row).returning(_T["alert"].c.id)
            alert = int(connection.execute(statement).scalar_one())
            rows = [{"alert_id": alert, "change_point_id": change, "role": role} for change, role in members.items()]
            if rows:
                connection.execute(insert(_T["alert_member"]), rows)
            _add_event(
                connection,
                alert,
                AlertEvent(at_ns=now_ns, actor="nearpeak", from_status="", to_status="new", note=note),
            )
        return alert

    def add_members(self, alert: int, members: Mapping[int, str]) -> None:
        """Add change points to an alert; those that belong to it already keep their role."""
        with writing(self._engine, self._name) as connection:
            _alert_row(connection, alert)
            rows = [{"alert_id": alert, "change_point_id": change, "role": role} for change, role in members.items()]
            insert_new(connection, _T["alert_member"], rows, ["alert_id", "change_point_id"])

    def move_alert(self, alert: int, status: str, *, actor: str, note: str = "") -> None:
        """Take an alert to another state, and log it.

        Raises:
            SpecError: the state does not follow the present one; nothing is written.
        """
        now_ns = time.time_ns()
        with writing(self._engine, self._name) as connection:
            row = _alert_row(connection, alert, is_written=True)
            check_step(row["status"], status)
            values: dict[str, Any] = {"status": status}
            if row["first_triaged_ns"] is None and status not in ("new", "verifying"):
                values["first_triaged_ns"] = now_ns
            table = _T["alert"]
            connection.execute(update(table).where(table.c.id == alert).values(values))
            event = AlertEvent(at_ns=now_ns, actor=actor, from_status=row["status"], to_status=status, note=note)
            _add_event(connection, alert, event)

    def assign_alert(
        self, alert: int, *, actor: str, assignee: str | None = None, due_ns: int | None = None,
        snoozed_until_ns: int | None = None, tracker_url: str | None = None, priority: int | None = None,
    ) -> None:  # fmt: skip
        """Set the given fields of an alert (assignee, snooze, links) and log the change."""
        changed = {
            "assignee": assignee, "due_ns": due_ns, "snoozed_until_ns": snoozed_until_ns, "tracker_url": tracker_url,
            "priority": priority,
        }  # fmt: skip
        values = {name: value for name, value in changed.items() if value is not None}
        words = [
            f"{name.removesuffix('_ns').replace('_', ' ')} "
            f"{time_text(value)[:10] if isinstance(value, int) and name.endswith('_ns') else value}"
            for name, value in values.items()
        ]
        with writing(self._engine, self._name) as connection:
            row, table = _alert_row(connection, alert, is_written=True), _T["alert"]
            connection.execute(update(table).where(table.c.id == alert).values(values))
            _add_event(connection, alert, AlertEvent(
                at_ns=time.time_ns(), actor=actor, from_status=row["status"], to_status=row["status"],
                note=", ".join(words),
            ))  # fmt: skip

    def note_alert(self, alert: int, note: str, *, actor: str) -> None:
        """Add a note to the life of an alert; its state stays."""
        with writing(self._engine, self._name) as connection:
            status = _alert_row(connection, alert, is_written=True)["status"]
            _add_event(connection, alert, AlertEvent(
                at_ns=time.time_ns(), actor=actor, from_status=status, to_status=status, note=note
            ))  # fmt: skip

    def alerts(self, *, status: str | None = None, is_open: bool = False) -> tuple[Alert, ...]:
        """Return alerts, most urgent first: those of one state, or all that are open."""
        c = _T["alert"].c
        query = select(_T["alert"]).order_by(c.priority, c.id)
        if status is not None:
            check_status(status)
            query = query.where(c.status == status)
        if is_open:
            query = query.where(c.status.not_in(CLOSED))
        with reading(self._engine, self._name) as connection:
            rows = connection.execute(query).mappings().all()
            members: dict[int, list[tuple[int, str]]] = {}
            m = _T["alert_member"].c
            for alert, change, role in connection.execute(
                select(m.alert_id, m.change_point_id, m.role).order_by(m.change_point_id)
            ):
                members.setdefault(alert, []).append((change, role))
        names = (
            "id", "title", "status", "rev_lo", "rev_hi", "assignee", "priority", "created_ns", "due_ns",
            "snoozed_until_ns", "first_triaged_ns", "tracker_url",
        )  # fmt: skip
        return tuple(
            Alert(**{name: row[name] for name in names}, members=tuple(members.get(row["id"], ()))) for row in rows
        )

    def alerts_by_change(self) -> dict[int, Alert]:
        """Return the alert that each change point belongs to."""
        return {change: alert for alert in self.alerts() for change, _ in alert.members}

    def status_of(self, alert: int) -> str:
        """Return the state of an alert."""
        with reading(self._engine, self._name) as connection:
            return str(_alert_row(connection, alert)["status"])

    def events(self, alert: int) -> tuple[AlertEvent, ...]:
        """Return the events of an alert, oldest first."""
        e = _T["alert_event"].c
        query = select(e.at_ns, e.actor, e.from_status, e.to_status, e.note).where(e.alert_id == alert).order_by(e.id)
        with reading(self._engine, self._name) as connection:
            _alert_row(connection, alert)
            return tuple(AlertEvent(**row) for row in connection.execute(query).mappings())


def _alert_row(connection: Connection, alert: int, *, is_written: bool = False) -> Mapping[str, Any]:
    query = select(_T["alert"]).where(_T["alert"].c.id == alert)
    row = connection.execute(query.with_for_update() if is_written else query).mappings().one_or_none()
    if row is None:
        raise NotFoundError(f"alert {alert}: is not in the store")
    return dict(row)


def _add_event(connection: Connection, alert: int, event: AlertEvent) -> None:
    connection.execute(insert(_T["alert_event"]).values(alert_id=alert, **_EVENT.row(event)))


def changes_where(connection: Connection, where: Any, *, retracted: bool) -> tuple[StoredChange, ...]:
    """Return the change points that `where` selects, by series and place."""
    table = _T["change_point"]
    query = select(table).where(where).order_by(table.c.series_id, table.c.order_key, table.c.id)
    if not retracted:
        query = query.where(table.c.retracted_ns.is_(None))
    return tuple(map(_CHANGE.value, connection.execute(query).mappings()))
