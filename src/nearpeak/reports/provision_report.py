"""What a device must have to reach a time, for people and as JSON."""

import json

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nearpeak.core.answers.provision import Provision
from nearpeak.reports import figure_text as words
from nearpeak.reports.analysis.json import RECORDS
from nearpeak.reports.console import drawn
from nearpeak.units import show


def to_json(found: Provision) -> str:
    """Return the provision as one JSON line."""
    record = RECORDS.plain(found)
    for need, row in zip(found.needs, record["needs"], strict=True):
        row["factor_ratio"] = need.factor_ratio
    return json.dumps({**record, "reached": found.reached})


def to_terminal(found: Provision, *, colour: bool = False, width: int = 80) -> str:
    """Return the provision as text of the terminal's width."""
    return drawn(lambda console: _print(console, found), colour=colour, width=width)


def _print(console: Console, found: Provision) -> None:
    console.print(Text(words.clean(found.subject), style="bold"))
    console.print(Text(f"within {show(found.within_s, 's')}{_verdict(found)}"))
    console.print(_needs(found))
    if any(need.status == "model" for need in found.needs):
        console.print(Text("model: necessary only if no other unit takes over; the rest is proved", style="dim"))
    if len(found.frontier) > 1:
        console.print(Text("Storage on chip against memory bandwidth", style="bold"))
        console.print(_frontier(found))
    if found.target is not None:
        storage = found.least_storage_bytes
        least = "no storage on chip is enough" if storage is None else f"at least {show(storage, 'B')} on chip"
        console.print(Text(f"{least} for the memory bandwidth of {words.clean(found.target)}"))
    if found.uncovered:
        console.print(Text(f"without a rule, so that more is needed: {', '.join(map(words.clean, found.uncovered))}"))


def _verdict(found: Provision) -> str:
    if found.target is None or found.bound_s is None:
        return ": what any device needs at least"
    verdict = "not beyond its bound" if found.reached else "out of reach"
    return (
        f" on {words.clean(found.target)}: {verdict}, {show(found.bound_s, 's')} by {words.clean(found.limiter or '')}"
    )


def _needs(found: Provision) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column("resource", no_wrap=True, overflow="ellipsis")
    for name in ("at least", "here", "factor") if found.target is not None else ("at least",):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for need in found.needs:
        cells = [Text(words.clean(need.resource)), Text(show(need.least, need.unit))]
        if found.target is not None:
            factor = need.factor_ratio
            cells.append(Text("not stated" if need.here is None else show(need.here, need.unit)))
            style = "bold red" if factor is not None and factor > 1 else ""
            cells.append(Text("–" if factor is None else words.times(factor), style=style))
        table.add_row(*cells, Text(need.status))
    return table


def _frontier(found: Provision) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for name in ("storage", "traffic", "bandwidth"):
        table.add_column(name, justify="right", no_wrap=True)
    for point in found.frontier:
        bandwidth = show(point.dram_bytes_per_s, "B/s")
        table.add_row(show(point.storage_bytes, "B"), show(point.dram_bytes, "B"), bandwidth)
    return table
