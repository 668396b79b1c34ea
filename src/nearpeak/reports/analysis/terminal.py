"""An analysis for the terminal: everything that fits a screen or two of 80 columns."""

from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nearpeak.core.answers.analysis import Analysis, Share, TargetAnalysis
from nearpeak.core.answers.bound import ASSUMPTIONS
from nearpeak.reports import expected_time_text as expected
from nearpeak.reports import figure_text as words
from nearpeak.reports.console import drawn
from nearpeak.reports.unmeasured_cases import lines_of
from nearpeak.units import show

TOP_COUNT = 8
"""Operators and modules shown of the first target."""
_BAR_WIDTH = 16
_EIGHTHS = " ▏▎▍▌▋▊▉"
_COLOURS = {
    "dram": "blue",
    "matrix": "yellow",
    "l2": "cyan",
    "vector": "magenta",
    "special": "red",
    "link": "green",
    "host": "green",
    "barrier": "blue",
}


def render(analysis: Analysis, *, colour: bool = False, width: int = 80) -> str:
    """Return the report as text.

    Args:
        colour: whether to colour it; leave it off where the text goes into a pipe or file.
        width: columns of the terminal; fewer than 80 are taken as 80.
    """
    return drawn(lambda console: _print(console, analysis), colour=colour, width=width)


def _print(console: Console, analysis: Analysis) -> None:
    _header(console, analysis)
    console.print(_targets(analysis))
    for line in _remarks(analysis):
        console.print(Text(line, style="dim"))
    if analysis.targets:
        _first_target(console, analysis, analysis.targets[0])
    for target in analysis.targets:
        _measured(console, analysis, target)
        _unmeasured(console, analysis, target)
    _memory(console, analysis)
    _footnotes(console, analysis)


def _header(console: Console, analysis: Analysis) -> None:
    title = Text(words.shortened(analysis.name, 60), style="bold")
    title.append(f"  {words.subject(analysis)}", style="default")
    console.print(title)
    if source := words.dimensions(analysis):
        console.print(Text(f"dimensions: {source}"))
    flop = f"{show(analysis.total_flop, 'FLOP')}, of them {show(analysis.matrix_flop, 'FLOP')} for matrix units"
    size = f"{show(analysis.fused_bytes, 'B')} fused, {show(analysis.unfused_bytes, 'B')} operator by operator"
    console.print(Text(f"work: {flop}; {size}"))
    if counted := words.products_counted(analysis.policy):
        console.print(Text(counted))
    parameters = "" if analysis.parameter_count is None else f"; {words.count(analysis.parameter_count)} parameters"
    console.print(Text(words.coverage(analysis) + parameters, style="default" if analysis.complete else "bold red"))


def _table() -> Table:
    return Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)


def _targets(analysis: Analysis) -> Table:
    table = _table()
    table.add_column("target", overflow="fold", max_width=18)
    for name in ("bound", "1 kernel\nper op", "launch\nfloor", "expected\nper op"):
        table.add_column(name, justify="right", no_wrap=True, min_width=9)
    table.add_column("limiter", no_wrap=True, overflow="ellipsis", max_width=7)
    table.add_column("fits", no_wrap=True)
    table.add_column("most\nbatch", justify="right", no_wrap=True)
    for target in analysis.targets:
        table.add_row(*_target_cells(analysis, target))
    return table


def _target_cells(analysis: Analysis, target: TargetAnalysis) -> Iterable[Text]:
    floor = "–" if target.launch_floor_s is None else words.least(analysis, target.launch_floor_s, "s")
    verdict, largest = words.fit(analysis, target)
    short = {"fits": ("yes", "green"), "does not fit": ("no", "red")}.get(verdict, (verdict, ""))
    name = words.shortened(target.target, 54)
    whole = name if len(name) <= 16 else name.replace(":", ":\n", 1)  # power modes and partitions stay readable
    yield Text(whole + (" *" if target.unverified else ""))
    yield Text(words.least(analysis, target.bound_s, "s"), style="bold")
    yield Text(words.least(analysis, target.chained_s, "s"))
    yield Text(floor)
    yield Text(expected.total(target.prediction))
    yield Text(words.clean(target.limiter), style=_COLOURS.get(target.limiter, ""))
    yield Text(*short)
    yield Text(largest)


def _remarks(analysis: Analysis) -> Iterable[str]:
    yield "bound: least time of the whole step in any number of kernels, fused or not"
    if not analysis.complete:
        yield "≥: calls without a rule are not in it, so the true bound is at least this"
    for target in analysis.targets:
        if target.proof is not None and target.proof.interval is not None:
            yield f"{words.clean(target.target)}: {words.interval(target.proof.interval)}"
    doubtful = [f"{words.clean(one.target)} {len(one.unverified)}" for one in analysis.targets if one.unverified]
    for one in analysis.targets:
        if one.rewrites:
            yield f"{words.clean(one.target)} {words.simplified(one)}"
    if doubtful:
        yield f"*: derived or second-hand figures of the device: {', '.join(doubtful)}; other formats name them"


def _first_target(console: Console, analysis: Analysis, target: TargetAnalysis) -> None:
    total = words.least(analysis, target.unfused_s, "s")
    console.print()
    console.print(Text.assemble(("On ", "bold"), (words.shortened(target.title, 40), "bold")))
    console.print(Text(f"sum over operators, inputs cold: {total}; {words.coverage(analysis)}"))
    for line in expected.lines_of(analysis, target):
        console.print(Text(line))
    _parts(console, "phase", target.by_phase)
    _parts(console, "operator", target.by_operator)
    _parts(console, "module", target.by_module)
    _opportunities(console, target)


def _parts(console: Console, kind: str, parts: Sequence[Share]) -> None:
    name_width = min(console.width - 50, 60)
    table = _table()
    table.add_column(f"by {kind}", no_wrap=True, overflow="ellipsis", width=name_width)
    table.add_column("time", justify="right", width=9, no_wrap=True)
    table.add_column("share", justify="right", width=7, no_wrap=True)
    table.add_column("of all", width=_BAR_WIDTH, no_wrap=True)
    table.add_column("limiter", width=7, no_wrap=True, overflow="ellipsis")
    for part in parts[:TOP_COUNT]:
        limiter = max(part.limiter_s, key=lambda name: part.limiter_s[name], default="")
        bar = Text(_bar(part.share_ratio), style=_COLOURS.get(limiter, ""))
        name = Text(words.shortened_path(part.name or "(top level)", name_width))
        table.add_row(
            name, Text(show(part.time_s, "s")), Text(words.percent(part.share_ratio)), bar, words.clean(limiter)
        )
    console.print()
    console.print(table)
    if rest := parts[TOP_COUNT:]:
        left = f"{len(rest)} more: {show(sum(part.time_s for part in rest), 's')}"
        console.print(Text(f"{left}, {words.percent(sum(part.share_ratio for part in rest))}", style="dim"))


def _bar(ratio: float) -> str:
    """Return a bar from zero whose full width is all of the time.

    >>> _bar(0.5)
    '████████'
    """
    eighths = round(min(max(ratio, 0.0), 1.0) * _BAR_WIDTH * 8)
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()


def _opportunities(console: Console, target: TargetAnalysis) -> None:
    if not target.opportunities:
        return
    console.print()
    console.print(Text("Largest opportunities (at most; gains overlap, do not add them)", style="bold"))
    lines = Table.grid(padding=(0, 2, 0, 0))
    lines.add_column(justify="right", width=9)
    for one in target.opportunities[:5]:
        lines.add_row(show(one.gain_s, "s"), Text(f"{words.clean(one.kind)}: {words.shortened(one.title, 130)}"))
        lines.add_row("", Text(words.shortened(one.evidence, 200), style="dim"))
    console.print(lines)


def _measured(console: Console, analysis: Analysis, target: TargetAnalysis) -> None:
    """Print the measured calls beside expected time and bound, most to gain first; mark those that cannot be true."""
    found = [(row, time) for row, time in zip(analysis.rows, target.times, strict=True) if time.measured_s]
    if not found:
        return
    found.sort(key=lambda pair: -((pair[1].measured_s or 0.0) - pair[1].bound_s) * pair[0].call_count)
    console.print()
    console.print(Text(f"Measured on {words.shortened(target.title, 40)}, most time to gain first", style="bold"))
    table = _table()
    for name, columns in (("measured", 9), ("expected", 9), ("bound", 9), ("attained", 11)):
        table.add_column(name, justify="right", no_wrap=True, width=columns)
    table.add_column("one call of", no_wrap=True, overflow="ellipsis")
    names = words.told_apart([row.label for row, _ in found[:TOP_COUNT]], max(12, console.width - 52))
    for name, (_, time) in zip(names, found, strict=False):
        ratio = "implausible" if words.is_implausible(time) else words.percent(words.attained(time) or 0.0)
        expected = show(time.prediction.time_s, "s") if time.prediction else "–"
        table.add_row(show(time.measured_s or 0.0, "s"), expected, show(time.bound_s, "s"), ratio, Text(name))
    console.print(table)
    implausible = sum(words.is_implausible(time) for _, time in found)
    if implausible:
        console.print(
            Text(f"{implausible} of {len(found)} measurements are below their bound: a rule or a timer is wrong")
        )
    for one in target.below_bound[:TOP_COUNT]:
        console.print(Text(words.below_bound(one)))


def _unmeasured(console: Console, analysis: Analysis, target: TargetAnalysis) -> None:
    """Print the cases that gave no time, so that none is taken for one that ran."""
    first, *others = [*lines_of(analysis, target)] or [""]
    if first:
        console.print()
        console.print(Text(f"{words.shortened(target.title, 40)}: {first}", style="bold red"))
    for line in words.hung(others):
        console.print(Text(f"  {line}"))


def _memory(console: Console, analysis: Analysis) -> None:
    if analysis.memory is None:
        return
    use = analysis.memory
    parts = {
        "weights": use.weight_bytes,
        "gradients": use.gradient_bytes,
        "optimizer": use.state_bytes,
        "KV cache": use.kv_cache_bytes,
        "inputs": use.input_bytes,
        "activations at most": use.activation_peak_bytes,
    }
    said = ", ".join(f"{name} {show(size, 'B')}" for name, size in parts.items() if size)
    console.print()
    console.print(Text.assemble(("Memory: ", "bold"), f"{show(use.peak_bytes, 'B')} at the peak ({said})"))


def _footnotes(console: Console, analysis: Analysis) -> None:
    if analysis.uncovered:
        named = ", ".join(f"{words.shortened(name, 40)} ×{calls}" for name, calls in analysis.uncovered.items())
        console.print(Text.assemble(("Not covered by a rule: ", "bold red"), named))
    used = dict.fromkeys(name for target in analysis.targets for name in target.assumptions)
    console.print(Text.assemble(("Policy: ", "bold"), " ".join(words.policy(analysis.policy))))
    notes = [(name, ASSUMPTIONS.get(name, "")) for name in used]
    notes += [("capture", words.clean(sentence)) for sentence in analysis.capture_assumptions]
    lines = Table.grid(padding=(0, 2, 0, 0))
    for name, sentence in notes:
        lines.add_row(Text(name, style="dim"), Text(sentence, style="dim"))
    console.print(lines)
