"""Command `nearpeak rank`: optimization opportunities ranked from the newest times in a store."""

import json as jsonlib
import sys
from dataclasses import asdict
from pathlib import Path

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.cli.team.history import BRANCH, DEVICE, WORDS
from nearpeak.cli.team.store import STORE
from nearpeak.errors import SpecError

BY = typer.Option("kernel", "--by", help="Sum gaps by kernel, module, model or team.")


def rank(
    words: list[str] = WORDS,
    store: str | None = STORE,
    workload: Path | None = typer.Option(None, "--workload", help="Saved workload: calls and modules of each case."),
    device: str = DEVICE,
    branch: str = BRANCH,
    by: str = BY,
    top: int = typer.Option(8, "--top", min=1, help="Rows shown of each list."),
    json: bool = shared.JSON,
) -> None:
    """Rank optimization opportunities by calls × (measured − least time known to be possible).

    A gap is proven where another runner reaches the time, theoretical where only the bound says so. Below it,
    suggestions are listed, each with its evidence, and questions that lack evidence.
    """
    from nearpeak.api.questions import capture
    from nearpeak.history.opportunity_ranking import ranking_of
    from nearpeak.history.series_tracks import series_named
    from nearpeak.judgement.opportunities import KEYS, grouped
    from nearpeak.reports.ranking_report import document_of
    from nearpeak.store import open_store
    from nearpeak.store.store_check import place_of

    if by not in KEYS:
        raise SpecError(f"--by {by!r}: is not known; choose {', '.join(KEYS)}")
    calls = None if workload is None else capture(workload)
    with open_store(place_of(store)) as opened:
        matches = series_named(opened, words or [], device=device, branch=branch)
        ranking = ranking_of(opened, matches, calls, model=calls.name if calls else "")
    groups = grouped(ranking.gaps, by)
    if json:
        record = asdict(ranking) | {"groups": [asdict(group) for group in groups], "by": by}
        sys.stdout.write(f"{jsonlib.dumps(record, default=str)}\n")
        return
    shared.print_document(document_of(ranking, groups, by, top))
