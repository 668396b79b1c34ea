"""Columns that rank the alert queue: state of each alert and effect sizes of its changes, read in one query."""

from collections.abc import Sequence

from sqlalchemy import Connection, and_, func, select

from nearpeak.store.rows.list_rows import AlertEffects, AlertKey
from nearpeak.store.table_schema import TABLES

_T = TABLES


def newest_event(connection: Connection) -> int:
    """Return the number of the newest event of any alert; 0 where nothing ever happened."""
    return int(connection.execute(select(func.coalesce(func.max(_T["alert_event"].c.id), 0))).scalar_one())


def keys_since(connection: Connection, event: int | None) -> tuple[AlertKey, ...]:
    """Return all alerts by number, or those to which something happened after an event."""
    c, e = _T["alert"].c, _T["alert_event"].c
    query = select(*(c[name] for name in AlertKey._fields)).order_by(c.id)
    if event is not None:
        query = query.where(c.id.in_(select(e.alert_id).where(e.id > event)))
    return tuple(map(AlertKey._make, connection.execute(query).tuples()))


def effects(connection: Connection, alerts: Sequence[int] | None) -> AlertEffects:
    """Return the changes of some alerts, or of all, and once per series its newest value and owner.

    Args:
        alerts: at most as many as a question may name.
    """
    a, p = _T["alert_member"].c, _T["change_point"].c
    query = select(a.alert_id, p.series_id, p.effect).join_from(
        _T["alert_member"], _T["change_point"], p.id == a.change_point_id
    )
    if alerts is not None:
        query = query.where(a.alert_id.in_(list(alerts)))
    rows = connection.execute(query.order_by(a.alert_id, p.id)).all()
    columns = tuple(zip(*rows, strict=True)) or ((), (), ())
    s, m, metric = _T["series"].c, _T["measurement"].c, _T["metric"].c
    newest = and_(m.run_id == s.last_run_id, m.series_id == s.id, m.launch == 0)
    known = (
        select(s.id, m.median, metric.unit, metric.direction, s.owner)
        .join_from(_T["series"], _T["metric"], metric.id == s.metric_id)
        .outerjoin(_T["measurement"], newest)
    )
    if alerts is not None:
        known = known.where(s.id.in_(set(columns[1])))
    series = {
        alert: (value if unit == "s" and direction == "lower" else None, owner)
        for alert, value, unit, direction, owner in connection.execute(known).tuples()
    }
    return AlertEffects(alerts=columns[0], series=columns[1], effect_ratios=columns[2], known=series)
