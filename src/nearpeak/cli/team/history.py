"""Command `nearpeak history`: series of a store over commits, with their change points."""

import json as jsonlib
import sys
from dataclasses import asdict

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.cli.team.store import STORE

WORDS = typer.Argument(None, metavar="SERIES | CASE", help="Number of a series, or words of its case; all by default.")
DEVICE = typer.Option("", "--device", help="Only series of this device, as its driver names it.")
BRANCH = typer.Option("", "--branch", help="Only series of this branch.")
METRIC = typer.Option("", "--metric", help="Only series of this metric, e.g. time.")


def history(
    words: list[str] = WORDS,
    store: str | None = STORE,
    device: str = DEVICE,
    branch: str = BRANCH,
    metric: str = METRIC,
    json: bool = shared.JSON,
) -> None:
    """Show measurements over commits: a list of series, or one series with its changes.

    A value is the median over the launches of a commit. Changes of the level are found in spite of drift, spikes and
    changing clocks; ▲ is a confirmed change, △ a suspect. Of a tuned kernel the configurations that led are shown too.
    """
    from nearpeak.api.study_history import kept_configurations
    from nearpeak.history.series_tracks import series_named, track_of
    from nearpeak.reports.history.tracks import list_document, place_text, track_document
    from nearpeak.store import open_store
    from nearpeak.store.store_check import place_of

    with open_store(place_of(store)) as opened:
        matches = series_named(opened, words or [], device=device, branch=branch, metric=metric)
        with shared.progress(f"searching {len(matches)} series"):
            tracks = [track_of(opened, item.id) for item in matches]
        configurations = kept_configurations(opened, matches[0].id) if len(matches) == 1 else ()
    if json:
        for item in tracks:
            tuned = {"configurations": configurations} if configurations else {}
            sys.stdout.write(f"{jsonlib.dumps(asdict(item) | tuned)}\n")
        return
    tracks.sort(key=lambda item: (place_text(item.series), item.series.label))
    shared.print_document(track_document(tracks[0], configurations) if len(tracks) == 1 else list_document(tracks))
