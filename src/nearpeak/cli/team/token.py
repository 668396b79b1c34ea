"""Command `nearpeak token`: tokens that authorize writes through the dashboard."""

import json as jsonlib
import sys
import time
from dataclasses import asdict

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.cli.team.store import STORE
from nearpeak.units import time_text


def add(
    name: str = typer.Argument(metavar="NAME", help="Owner or purpose; shown with every action of the token."),
    scope: str = typer.Option(
        "submit", "--scope", help="read; submit: also results and alerts; admin: also see tokens and audit log."
    ),
    days: float = typer.Option(90.0, "--days", min=0.001, help="After so many days it ends."),
    store: str | None = STORE,
) -> None:
    """Create a token and print it once: the store keeps only a hash."""
    from nearpeak.store import open_store
    from nearpeak.store.store_check import place_of

    with open_store(place_of(store)) as opened:
        text = opened.access.add_token(name, scope, days=days)
    sys.stdout.write(f"{text}\n")
    sys.stderr.write(
        f"{name} may {scope} for {days:g} days; keep it where only its holder reads, e.g. in NEARPEAK_TOKEN\n"
    )


def list_(store: str | None = STORE, json: bool = shared.JSON) -> None:
    """List tokens with owner, permissions and expiry."""
    from nearpeak.reports.figure_text import shortened
    from nearpeak.store import open_store
    from nearpeak.store.store_check import place_of

    with open_store(place_of(store)) as opened:
        tokens = opened.access.tokens()
    now_ns = time.time_ns()
    if json:
        for entry in tokens:
            sys.stdout.write(f"{jsonlib.dumps(asdict(entry) | {'holds': entry.holds(now_ns)})}\n")
        return
    if tokens:
        sys.stdout.write(f"{'token':>5}  {'scope':<7} {'state':<17} name\n")
    for entry in tokens:
        until = time_text(entry.expires_ns)[:10]
        state = f"until {until}" if entry.holds(now_ns) else "ended" if entry.revoked_ns is None else "taken back"
        sys.stdout.write(f"{entry.id:>5}  {entry.scope:<7} {state:<17} {shortened(entry.name, 47)}\n")
    if not tokens:
        sys.stdout.write("no tokens: nobody may write through the dashboard\n")


def revoke(
    token: int = typer.Argument(metavar="NUMBER", help="Its number in 'nearpeak token list'."),
    store: str | None = STORE,
) -> None:
    """Revoke a token immediately."""
    from nearpeak.store import open_store
    from nearpeak.store.store_check import place_of

    with open_store(place_of(store)) as opened:
        opened.access.revoke(token)


def register(app: typer.Typer) -> None:
    """Add the command."""
    group = shared.group_of("Tokens: who may write through the dashboard.")
    group.command()(add)
    group.command("list")(list_)
    group.command()(revoke)
    app.add_typer(group, name="token")
