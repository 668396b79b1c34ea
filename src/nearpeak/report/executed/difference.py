"""Two traces side by side, for a terminal and as JSON."""

import json
from dataclasses import asdict

from rich.console import Console
from rich.text import Text

from nearpeak.core.trace_difference import TraceDifference
from nearpeak.report import _words as words
from nearpeak.report._console import drawn
from nearpeak.report.executed.terminal import table_of
from nearpeak.units import show

TOP_COUNT = 12
"""Operators shown."""


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
    parts = table_of("where the difference of a step goes", "time")
    for name, time in found.parts:
        parts.add_row(name, f"{'+' if time > 0 else '−'}{show(abs(time), 's')}")
    console.print(parts)
    console.print(
        Text(f"{found.aligned_ratio:.1%} of the operator calls are aligned by order, name, shapes and formats")
    )
    rows = table_of("device time of a step", "before", "after", "ratio", "of bound")
    rows.columns[0].width = wide = min(console.width, 120) - 46
    pairs = found.operators[:TOP_COUNT]
    for name, pair in zip(words.told_apart([pair.name for pair in pairs], wide), pairs, strict=True):
        ratio = f"{pair.candidate_ns / pair.baseline_ns:.2f}" if pair.baseline_ns else "–"
        reached = " → ".join(
            "–" if one is None else f"{one:.0%}" for one in (pair.baseline_of_bound, pair.candidate_of_bound)
        )
        rows.add_row(
            name,
            show(pair.baseline_ns * 1e-9, "s"),
            show(pair.candidate_ns * 1e-9, "s"),
            ratio,
            reached,
        )
    console.print(rows)
    for name, before, after in found.findings:
        gains = " → ".join(show(one, "s") if one else "none" for one in (before, after))
        console.print(Text(f"{name}: could gain {gains}"))


def _change(ratio: float) -> str:
    return f"{ratio - 1:+.1%}"
