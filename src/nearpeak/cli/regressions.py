"""`nearpeak regressions`: what got worse in a store, since when, and what may be behind it."""

import json as jsonlib
import sys
from dataclasses import asdict

import typer

from nearpeak.cli import _shared as shared
from nearpeak.cli.history import BRANCH, DEVICE, METRIC, WORDS
from nearpeak.cli.store import STORE


def regressions(
    words: list[str] = WORDS,
    store: str | None = STORE,
    device: str = DEVICE,
    branch: str = BRANCH,
    metric: str = METRIC,
    better: bool = typer.Option(False, "--better", help="Improvements instead of regressions."),
    suspects: bool = typer.Option(False, "--suspects", help="Also changes that are not confirmed yet."),
    save: bool = typer.Option(False, "--save", help="Keep what is found in the store, and open an alert per group."),
    json: bool = shared.JSON,
) -> None:
    """Search all series for changes of their level, and show those that got worse, newest first.

    Changes that began together are one group. Beside it stands what may be behind: a clock that moved, components of
    the software stack that changed, a device that alone shows it, the commit.
    """
    from nearpeak.history.regressions import regressed, saved
    from nearpeak.history.tracks import series_named, track_of
    from nearpeak.report.history.regressions import regressions_text
    from nearpeak.store import open_store
    from nearpeak.store.opening import place_of

    with open_store(place_of(store)) as opened:
        found = series_named(opened, words or [], device=device, branch=branch, metric=metric)
        with shared.progress(f"searching {len(found)} series"):
            tracks = [track_of(opened, one.id) for one in found]
        groups = regressed(tracks, better=better, suspects=suspects)
        if save:
            groups = saved(opened, tracks, groups)
    if json or not shared.on_terminal():
        for one in groups:
            sys.stdout.write(f"{jsonlib.dumps(asdict(one))}\n")
        return
    sys.stdout.write(regressions_text(groups, tracks, len(found)))


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(regressions)
