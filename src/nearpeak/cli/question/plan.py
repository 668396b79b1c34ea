"""Command `nearpeak plan`: many devices, many requests, boards; its commands stand in `cli/plans`."""

import importlib
from pathlib import Path

import typer

from nearpeak.cli import plans
from nearpeak.cli.shared import options as shared


def register(app: typer.Typer) -> None:
    """Add the group and every command of `cli/plans`."""
    group = shared.group_of("Plan many devices, requests and boards: what they reach and what to change.")
    for path in sorted(Path(plans.__path__[0]).glob("*_command.py")):
        name = path.stem.removesuffix("_command")
        group.command(name.replace("_", "-"))(getattr(importlib.import_module(f"{plans.__name__}.{path.stem}"), name))
    app.add_typer(group, name="plan")
