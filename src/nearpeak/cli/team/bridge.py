"""Command `nearpeak bridge`: two series joined across a key change by a commit measured under both keys."""

import json as jsonlib
import sys
from dataclasses import asdict

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.cli.team.store import STORE


def bridge(
    old: int = typer.Argument(metavar="OLD", help="Number of the series under the old key."),
    new: int = typer.Argument(metavar="NEW", help="Number of the series under the new key."),
    store: str | None = STORE,
    json: bool = shared.JSON,
) -> None:
    """Estimate the effect of a new key on a series, and continue the series under that key.

    A tracked component, another timer or another policy begins a new series. Measure one commit under both keys, at
    least twice each and best in turns: the verdict on these launches is put down to what differs in the key, never to a
    commit. history, regressions and gate then read the older values as they would be under the new key. A bridge that
    is inconclusive is kept, and joins nothing.
    """
    from nearpeak.history.series_bridges import bridged
    from nearpeak.history.series_tracks import series_numbered
    from nearpeak.reports.document import Document
    from nearpeak.reports.history.tracks import bridge_lines
    from nearpeak.store import open_store
    from nearpeak.store.store_check import place_of

    with open_store(place_of(store)) as opened:
        joined = bridged(opened, series_numbered(opened, old), series_numbered(opened, new))
    if json:
        sys.stdout.write(f"{jsonlib.dumps(asdict(joined))}\n")
        return
    shared.print_document(Document(blocks=list(bridge_lines(joined))))
