"""Alert triage: cost and owners of each alert, and the state transitions behind single-key commands."""

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nearpeak.core.history.alert import CLOSED, next_statuses
from nearpeak.errors import SpecError
from nearpeak.store import Store
from nearpeak.store.rows.list_rows import MemberRow

ACTIONS = ("acknowledge", "assign", "expected", "invalid", "snooze", "fixing", "verify", "reopen")
"""Actions on an alert."""
MOST_SNOOZE_DAYS = 90
_ENDS = {"expected": "expected", "invalid": "invalid-noise"}
_ON_THE_WAY = {
    "acknowledge": ("active", "acknowledged"), "fixing": ("active", "fixing"),
    "verify": ("active", "fix-pending-verification"), "reopen": ("active",),
}  # fmt: skip
"""States that an action passes until it is where it wants to be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """Weight of an alert in the queue."""

    change_count: int
    """Changes that belong to it."""
    worst_ratio: float | None
    """Largest change, as the worse level over the better one; none without changes, or where series failed."""
    gap_s: float | None
    """Seconds by which one call of each of its cases got longer, added up over those whose newest time is known; none
    where no time is known."""
    series: int | None
    """Series of its first change."""
    owners: tuple[str, ...]
    """Owners of its series."""


NOTHING = Weight(change_count=0, worst_ratio=None, gap_s=None, series=None, owners=())
"""Weight of an alert without changes."""


def weights_of(members: Iterable[MemberRow]) -> dict[int, Weight]:
    """Return the weight of each alert.

    >>> row = MemberRow(alert_id=1, series=7, role="primary", effect_ratio=math.log(1.25), value=5e-6, unit="s",
    ...                 direction="lower", owner="kernels")
    >>> found = weights_of([row])[1]
    >>> round(found.gap_s * 1e6, 9), round(found.worst_ratio, 9), found.owners
    (1.0, 1.25, ('kernels',))
    """
    by_alert: dict[int, list[MemberRow]] = {}
    for member in members:
        by_alert.setdefault(member.alert_id, []).append(member)
    return {alert: _weight(rows) for alert, rows in by_alert.items()}


def _weight(rows: Sequence[MemberRow]) -> Weight:
    first = next((row for row in rows if row.role == "primary"), rows[0])
    gaps_s = [
        max(0.0, -row.value * math.expm1(-row.effect_ratio))  # newest time over that of the old level
        for row in rows
        if row.unit == "s" and row.direction == "lower" and row.value is not None
    ]
    size = max(abs(row.effect_ratio) for row in rows)  # of a failure 0: it has no level
    return Weight(
        change_count=len(rows), worst_ratio=math.exp(size) if size else None,
        gap_s=sum(gaps_s) if gaps_s else None, series=first.series,
        owners=tuple(sorted({row.owner for row in rows if row.owner})),
    )  # fmt: skip


def act(
    store: Store, alert: int, action: str, *, actor: str, note: str = "", assignee: str = "", days: float = 7.0
) -> str:
    """Apply an action to an alert, pass through the states before its final one, and return the new state.

    All states on the way and the line of the audit log are one transaction.

    Args:
        assignee: new assignee, for `assign`.
        days: length of the snooze, for `snooze`.

    Raises:
        NotFoundError: there is no such alert.
        SpecError: the action is not known, cannot be done now, or lacks what it needs.
    """
    if action not in ACTIONS:
        raise SpecError(f"action {action!r}: is not known; there are {', '.join(ACTIONS)}")
    _check_line("note", note)
    _check_line("assignee", assignee)
    with store.together():
        status = _done(store, alert, action, actor, note, assignee, days)
        store.access.log(actor, action, f"alert {alert}", note or assignee)
    return status


def _done(store: Store, alert: int, action: str, actor: str, note: str, assignee: str, days: float) -> str:
    status = store.findings.status_of(alert)
    if action == "assign":
        if not assignee.strip():
            raise SpecError("assign: names nobody; say who looks after it")
        store.findings.assign_alert(alert, actor=actor, assignee=assignee)
    elif action == "snooze":
        if not 0 < days <= MOST_SNOOZE_DAYS:
            raise SpecError(f"snooze: {days:g} days is not between 0 and {MOST_SNOOZE_DAYS}")
        until_ns = time.time_ns() + int(days * 86_400e9)
        store.findings.assign_alert(alert, actor=actor, snoozed_until_ns=until_ns)
    else:
        status = _moved(store, alert, status, action, actor, note)
    return status


def _moved(store: Store, alert: int, status: str, action: str, actor: str, note: str) -> str:
    if action in _ENDS:
        if status in CLOSED:
            raise SpecError(f"alert {alert}: is {status} already; reopen it first")
        path: Sequence[str] = (_ENDS[action],)
    else:
        path = _ON_THE_WAY[action]
        if action == "reopen" and status not in CLOSED:
            raise SpecError(f"alert {alert}: is {status}, not closed")
        if action != "reopen" and status in CLOSED:
            raise SpecError(f"alert {alert}: is {status}; reopen it first")
        if path[-1] in next_statuses(status):
            path = path[-1:]
    if status == path[-1]:
        return status
    for step in path:
        store.findings.move_alert(alert, step, actor=actor, note=note if step == path[-1] else "")
    return path[-1]


def _check_line(name: str, text: str) -> None:
    if text and (not text.isprintable() or len(text) > 500):
        raise SpecError(f"{name}: is not one line of at most 500 characters")
