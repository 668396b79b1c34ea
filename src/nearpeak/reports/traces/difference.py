"""Two traces side by side, for a terminal and as JSON."""

import json
from collections.abc import Iterator
from dataclasses import asdict

from rich.console import Console
from rich.text import Text

from nearpeak.core.traces.trace_difference import TraceDifference
from nearpeak.reports import figure_text as words
from nearpeak.reports.console import drawn
from nearpeak.reports.traces.terminal import table_of
from nearpeak.units import show

TOP_COUNT = 12
"""Operators shown."""
_CLASS_COUNT = 9
_COLUMNS = ("before", "after", "ratio", "of bound")


def to_json(found: TraceDifference) -> str:
    """Return the difference as one JSON object."""
    record = {"kind": "nearpeak trace difference", "schema_version": 1, **asdict(found)}
    record["operators"] = [pair._asdict() for pair in found.operators]
    return json.dumps(record, allow_nan=False, indent=1) + "\n"


def to_terminal(found: TraceDifference, *, colour: bool = False, width: int = 80) -> str:
    """Return the difference as text of `width` columns, at least 80."""
    return drawn(lambda console: _print(console, found), colour=colour, width=width)


def _print(console: Console, found: TraceDifference) -> None:
    steps = f"{show(found.candidate_step_s, 's')} instead of {show(found.baseline_step_s, 's')}"
    title = f"{found.verdict}: a step takes {steps}"
    lines = [
        f"{words.clean(found.candidate)} against {words.clean(found.baseline)}",
        f"{title} ({_change(found.step_ratio)})",
    ]
    if found.low_ratio is not None and found.high_ratio is not None:
        lines.append(
            f"{_change(found.low_ratio)} to {_change(found.high_ratio)}, tolerance {found.tolerance_ratio:.1%}:"
            f" {found.reason}"
        )
    else:
        lines.append(found.reason)
    for line in words.hung(lines, console.width):
        console.print(Text(line, style="bold" if found.verdict in line else ""))
    if found.parts:
        parts = table_of("where the difference of a step goes", "time")
        for name, time in found.parts:
            parts.add_row(name, f"{'+' if time > 0 else '−'}{show(abs(time), 's')}")
        console.print(parts)
    _classes(console, found)
    for line in words.hung(_aligned(found), console.width):
        console.print(Text(line))
    if found.operators:
        _operators(console, found)
    if found.findings:
        console.print(Text("what the findings of each could gain, of a step", style="bold"))
    for name, before, after in found.findings:
        gains = " → ".join(show(one, "s") if one else "none" for one in (before, after))
        console.print(Text(f"  {name}: {gains}"))


def _aligned(found: TraceDifference) -> Iterator[str]:
    """Yield how far the two can be laid beside each other."""
    if found.by_kernel:
        yield "neither trace has operators: kernels of the same name stand beside each other"
    elif found.aligned_ratio is None:
        yield "one of the traces has no operators: nothing can be aligned"
    else:
        yield f"{found.aligned_ratio:.1%} of the operator calls are aligned by order, name, shapes and formats"
    if found.unnamed and not found.by_kernel:
        names = ", ".join(words.clean(name) for name in found.unnamed)
        yield f"no bounds for {names}: its device is not known; --target NAME, and another --target for --against"


def _classes(console: Console, found: TraceDifference) -> None:
    table = table_of("device time by class, of a step", "before", "after", "ratio")
    for name, before, after in found.classes[:_CLASS_COUNT]:
        table.add_row(name, show(before, "s"), show(after, "s"), f"{after / before:.2f}" if before else "–")
    console.print(table)


def _operators(console: Console, found: TraceDifference) -> None:
    rows = table_of("kernel, of a step" if found.by_kernel else "operator, of a step", *_COLUMNS)
    rows.columns[0].width = wide = min(console.width, 120) - 46
    pairs = found.operators[:TOP_COUNT]
    for name, pair in zip(words.told_apart([pair.name for pair in pairs], wide), pairs, strict=True):
        ratio = f"{pair.candidate_ns / pair.baseline_ns:.2f}" if pair.baseline_ns else "–"
        reached = " → ".join(
            "–" if one is None else f"{one:.0%}" for one in (pair.baseline_of_bound, pair.candidate_of_bound)
        )
        rows.add_row(name, show(pair.baseline_ns * 1e-9, "s"), show(pair.candidate_ns * 1e-9, "s"), ratio, reached)
    console.print(rows)


def _change(ratio: float) -> str:
    return f"{ratio - 1:+.1%}"
