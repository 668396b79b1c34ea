"""Command `nearpeak alerts`: regression alerts with their state changes, none of which is ever deleted."""

import getpass
import json as jsonlib
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.cli.team.store import STORE
from nearpeak.errors import NotFoundError, SpecError
from nearpeak.units import parse_share, time_text

ALERT = typer.Argument(metavar="ALERT", help="Number of the alert.")
_FIELDS = ("operator", "device", "runner", "branch", "owner", "case")
ACTOR = typer.Option("", "--by", help="Name for the log; the user of this process by default.")
NOTE = typer.Option("", "--note", help="Reason, in one line.")


def list_(
    store: str | None = STORE,
    all_: bool = typer.Option(False, "--all", help="Also closed and snoozed alerts."),
    json: bool = shared.JSON,
) -> None:
    """List alerts, the most urgent first; the number of snoozed alerts goes to standard error."""
    from nearpeak.reports.history.alerts import alerts_document
    from nearpeak.store import open_store
    from nearpeak.store.store_check import place_of

    with open_store(place_of(store)) as opened:
        alerts = opened.findings.alerts(is_open=not all_)
    now_ns = time.time_ns()
    due = tuple(alert for alert in alerts if all_ or (alert.snoozed_until_ns or 0) <= now_ns)
    if json:
        for alert in due:
            sys.stdout.write(f"{jsonlib.dumps(asdict(alert))}\n")
    else:
        rows = []
        for alert in due:
            urgency = "overdue" if (alert.due_ns or 0) < now_ns else "due"
            deadline = "" if alert.due_ns is None else f"{urgency} {_day(alert.due_ns)}: "
            rows.append((alert.id, alert.status, alert.assignee, deadline + alert.title))
        shared.print_document(alerts_document(rows))
    if later := sorted(alert.snoozed_until_ns or 0 for alert in alerts if alert not in due):
        when = f"{'until' if len(later) == 1 else 'the first until'} {time_text(later[0])[:10]}"
        sys.stderr.write(f"{len(later)} put off, {when}; --all lists them too\n")


def show(alert: int = ALERT, store: str | None = STORE, json: bool = shared.JSON) -> None:
    """Show one alert with its whole history."""
    from nearpeak.reports.history.alerts import events_document
    from nearpeak.store import open_store
    from nearpeak.store.store_check import place_of

    with open_store(place_of(store)) as opened:
        row = next((event for event in opened.findings.alerts() if event.id == alert), None)
        if row is None:
            raise NotFoundError(f"alert {alert}: is not in the store; 'nearpeak alerts list --all' lists what is")
        events = opened.findings.events(alert)
        blamed = opened.investigations.attributions(alert)
    if json:
        record = asdict(row) | {
            "events": [asdict(event) for event in events],
            "attributions": [asdict(event) for event in blamed],
        }
        sys.stdout.write(f"{jsonlib.dumps(record)}\n")
        return
    head = [
        f"alert {row.id}: {row.title}",
        f"{row.rev_lo[:10]} → {row.rev_hi[:10]}, {len(row.members)} changes",
    ]
    details = {
        "who": row.assignee, "due": _day(row.due_ns), "put off until": _day(row.snoozed_until_ns),
        "tracker": row.tracker_url,
    }  # fmt: skip
    head += [f"  {name}: {value}" for name, value in details.items() if value]
    head += [f"  {event.axis}: {event.what}" for event in blamed]
    rows = [(time_text(event.at_ns), event.actor, event.from_status, event.to_status, event.note) for event in events]
    shared.print_document(events_document(head, rows))


def move(
    alert: int = ALERT,
    status: str = typer.Argument(metavar="STATUS", help="acknowledged, fixing, fixed, expected, wontfix, …."),
    note: str = NOTE,
    actor: str = ACTOR,
    store: str | None = STORE,
) -> None:
    """Move an alert to another state; an invalid transition is refused, with the valid ones."""
    from nearpeak.store import open_store
    from nearpeak.store.store_check import place_of

    with open_store(place_of(store)) as opened:
        opened.findings.move_alert(alert, status, actor=_actor(actor), note=_one_line(note))


def assign(
    alert: int = ALERT,
    to: str = typer.Argument(metavar="WHO", help="Person in charge of the alert."),
    tracker: str = typer.Option("", "--tracker", help="Address of the issue in which it is followed."),
    due: str = typer.Option("", "--due", help="Day by which it should be done, as 2026-12-24."),
    priority: int | None = typer.Option(None, "--priority", min=1, max=9, help="1, the most urgent, to 9; 3 at first."),
    actor: str = ACTOR,
    store: str | None = STORE,
) -> None:
    """Assign an alert: person in charge, due day, urgency, and issue link."""
    from nearpeak.store import open_store
    from nearpeak.store.store_check import place_of

    due_ns = _day_ns(due, "--due") if due else None
    with open_store(place_of(store)) as opened:
        opened.findings.assign_alert(
            alert, actor=_actor(actor), assignee=_one_line(to), tracker_url=_one_line(tracker) or None, due_ns=due_ns,
            priority=priority,
        )  # fmt: skip


def snooze(
    alert: int = ALERT,
    until: str = typer.Option(..., "--until", help="Day from which it is listed again, as 2026-12-24."),
    actor: str = ACTOR,
    store: str | None = STORE,
) -> None:
    """Snooze an alert: until that day it is not listed; its state stays."""
    from nearpeak.store import open_store
    from nearpeak.store.store_check import place_of

    until_ns = _day_ns(until, "--until")
    if until_ns <= time.time_ns():
        raise SpecError(f"--until {until!r}: is over already; name a day to come")
    with open_store(place_of(store)) as opened:
        opened.findings.assign_alert(alert, actor=_actor(actor), snoozed_until_ns=until_ns)


def note(
    alert: int = ALERT,
    text: str = typer.Argument(metavar="TEXT", help="Text of the note, one line."),
    actor: str = ACTOR,
    store: str | None = STORE,
) -> None:
    """Add a note to an alert; its state stays."""
    from nearpeak.store import open_store
    from nearpeak.store.store_check import place_of

    if not text.strip():
        raise SpecError("note: is empty; write one line")
    with open_store(place_of(store)) as opened:
        opened.findings.note_alert(alert, _one_line(text), actor=_actor(actor))


SELECT = typer.Option(
    [], "--select", help="Series by pattern: operator=, device=, runner=, branch=, owner= or case=. Repeatable."
)


def suppress(
    reason: str = typer.Argument(metavar="REASON", help="Reason for the suppression."),
    days: int = typer.Option(..., "--days", min=1, max=365, help="For how long."),
    select: list[str] = SELECT,
    actor: str = ACTOR,
    store: str | None = STORE,
) -> None:
    """Suppress alerts of some series for a while; a reason and an end are required."""
    from nearpeak.core.history.alert_group import Suppression
    from nearpeak.store import open_store
    from nearpeak.store.store_check import place_of

    selector = _selector(select)
    if not selector:
        raise SpecError("--select: is missing; to suppress everything for a while, name it: --select case='*'")
    until_ns = time.time_ns() + days * 86_400 * 10**9
    with open_store(place_of(store)) as opened:
        opened.policies.suppress(
            Suppression(selector=selector, until_ns=until_ns, reason=_one_line(reason), author=_actor(actor))
        )


def expect(
    commit: str = typer.Argument(metavar="COMMIT", help="Whole name of the commit that makes the change."),
    least: str = typer.Option(..., "--from", help="Least change that is as expected, e.g. 2%, or -10% for faster."),
    most: str = typer.Option(..., "--to", help="Largest change that is as expected."),
    select: list[str] = SELECT,
    actor: str = ACTOR,
    store: str | None = STORE,
) -> None:
    """Declare a change: alerts of this commit whose changes all lie within the range become `expected`."""
    from nearpeak.core.history.alert_group import Expectation
    from nearpeak.store import open_store
    from nearpeak.store.store_check import place_of

    if len(commit) < 40:
        raise SpecError(f"commit {commit!r}: is not a full commit hash of 40 digits; see 'git rev-parse'")
    low, high = _change(least, "--from"), _change(most, "--to")
    with open_store(place_of(store)) as opened:
        opened.policies.expect(
            Expectation(sha=commit, selector=_selector(select), low_ratio=low, high_ratio=high, author=_actor(actor))
        )


def _selector(words: list[str]) -> dict[str, str]:
    selector: dict[str, str] = {}
    for word in words:
        name, sign, pattern = word.partition("=")
        if name not in _FIELDS or not sign or not pattern or name in selector:
            raise SpecError(f"--select {word!r}: is not NAME=PATTERN, each once; names are {', '.join(_FIELDS)}")
        selector[name] = pattern
    return selector


def _change(text: str, option: str) -> float:
    """Return a signed change in per cent as a ratio.

    >>> _change("-10%", "--from"), _change("2 %", "--to")
    (-0.1, 0.02)
    """
    sign = -1 if text.startswith("-") else 1
    return 0.0 if text.strip(" +-%") == "0" else sign * parse_share(text.lstrip("+-"), option)


def register(app: typer.Typer) -> None:
    """Add the command."""
    group = shared.group_of("Alerts: reported regressions and their state.")
    group.command("list")(list_)
    for command in (show, move, assign, snooze, note, suppress, expect):
        group.command()(command)
    app.add_typer(group, name="alerts")


def _actor(name: str) -> str:
    if name:
        return _one_line(name)
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        raise SpecError("--by: is missing, and this process has no user name; say who does it") from None


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise SpecError(f"{text!r}: is not one line of text")
    return text


def _day_ns(text: str, option: str) -> int:
    """Return the beginning of a day, UTC, since 1970.

    >>> _day_ns("1970-01-02", "--due") // 10**9
    86400
    """
    try:
        return int(datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()) * 10**9
    except (ValueError, OverflowError):
        raise SpecError(f"{option} {text!r}: is not a day, e.g. 2026-12-24") from None


def _day(at_ns: int | None) -> str:
    return "" if at_ns is None else time_text(at_ns)[:10]
