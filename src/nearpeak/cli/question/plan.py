"""Command `nearpeak plan`: many devices, many requests, boards; its commands stand in `cli/plans`."""

import importlib
from pathlib import Path
from typing import Any

import typer

from nearpeak.cli import plans
from nearpeak.cli.shared import options as shared

_CALIBRATE = ["serve", "calibrate"]


class PlanListing(shared.Listing):
    """Commands of plans."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find a command; `serve calibrate` is one of its own, as the argument of `serve` is a model."""
        return super().resolve_command(ctx, ["calibrate-serving", *args[2:]] if args[:2] == _CALIBRATE else args)


def register(app: typer.Typer) -> None:
    """Add the group and every command of `cli/plans`."""
    group = shared.group_of(
        "Plan many devices, requests and boards: what fits, which plan is fastest or cheapest, what to change.",
        PlanListing,
    )
    for path in sorted(Path(plans.__path__[0]).glob("*_command.py")):
        name = path.stem.removesuffix("_command")
        group.command(name.replace("_", "-"))(getattr(importlib.import_module(f"{plans.__name__}.{path.stem}"), name))
    app.add_typer(group, name="plan")
