"""Command `nearpeak bisect`: the commit or component version that made a command slower."""

import json as jsonlib
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from nearpeak.cli.shared import options as shared
from nearpeak.cli.shared.options import seconds_of
from nearpeak.cli.team.store import STORE
from nearpeak.errors import INCONCLUSIVE_CODE, SLOWER_CODE, NotFoundError, SpecError
from nearpeak.units import parse_share

if TYPE_CHECKING:
    from collections.abc import Callable

    from nearpeak.bisection.commit_search import Search
    from nearpeak.bisection.noisy_search import BisectAxis

COMPONENT = typer.Option(
    [], "--component", help="Versions of a component, good first: NAME=V1,V2,…. Repeatable; the driver last."
)


def bisect(
    run: str = typer.Option(..., "--run", help="Command whose last line is a time, e.g. 1.25 ms."),
    build: str = typer.Option("", "--build", help="Command that builds a checked-out commit."),
    good: str = typer.Option("", "--good", help="Commit that is fast."),
    bad: str = typer.Option("HEAD", "--bad", help="Commit that is slow."),
    repository: Path = typer.Option(Path(), "--repository", help="Git repository of the commits."),
    component: list[str] = COMPONENT,
    tolerance: str = typer.Option("1%", "--tolerance", help="Change up to which two count as the same."),
    steps: int = typer.Option(20, "--steps", min=1, help="Most comparisons for each cause."),
    limit: str = typer.Option("600 s", "--limit", help="Longest time of one command."),
    farm: bool = typer.Option(False, "--farm", help="Take the rounds as jobs of the farm whose queue is in --store."),
    alert: int = typer.Option(0, "--alert", min=0, help="Alert of --store to which the culprit is attributed."),
    store: str | None = STORE,
    json: bool = shared.JSON,
) -> None:
    """Bisect for the change that made a command slower, over commits and component versions at once.

    Commits are checked out side by side; '{commit}' and '{NAME}' in the commands are replaced by versions. Each step
    compares two of them in turns A B B A, each run a new process; what cannot be built is passed by. Exit code 10 when
    a change was found, 11 when the steps did not suffice, 0 when good and bad do not differ.
    """
    from nearpeak.bisection.commit_search import commit_axis, searched
    from nearpeak.history.revision_builds import Workshop

    axes = [*([commit_axis(repository, good, bad)] if good else []), *map(_axis, component)]
    if not axes:
        raise SpecError("bisect: --good is missing; name the commit that is fast, or --component NAME=V1,V2")
    keep = _keeper(alert, store)
    within, limit_s = parse_share(tolerance, "--tolerance"), seconds_of(limit, "--limit")
    if farm:
        result = _on_farm(axes, store, (repository, run, build, limit_s), within, steps)
    else:
        with Workshop(repository, run, build, limit_s=limit_s) as workshop:
            result = searched(axes, workshop, margin_ratio=within, most_steps=steps)
    keep(result)
    if json:
        sys.stdout.write(f"{jsonlib.dumps(asdict(result))}\n")
    else:
        from nearpeak.reports.history.bisection import bisection_document

        shared.print_document(bisection_document(result.ends, result.found))
    if result.found is None:
        raise typer.Exit(INCONCLUSIVE_CODE if result.ends.judgement.verdict == "inconclusive" else 0)
    raise typer.Exit(SLOWER_CODE if result.found.outcome == "found" else INCONCLUSIVE_CODE)


def _on_farm(
    axes: "list[BisectAxis]", store: str | None, what: tuple[Path, str, str, float], within: float, steps: int
) -> "Search":
    """Return the result of a bisection whose rounds ran on the farm."""
    from nearpeak.bisection.commit_search import searched
    from nearpeak.farm.bisection_jobs import FarmWorkshop
    from nearpeak.store import open_store
    from nearpeak.store.store_check import place_of

    repository, run, build, limit_s = what
    with open_store(place_of(store)) as opened:
        workshop = FarmWorkshop(opened, repository, run, build, limit_s=limit_s)
        return searched(axes, workshop, margin_ratio=within, most_steps=steps)


def _keeper(alert: int, store: str | None) -> "Callable[[Search], None]":
    """Return the function that attributes an alert to the result; a missing alert is reported before anything runs."""
    if not alert:
        return lambda _: None
    from nearpeak.bisection.commit_search import record_culprits
    from nearpeak.store import open_store
    from nearpeak.store.store_check import place_of

    place = place_of(store)
    with open_store(place) as opened:
        if alert not in {row.id for row in opened.findings.alerts()}:
            raise NotFoundError(f"alert {alert}: is not in the store; 'nearpeak alerts list --all' lists what is")

    def keep(result: "Search") -> None:
        with open_store(place) as opened:
            record_culprits(opened, alert, result)

    return keep


def _axis(text: str) -> "BisectAxis":
    from nearpeak.bisection.noisy_search import BisectAxis

    name, sign, versions = text.partition("=")
    if not sign or not name.replace("-", "_").isidentifier() or name == "commit":
        raise SpecError(f"--component {text!r}: is not NAME=V1,V2,…; e.g. triton=3.4.0,3.5.0")
    return BisectAxis(name=name, versions=tuple(version.strip() for version in versions.split(",") if version.strip()))
