"""What was found in series, written and read: change points, comparisons, alerts with their events, gates."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine, and_, insert, select, update

from nearpeak.canon import canonical_json, digest
from nearpeak.core.alert import CLOSED, check_status, check_step
from nearpeak.errors import NotFoundError, SpecError
from nearpeak.store.dialect import id_of, reading, writing
from nearpeak.store.identity import new_uid
from nearpeak.store.schema import TABLES

_T = TABLES
Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """What found a change point, with all that its answer depends on."""

    name: str
    """Name."""
    version: str = "1"
    """Version."""
    parameters: Json = field(default_factory=dict)
    """Thresholds and the like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoint:
    """Where a series changes its level."""

    series: int
    """Identity of the series within its store."""
    order_key: int
    """First run of the new level."""
    rev_lo: str
    """Last commit of the old level."""
    rev_hi: str
    """First commit of the new one."""
    effect_ratio: float
    """Logarithm of new over old level; of a linear metric new minus old."""
    low_ratio: float | None = None
    """Lower end of its interval."""
    high_ratio: float | None = None
    """Upper end."""
    score_ratio: float | None = None
    """How sure the detector is, on its own scale."""
    tier: str = "suspect"
    """`suspect`, or `confirmed`."""
    before_count: int = 0
    """Values before it that were looked at."""
    after_count: int = 0
    """Values after it."""
    evidence: Json = field(default_factory=dict)
    """What else it rests on."""
    id: int = 0
    """Identity within the store; 0 before it is stored."""
    retracted_ns: int | None = None
    """When the detector no longer found it; none while it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """Something that people are told of: change points that belong together, and what became of them."""

    id: int
    """Identity within the store."""
    title: str
    """One line."""
    status: str
    """Where it stands; see `core.alert`."""
    rev_lo: str
    """Last good commit."""
    rev_hi: str
    """First bad one."""
    assignee: str
    """Who looks after it; empty where nobody does."""
    priority: int
    """Smaller is more urgent."""
    created_ns: int
    """When it was opened."""
    due_ns: int | None
    """When it should be done."""
    tracker_url: str
    """Issue that it is followed in."""
    members: tuple[tuple[int, str], ...]
    """Change points with their role: `primary`, `downstream` or `related`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertEvent:
    """One step in the life of an alert."""

    at_ns: int
    """When."""
    actor: str
    """Who, or what."""
    from_status: str
    """State before."""
    to_status: str
    """State after."""
    note: str
    """Why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredComparison:
    """A verdict on two groups of runs, with all that it was based on."""

    baseline: str
    """What the candidate was compared with: a run, a commit, a bound."""
    candidate: str
    """What was judged."""
    verdict: str
    """`improvement`, `invariant`, `regression`, `inconclusive`, or why there is none."""
    series: int | None = None
    """Series that both are of; none across series."""
    theta_ratio: float | None = None
    """Logarithm of candidate over baseline."""
    theta_clock_ratio: float | None = None
    """The same with the clock taken out."""
    low_ratio: float | None = None
    """Lower end of the interval."""
    high_ratio: float | None = None
    """Upper end."""
    look_count: int = 1
    """Looks at the data so far."""
    launch_count: int = 0
    """Launches that it rests on."""
    inputs: Json = field(default_factory=dict)
    """Everything that decided it."""
    id: int = 0
    """Identity within the store; 0 before it is stored."""
    created_ns: int = 0
    """When; 0 before it is stored."""


_CHANGE = {
    "series": "series_id", "order_key": "order_key", "rev_lo": "rev_lo", "rev_hi": "rev_hi", "effect_ratio": "effect",
    "low_ratio": "low", "high_ratio": "high", "score_ratio": "score", "tier": "tier", "before_count": "n_before",
    "after_count": "n_after", "id": "id", "retracted_ns": "retracted_ns",
}  # fmt: skip
_COMPARISON = {
    "baseline": "baseline", "candidate": "candidate", "verdict": "verdict", "series": "series_id",
    "theta_ratio": "theta", "theta_clock_ratio": "theta_clock", "low_ratio": "low", "high_ratio": "high",
    "look_count": "look", "launch_count": "launches", "id": "id", "created_ns": "created_ns",
}  # fmt: skip


class Findings:
    """Everything that was concluded from a store's series."""

    def __init__(self, engine: Engine, name: str) -> None:
        """Keep where to write; `name` is what messages call the store."""
        self._engine, self._name = engine, name

    def record_changes(self, series: int, detector: Detector, found: Sequence[ChangePoint]) -> tuple[ChangePoint, ...]:
        """Store what `detector` finds in a series now, and return it with identities.

        A change point that is stored already is brought up to date, and stays confirmed if it is; one of this detector
        that is not among `found` is marked as retracted, never deleted; one that comes back is no longer retracted.
        """
        now_ns = time.time_ns()
        with writing(self._engine, self._name) as connection:
            detector_id = _detector_id(connection, detector)
            table = _T["change_point"]
            mine = and_(table.c.series_id == series, table.c.detector_id == detector_id)
            rows = connection.execute(select(table).where(mine)).mappings()
            known = {row["order_key"]: dict(row) for row in rows}
            for one in found:
                if one.series != series:
                    raise SpecError(f"change point of series {one.series}: is recorded for series {series}")
                row = _change_row(one) | {"last_seen_ns": now_ns, "retracted_ns": None}
                if one.order_key in known:
                    old = known[one.order_key]
                    connection.execute(update(table).where(table.c.id == old["id"]).values(_kept(old, row)))
                else:
                    first = {"uid": new_uid(), "detector_id": detector_id, "first_seen_ns": now_ns}
                    connection.execute(insert(table).values(row | first))
            gone = [old["id"] for key, old in known.items() if key not in {one.order_key for one in found}]
            lost = update(table).where(table.c.id.in_(gone), table.c.retracted_ns.is_(None))
            connection.execute(lost.values(retracted_ns=now_ns))
            return changes_where(connection, mine, retracted=False)

    def changes(
        self, *, series: int | None = None, tier: str | None = None, retracted: bool = False
    ) -> tuple[ChangePoint, ...]:
        """Return change points by series and place: of one series or all, of one tier or both.

        Args:
            retracted: also those that their detector no longer finds.
        """
        c = _T["change_point"].c
        wanted = [column == value for column, value in ((c.series_id, series), (c.tier, tier)) if value is not None]
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

    def record_comparison(self, one: StoredComparison) -> int:
        """Store a verdict and return its identity."""
        row = {column: getattr(one, name) for name, column in _COMPARISON.items() if name != "id"}
        row |= {"uid": new_uid(), "inputs": canonical_json(dict(one.inputs)), "created_ns": time.time_ns()}
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
        return tuple(
            StoredComparison(
                **{name: row[column] for name, column in _COMPARISON.items()}, inputs=json.loads(row["inputs"])
            )
            for row in rows
        )

    def open_alert(
        self, title: str, members: Mapping[int, str], *, rev_lo: str = "", rev_hi: str = "", actor: str = "nearpeak",
        note: str = "", priority: int = 3, stack_from: str = "", stack_to: str = "",
    ) -> int:  # fmt: skip
        """Open an alert over change points, each with its role, and return its identity."""
        now_ns = time.time_ns()
        row = {
            "uid": new_uid(), "title": title, "rev_lo": rev_lo, "rev_hi": rev_hi, "stack_from": stack_from,
            "stack_to": stack_to, "status": "new", "assignee": "", "priority": priority, "tracker_url": "",
            "created_ns": now_ns,
        }  # fmt: skip
        with writing(self._engine, self._name) as connection:
            statement = insert(_T["alert"]).values(row).returning(_T["alert"].c.id)
            alert = int(connection.execute(statement).scalar_one())
            rows = [{"alert_id": alert, "change_point_id": one, "role": role} for one, role in members.items()]
            if rows:
                connection.execute(insert(_T["alert_member"]), rows)
            _add_event(
                connection, alert, AlertEvent(at_ns=now_ns, actor=actor, from_status="", to_status="new", note=note)
            )
        return alert

    def add_members(self, alert: int, members: Mapping[int, str]) -> None:
        """Add change points to an alert; those that belong to it already keep their role."""
        with writing(self._engine, self._name) as connection:
            _alert_row(connection, alert)
            table = _T["alert_member"]
            known = set(connection.execute(select(table.c.change_point_id).where(table.c.alert_id == alert)).scalars())
            rows = [
                {"alert_id": alert, "change_point_id": one, "role": role}
                for one, role in members.items() if one not in known
            ]  # fmt: skip
            if rows:
                connection.execute(insert(table), rows)

    def move_alert(self, alert: int, status: str, *, actor: str, note: str = "") -> None:
        """Take an alert to another state, and log it.

        Raises:
            SpecError: the state does not follow the present one; nothing is written.
        """
        now_ns = time.time_ns()
        with writing(self._engine, self._name) as connection:
            row = _alert_row(connection, alert)
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
        """Say who looks after an alert, until when, and where; what is not given stays, and what changes is logged."""
        given = {
            "assignee": assignee, "due_ns": due_ns, "snoozed_until_ns": snoozed_until_ns, "tracker_url": tracker_url,
            "priority": priority,
        }  # fmt: skip
        values = {name: value for name, value in given.items() if value is not None}
        with writing(self._engine, self._name) as connection:
            row, table = _alert_row(connection, alert), _T["alert"]
            connection.execute(update(table).where(table.c.id == alert).values(values))
            _add_event(connection, alert, AlertEvent(
                at_ns=time.time_ns(), actor=actor, from_status=row["status"], to_status=row["status"],
                note=canonical_json(values),
            ))  # fmt: skip

    def alerts(self, *, status: str | None = None, is_open: bool = False) -> tuple[Alert, ...]:
        """Return alerts, most urgent first: those of one state, or all that are open."""
        c = _T["alert"].c
        asked = select(_T["alert"]).order_by(c.priority, c.id)
        if status is not None:
            check_status(status)
            asked = asked.where(c.status == status)
        if is_open:
            asked = asked.where(c.status.not_in(CLOSED))
        with reading(self._engine, self._name) as connection:
            rows = connection.execute(asked).mappings().all()
            members: dict[int, list[tuple[int, str]]] = {}
            m = _T["alert_member"].c
            for alert, one, role in connection.execute(
                select(m.alert_id, m.change_point_id, m.role).order_by(m.change_point_id)
            ):
                members.setdefault(alert, []).append((one, role))
        names = (
            "id", "title", "status", "rev_lo", "rev_hi", "assignee", "priority", "created_ns", "due_ns", "tracker_url",
        )  # fmt: skip
        return tuple(
            Alert(**{name: row[name] for name in names}, members=tuple(members.get(row["id"], ()))) for row in rows
        )

    def status_of(self, alert: int) -> str:
        """Return where an alert stands."""
        with reading(self._engine, self._name) as connection:
            return str(_alert_row(connection, alert)["status"])

    def events(self, alert: int) -> tuple[AlertEvent, ...]:
        """Return the events of an alert, oldest first."""
        e = _T["alert_event"].c
        asked = select(e.at_ns, e.actor, e.from_status, e.to_status, e.note).where(e.alert_id == alert).order_by(e.id)
        with reading(self._engine, self._name) as connection:
            _alert_row(connection, alert)
            return tuple(AlertEvent(**row) for row in connection.execute(asked).mappings())


def _alert_row(connection: Connection, alert: int) -> Mapping[str, Any]:
    table = _T["alert"]
    row = connection.execute(select(table).where(table.c.id == alert).with_for_update()).mappings().one_or_none()
    if row is None:
        raise NotFoundError(f"alert {alert}: is not in the store")
    return dict(row)


def _add_event(connection: Connection, alert: int, event: AlertEvent) -> None:
    connection.execute(insert(_T["alert_event"]).values(
        alert_id=alert, at_ns=event.at_ns, actor=event.actor, from_status=event.from_status,
        to_status=event.to_status, note=event.note,
    ))  # fmt: skip


def _detector_id(connection: Connection, detector: Detector) -> int:
    row = {
        "name": detector.name, "version": detector.version, "parameters": canonical_json(dict(detector.parameters)),
        "hash": digest([detector.name, detector.version, dict(detector.parameters)]),
    }  # fmt: skip
    return id_of(connection, _T["detector"], row, ["hash"])


def _change_row(one: ChangePoint) -> dict[str, Any]:
    row = {column: getattr(one, name) for name, column in _CHANGE.items() if name not in ("id", "retracted_ns")}
    return row | {"evidence": canonical_json(dict(one.evidence))}


def _kept(old: Mapping[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """Return what a change point becomes: what was confirmed by other means stays so, with its evidence."""
    evidence = canonical_json({**json.loads(old["evidence"]), **json.loads(row["evidence"])})
    return row | {"tier": "confirmed" if old["tier"] == "confirmed" else row["tier"], "evidence": evidence}


def changes_where(connection: Connection, where: Any, *, retracted: bool) -> tuple[ChangePoint, ...]:
    """Return the change points that `where` selects, by series and place."""
    table = _T["change_point"]
    asked = select(table).where(where).order_by(table.c.series_id, table.c.order_key, table.c.id)
    if not retracted:
        asked = asked.where(table.c.retracted_ns.is_(None))
    return tuple(
        ChangePoint(**{name: row[column] for name, column in _CHANGE.items()}, evidence=json.loads(row["evidence"]))
        for row in connection.execute(asked).mappings()
    )
