"""`nearpeak alerts`: what people were told of, and what became of it; nothing of it is ever deleted."""

import getpass
import json as jsonlib
import sys
from dataclasses import asdict
from datetime import UTC, datetime

import typer

from nearpeak.cli import _shared as shared
from nearpeak.cli.store import STORE
from nearpeak.errors import NotFoundError, SpecError

ALERT = typer.Argument(metavar="ALERT", help="Number of the alert.")
ACTOR = typer.Option("", "--by", help="Who does it; the user of this process by default.")
NOTE = typer.Option("", "--note", help="Why, in one line.")


def list_(
    store: str | None = STORE,
    all_: bool = typer.Option(False, "--all", help="Also those that are closed."),
    json: bool = shared.JSON,
) -> None:
    """List alerts, the most urgent first."""
    from nearpeak.report.history.alerts import alerts_text
    from nearpeak.store import open_store
    from nearpeak.store.opening import place_of

    with open_store(place_of(store)) as opened:
        found = opened.findings.alerts(is_open=not all_)
    if json or not shared.on_terminal():
        for one in found:
            sys.stdout.write(f"{jsonlib.dumps(asdict(one))}\n")
        return
    rows = [(one.id, one.status, one.assignee, one.title) for one in found]
    sys.stdout.write(alerts_text(rows))


def show(alert: int = ALERT, store: str | None = STORE, json: bool = shared.JSON) -> None:
    """Show one alert with every step of its life."""
    from nearpeak.report.history.alerts import events_text
    from nearpeak.store import open_store
    from nearpeak.store.opening import place_of

    with open_store(place_of(store)) as opened:
        found = next((one for one in opened.findings.alerts() if one.id == alert), None)
        if found is None:
            raise NotFoundError(f"alert {alert}: is not in the store; 'nearpeak alerts list --all' lists what is")
        events = opened.findings.events(alert)
    if json or not shared.on_terminal():
        record = asdict(found) | {"events": [asdict(one) for one in events]}
        sys.stdout.write(f"{jsonlib.dumps(record)}\n")
        return
    head = [
        f"alert {found.id}: {found.title}",
        f"{found.rev_lo[:10]} → {found.rev_hi[:10]}, {len(found.members)} changes",
    ]
    rows = [(_time(one.at_ns), one.actor, one.from_status, one.to_status, one.note) for one in events]
    sys.stdout.write(events_text(head, rows))


def move(
    alert: int = ALERT,
    status: str = typer.Argument(metavar="STATUS", help="acknowledged, fixing, fixed, expected, wontfix, …."),
    note: str = NOTE,
    actor: str = ACTOR,
    store: str | None = STORE,
) -> None:
    """Take an alert to another state; a state that does not follow the present one is refused, with those that do."""
    from nearpeak.store import open_store
    from nearpeak.store.opening import place_of

    with open_store(place_of(store)) as opened:
        opened.findings.move_alert(alert, status, actor=_actor(actor), note=_one_line(note))


def assign(
    alert: int = ALERT,
    to: str = typer.Argument(metavar="WHO", help="Who looks after it."),
    tracker: str = typer.Option("", "--tracker", help="Address of the issue in which it is followed."),
    actor: str = ACTOR,
    store: str | None = STORE,
) -> None:
    """Say who looks after an alert."""
    from nearpeak.store import open_store
    from nearpeak.store.opening import place_of

    with open_store(place_of(store)) as opened:
        opened.findings.assign_alert(alert, actor=_actor(actor), assignee=_one_line(to), tracker_url=tracker or None)


def register(app: typer.Typer) -> None:
    """Add the command."""
    group = typer.Typer(
        help="Alerts: what people were told of, and what became of it.", no_args_is_help=True, rich_markup_mode=None
    )
    group.command("list")(list_)
    for command in (show, move, assign):
        group.command()(command)
    app.add_typer(group, name="alerts")


def _actor(given: str) -> str:
    if given:
        return _one_line(given)
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        raise SpecError("--by: is missing, and this process has no user name; say who does it") from None


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise SpecError(f"{text!r}: is not one line of text")
    return text


def _time(at_ns: int) -> str:
    return datetime.fromtimestamp(at_ns / 1e9, tz=UTC).strftime("%Y-%m-%d %H:%M")
