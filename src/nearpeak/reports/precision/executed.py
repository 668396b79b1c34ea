"""What ran beside what mixed precision was expected to give, for a terminal."""

from rich.console import Console
from rich.text import Text

from nearpeak.core.traces.executed_precision import ExecutedPrecision, PrecisionGap
from nearpeak.reports import figure_text as words
from nearpeak.reports import precision_text as said
from nearpeak.reports.console import drawn
from nearpeak.reports.traces.terminal import table_of
from nearpeak.units import show


def executed_to_terminal(found: ExecutedPrecision, *, colour: bool = False, width: int = 80) -> str:
    """Return the precision of a trace as text of `width` columns, at least 80."""
    return drawn(lambda console: _ran(console, found, None), colour=colour, width=width)


def gap_to_terminal(
    gap: PrecisionGap, step_counts: tuple[int, int], *, colour: bool = False, width: int = 80
) -> str:  # fmt: skip
    """Return a trace beside its expectation as text of `width` columns, at least 80.

    Args:
        step_counts: steps of the trace, and of the baseline's.
    """
    return drawn(lambda console: _gap(console, gap, step_counts), colour=colour, width=width)


def _gap(console: Console, gap: PrecisionGap, step_counts: tuple[int, int]) -> None:
    console.print()
    _ran(console, gap.executed, gap.expected_cast_count)
    lines = list(said.realised(gap.realised)) if gap.realised else []
    lines += [f"little can be concluded: {words.clean(gap.reason)}"] if gap.reason else []
    _lines(console, lines, style="bold")
    steps, others = step_counts
    columns = ["baseline", "difference"] if gap.base else []
    table = table_of(f"beyond the expected step {said.STEPS[gap.against]}", "per step", *columns)
    table.columns[0].width = min(console.width, 120) - (38 if gap.base else 20)
    shown = words.told_apart([name for name, *_ in said.terms(gap)], table.columns[0].width - 2)
    for name, (_, own, base) in zip(shown, said.terms(gap), strict=True):
        table.add_row(
            f"{'+' if own >= 0 else '−'} {name}", *_cells(own / steps, None if base is None else base / others)
        )
    rows = (("expected", "expected_ns"), ("executed", "executed_ns"))
    for name, field in rows:
        base = getattr(gap.base, field) / others if gap.base else None
        table.add_row(name, *_cells(getattr(gap.shortfall, field) / steps, base))
    console.print(table)
    share = f"{gap.matched_ratio:.0%} of the expected calls ran, in {gap.shortfall.covered_ratio:.0%} of busy time"
    _lines(console, [f"{share}; terms add up to executed less expected"], style="dim")


def _cells(own: float, base: float | None) -> list[str]:
    cells = [_time(own)]
    return cells if base is None else [*cells, _time(base), _time(own - base)]


def _time(time_ns: float) -> str:
    return f"{'−' if time_ns < 0 else ''}{show(abs(time_ns) * 1e-9, 's')}"


def _ran(console: Console, found: ExecutedPrecision, expected_cast_count: int | None) -> None:
    _lines(console, list(said.ran(found))[:1], style="bold")
    _lines(console, [*list(said.ran(found))[1:], said.casts(found, expected_cast_count)])
    table = table_of("products by format and unit", "kernels", "time", "share")
    total = sum(one.time_ns for one in found.products)
    for one in found.products:
        name = f"{one.inputs or 'format not recorded'} on {said.UNITS[one.unit]}"
        table.add_row(name, f"{one.call_count:g}", show(one.time_ns * 1e-9, "s"), f"{one.time_ns / max(total, 1):.1%}")
    if found.products:
        console.print(table)


def _lines(console: Console, lines: list[str], style: str = "") -> None:
    for line in words.hung(lines, console.width):
        console.print(Text(line, style=style))
