"""Power modes of boards: those of the device files, and those of the board that nearpeak runs on."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from nearpeak.base.input_files import text_of_file
from nearpeak.core.edge.board_mode import BoardMode
from nearpeak.errors import SpecError
from nearpeak.targets import TARGETS, target_of
from nearpeak.units import parse

FULL = "full"
"""Name of the whole board as a mode, at its highest clocks."""
NVPMODEL = Path("/etc/nvpmodel.conf")
"""File of the modes on a Jetson."""
_HEAD = re.compile(r"<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=(\S+)\s*>")


def board_modes(board: str) -> tuple[BoardMode, ...]:
    """Return the power modes of a board, the whole board first.

    >>> [mode.name for mode in board_modes("jetson_orin_nano")]
    ['full', '7W', '15W', '15W@5', '25W']

    Raises:
        SpecError: the target has no power modes.
    """
    stem, _, part = board.partition(":")
    whole, rows = target_of(stem), _rows(stem)
    if part and rows and part not in (FULL, *rows):
        raise SpecError(f"target {board}: the board has no mode {part!r}; there are {', '.join((FULL, *rows))}")
    if part:
        raise SpecError(f"target {board}: is one mode already; give the board, {stem}")
    if not rows:
        boards = ", ".join(boards_with_modes())
        raise SpecError(f"target {stem}: its file states no power modes; boards with modes: {boards}")
    named = {FULL: {"source": whole.clock_source}, **rows}
    return tuple(_mode(stem, name, row) for name, row in named.items())


def boards_with_modes() -> tuple[str, ...]:
    """Return the targets whose files state power modes.

    >>> "jetson_agx_orin" in boards_with_modes(), "h100_sxm" in boards_with_modes()
    (True, False)
    """
    return tuple(name for name in TARGETS if _rows(name))


def _rows(stem: str) -> dict[str, Mapping[str, Any]]:
    partitions = TARGETS[stem].get("partition", {}) if stem in set(TARGETS.names()) else {}
    return {name: row for name, row in partitions.items() if "clock" in row}


def _mode(stem: str, name: str, row: Mapping[str, Any]) -> BoardMode:
    target = target_of(stem if name == FULL else f"{stem}:{name}")
    return BoardMode(
        name=name, target=target.name, clock_hz=target.clock_hz, sm_count=target.sm_count,
        bandwidth_bytes_per_s=target.dram.bandwidth_bytes_per_s,
        budget_w=parse(row["power"], "W") if "power" in row else None, host_count=row.get("host_count"),
        host_clock_hz=parse(row["host_clock"], "Hz") if "host_clock" in row else None, source=row["source"],
    )  # fmt: skip


def modes_here(path: Path = NVPMODEL) -> tuple[tuple[str, Mapping[str, str]], ...]:
    """Return the modes of the board that nearpeak runs on as its file states them; unknown names stay text.

    Raises:
        SpecError: there is no such file, or it names no mode.
    """
    if not path.exists():
        raise SpecError(f"{path}: not found; this machine has no power modes of a Jetson, name a board instead")
    modes = tuple(_parsed(text_of_file(path)))
    if not modes:
        raise SpecError(f"{path}: names no mode; lines like '< POWER_MODEL ID=0 NAME=MAXN >' are wanted")
    return modes


def _parsed(text: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """Yield name and settings of each mode: lines of a unit, a name and a value."""
    name, settings = "", dict[str, str]()
    for line in text.splitlines():
        head = _HEAD.search(line)
        if head or line.lstrip().startswith("< PM_CONFIG"):
            if name:
                yield name, settings
            name, settings = (head[2] if head else ""), {}
        elif name and not line.lstrip().startswith(("#", "<")) and len(words := line.split()) == 3:
            settings[f"{words[0]} {words[1]}"] = words[2]
    if name:
        yield name, settings
