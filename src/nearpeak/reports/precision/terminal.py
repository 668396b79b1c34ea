"""Mixed precision for a terminal: verdict, reasons, speed-ups by baseline, operators and casts."""

from collections import Counter
from collections.abc import Iterator

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from nearpeak.core.answers.mixed_precision import BASELINES, Cast, LoweredPart, MixedPrecision, PrecisionVerdict
from nearpeak.reports import figure_text as words
from nearpeak.reports.console import drawn
from nearpeak.reports.precision_text import BASELINES as BASELINE_WORDS
from nearpeak.reports.precision_text import of_host as said_of_host
from nearpeak.reports.precision_text import plain
from nearpeak.units import show

TOP_COUNT = 8
"""Operators and kinds of casts shown."""
_COLOURS = {"pays": "green", "pays only in a graph": "yellow", "does not pay": "red"}


def to_terminal(
    device: MixedPrecision, eager: MixedPrecision, verdict: PrecisionVerdict, *, colour: bool = False, width: int = 80
) -> str:
    """Return the report as text of `width` columns, at least 80."""
    return drawn(lambda console: _print(console, device, eager, verdict), colour=colour, width=width)


def _print(console: Console, device: MixedPrecision, eager: MixedPrecision, verdict: PrecisionVerdict) -> None:
    title = Text(words.shortened(device.name, 40), style="bold")
    title.append(f"  {device.step} step under autocast to {device.format} on {words.clean(device.target)}")
    console.print(title)
    said = f"autocast {verdict.verdict}: {verdict.speed_up_ratio:.2f} times as fast on the device alone"
    for line in words.hung([said + said_of_host(eager, verdict)], console.width):
        console.print(Text(line, style=f"bold {_COLOURS[verdict.verdict]}"))
    for line in words.hung([f"- {words.clean(reason)}" for reason in verdict.reasons], console.width):
        console.print(Text(line))
    console.print(_baselines(device, eager))
    console.print(_operators(device, min(console.width, 120)))
    _casts(console, device)
    for line in words.hung([f"expected from {note}" for note in device.assumptions[:1]], console.width):
        console.print(Text(line, style="dim"))
    for line in words.hung(device.assumptions[1:], console.width):
        console.print(Text(words.clean(line), style="dim"))


def _table(first: str, *others: str) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    table.add_column(first, no_wrap=True, overflow="ellipsis")
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _baselines(device: MixedPrecision, eager: MixedPrecision) -> Table:
    hosts = ["host ahead", "in turns"] if eager.fixed_s else []
    table = _table("against", "as written", "lowered", "speed-up", *hosts)
    for name in BASELINES:
        cells = [show(device.baseline_s[name], "s"), show(device.lowered_s, "s"), f"{device.speed_up_ratio(name):.2f}"]
        cells += [f"{eager.ahead_ratio(name):.2f}", f"{eager.speed_up_ratio(name):.2f}"] if eager.fixed_s else []
        table.add_row(BASELINE_WORDS[name], *cells)
    for name, time_s in (("casts fused (compiled)", device.fused_s), ("converted, no autocast", device.converted_s)):
        if time_s is not None:
            before_s = device.baseline_s["default"]
            table.add_row(name, show(before_s, "s"), show(time_s, "s"), f"{before_s / time_s:.2f}")
    return table


def _operators(device: MixedPrecision, width: int) -> Table:
    table = _table("operator", "calls", "as written", "lowered", "its casts", "speed-up")
    table.columns[0].width = wide = width - 52
    shown = device.parts[:TOP_COUNT]
    for name, part in zip(words.told_apart([plain(part.operator) for part in shown], wide), shown, strict=True):
        table.add_row(name, *_cells(part))
    return table


def _cells(part: LoweredPart) -> Iterator[str]:
    after = part.lowered_s + part.cast_s
    yield str(part.call_count)
    yield show(part.baseline_s["default"], "s")
    yield show(part.lowered_s, "s")
    yield show(part.cast_s, "s") if part.cast_s else "–"
    yield f"{part.baseline_s['default'] / after:.2f}" if after else "–"


def _casts(console: Console, device: MixedPrecision) -> None:
    if not device.casts:
        console.print(Text("autocast casts nothing: no operator of its lists is called"))
        return
    share = f"{device.cast_ratio:.0%} of the lowered step"
    operators = f"{device.call_count} operators become {device.lowered_count}"
    console.print(Text(f"{device.cast_count} casts, {show(device.cast_s, 's')}, {share}; {operators}", style="bold"))
    groups: Counter[tuple[str, str, str, str]] = Counter()
    times: Counter[tuple[str, str, str, str]] = Counter()
    for cast in device.casts:
        groups[_key(cast)] += 1
        times[_key(cast)] += cast.time_s  # type: ignore[assignment]
    for key, _ in times.most_common(TOP_COUNT):
        kind, before, after, consumer = key
        name = plain(consumer) or "what follows the step"
        line = f"  {groups[key]:>4} × {kind} {before} → {after} for {name}: {show(float(times[key]), 's')}"
        console.print(Text(words.shortened(line, console.width)))


def _key(cast: Cast) -> tuple[str, str, str, str]:
    return cast.of, cast.before, cast.after, cast.consumer
