"""Text for a terminal, drawn into a string: the same for every report."""

import io
from collections.abc import Callable

from rich.console import Console


def drawn(draw: Callable[[Console], None], *, colour: bool, width: int) -> str:
    """Return what `draw` prints, without trailing blanks; columns below 80 are taken as 80."""
    console = Console(
        file=io.StringIO(),
        width=max(width, 80),
        force_terminal=colour,
        no_color=not colour,
        legacy_windows=False,
        color_system="standard" if colour else None,
        highlight=False,
        markup=False,
        emoji=False,
    )
    with console.capture() as captured:
        draw(console)
    return "\n".join(line.rstrip() for line in captured.get().splitlines()) + "\n"
