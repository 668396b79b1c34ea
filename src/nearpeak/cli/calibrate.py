"""`nearpeak calibrate roofs`: measures what this machine's CPU can do."""

import sys
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from nearpeak.core.target import Target


def roofs() -> None:
    """Measure the roofs of this machine's CPU, in under a minute; the best ever reached make the target 'cpu'."""
    from nearpeak.cli._shared import progress, write_whole
    from nearpeak.measure.roofs import cpu_roofs, cpu_target_text, kept_roofs
    from nearpeak.targets import CPU, user_folder
    from nearpeak.units import show

    found: dict[str, float] = {}
    with progress("measuring products, memory and launches"):
        for name, value in cpu_roofs():
            found[name] = value
    found = kept_roofs(found, _known())
    path = user_folder() / "targets" / f"{CPU}.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    units = {"memory": "B/s", "launch": "s"}
    for name, value in found.items():
        sys.stdout.write(f"{name:7} {show(value, units.get(name, 'FLOP/s'))}\n")
    write_whole(path, cpu_target_text(found))


def register(app: typer.Typer) -> None:
    """Add the command."""
    group = typer.Typer(help="Measure what this machine can do.", no_args_is_help=True, rich_markup_mode=None)
    group.callback()(_calibrate)
    group.command()(roofs)
    app.add_typer(group, name="calibrate")


def _calibrate() -> None:
    """Measure what this machine can do."""


def _known() -> "Target | None":
    """Return what was measured before; none when nothing was, or it cannot be read."""
    from nearpeak.errors import NearpeakError
    from nearpeak.targets import CPU, target_of

    try:
        return target_of(CPU)
    except NearpeakError:
        return None
