"""Command `nearpeak demo-history`: a synthetic history with planted changes, for trials and tutorials."""

import json as jsonlib
import sys

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.cli.team.store import STORE


def demo_history(
    store: str | None = STORE,
    commits: int = typer.Option(120, "--commits", help="Commits of the history, 40 to 2,000."),
    seed: int = typer.Option(0, "--seed", min=0, help="The same seed gives the same history."),
    json: bool = shared.JSON,
) -> None:
    """Fill a store with a synthetic history of some months, and list the planted changes.

    Nothing in it was measured: times are parts of real bounds with noise, over commits, three devices, their clocks
    and software stacks.
    """
    from nearpeak.history.demo_store import SUBJECTS, filled
    from nearpeak.store import open_store
    from nearpeak.store.store_check import place_of

    place = place_of(store)
    with open_store(place, create=True) as opened, shared.progress("making up a history"):
        made = filled(opened, commits=commits, seed=seed)
        series = len(opened.series())
    if json:
        rows = [{name: getattr(change, name) for name in change.__slots__} for change in made.planted]
        sys.stdout.write(f"{jsonlib.dumps({'store': place, 'runs': made.run_count, 'planted': rows})}\n")
        return
    sys.stdout.write(f"{place}: {made.run_count} new runs, {series} series of {len(SUBJECTS)} cases; planted:\n")
    for change in made.planted:
        where = ", ".join(change.devices) or "all devices"
        what = ", ".join(change.ops) or "what follows the clock"
        until = "" if change.stop is None else f" until {change.stop}"
        sys.stdout.write(f"  commit {change.commit}{until}: {what} {change.time_ratio - 1:+.0%} on {where}\n")
        sys.stdout.write(f"    {change.cause}: {change.subject}\n")
    sys.stdout.write(f"Now try:\n  nearpeak regressions --store {place}\n  nearpeak history --store {place}\n")
    sys.stdout.write(f"  nearpeak rank --store {place}\n")
