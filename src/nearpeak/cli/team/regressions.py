"""Command `nearpeak regressions`: slowdowns in a store, the commits where they began, and likely causes."""

import json as jsonlib
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.options import seconds_of
from nearpeak.cli.team.history import BRANCH, DEVICE, METRIC, WORDS
from nearpeak.cli.team.store import STORE
from nearpeak.errors import SpecError
from nearpeak.units import signed_percent

if TYPE_CHECKING:
    from nearpeak.core.history.track import Regressed
    from nearpeak.store import Store


def regressions(
    words: list[str] = WORDS,
    store: str | None = STORE,
    device: str = DEVICE,
    branch: str = BRANCH,
    metric: str = METRIC,
    better: bool = typer.Option(False, "--better", help="Improvements instead of regressions."),
    suspects: bool = typer.Option(False, "--suspects", help="Also changes that are not confirmed yet."),
    save: bool = typer.Option(False, "--save", help="Save the regressions in the store, and open an alert per group."),
    confirm: str = typer.Option("", "--confirm", help="Measure new alerts again by this command; implies --save."),
    build: str = typer.Option("", "--build", help="--confirm: command that builds a checked-out commit, once each."),
    repository: Path = typer.Option(Path(), "--repository", help="--confirm: git repository of the commits."),
    limit: str = typer.Option("600 s", "--limit", help="--confirm: longest time of one command."),
    json: bool = shared.JSON,
) -> None:
    """Search all series for level changes, and show the regressions, newest first; before them what no longer runs.

    Changes that began together are one group. Likely causes are listed with it: a clock that moved, components of
    the software stack that changed, a device that alone shows it, the commit. Series that 'nearpeak alerts suppress'
    names are left out.

    --confirm checks out the last good and the first bad commit beside each other and runs the command in both in turns
    A B B A, each a new process; its last line is a time as '1.25 ms', or the lines of nearpeak measure --json. After 3,
    5 or 10 rounds the verdict is kept, and the alert becomes active, invalid-noise, infra (gone at equal clocks), or is
    new again.
    """
    from nearpeak.history.failed_series import failed_groups, save_failures
    from nearpeak.history.regression_groups import regressed, save_regressions, unsuppressed
    from nearpeak.history.series_tracks import series_named, track_of
    from nearpeak.reports.history.regressions import regressions_document, unsearched_lines
    from nearpeak.store import open_store
    from nearpeak.store.store_check import place_of

    with open_store(place_of(store)) as opened:
        matches = series_named(opened, words or [], device=device, branch=branch, metric=metric)
        with shared.progress(f"searching {len(matches)} series"):
            tracks = [track_of(opened, item.id) for item in matches]
        groups = unsuppressed(opened, regressed(tracks, better=better, suspects=suspects))
        failures = () if better else failed_groups(opened, matches)
        if build and not confirm:
            raise SpecError("--build: is for --confirm, which says what to run; add it")
        if save or confirm:
            groups = save_regressions(opened, tracks, groups)
            failures = () if better else save_failures(opened, matches, failures)
        if confirm:
            limit_s = seconds_of(limit, "--limit")
            groups = _confirmed(opened, groups, repository, run=confirm, build=build, limit_s=limit_s)
    if json:
        for row in (*map(asdict, failures), *map(asdict, groups)):
            sys.stdout.write(f"{jsonlib.dumps(row)}\n")
        sys.stderr.write("".join(f"{line}\n" for line in unsearched_lines(tracks)))
        return
    shared.print_document(regressions_document(groups, tracks, failures))


def _confirmed(
    store: "Store", groups: "tuple[Regressed, ...]", repository: Path, *, run: str, build: str, limit_s: float
) -> "tuple[Regressed, ...]":
    """Remeasure groups whose alert is new, print the outcome, and return all groups in their present state."""
    from nearpeak.history.revision_builds import Workshop, checked
    from nearpeak.history.suspect_confirmation import confirmed, rounds_in

    waiting = [group for group in groups if group.status == "new"]
    for group in waiting:
        for sha in (group.changes[0][1].safe_good_sha, group.changes[0][1].safe_bad_sha):
            checked(repository, sha)
    done = {}
    with Workshop(repository, run, build, limit_s=limit_s) as workshop:
        for group in waiting:
            confirmation = confirmed(store, group, rounds_in(workshop, repository))
            done[group.alert_id] = confirmation.group
            ratio, verdict = confirmation.found.judgement.time_ratio, confirmation.found.judgement.verdict
            outcome = f"{verdict}, {signed_percent(ratio - 1)} in {confirmation.launch_count} launches"
            sys.stderr.write(f"alert {group.alert_id}: {outcome}\n")
    return tuple(done.get(group.alert_id, group) for group in groups)
