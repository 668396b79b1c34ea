"""Documents of series: a list with sparklines, or one series with its newest commits and changes."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from nearpeak.core.history.bridge import Bridge
from nearpeak.core.history.stored_run import Series
from nearpeak.core.history.track import Track, TrackChange
from nearpeak.reports.document import Block, Document, Heading, Table, Text, columns
from nearpeak.reports.figure_text import clean
from nearpeak.reports.history.spark import marks, sparkline
from nearpeak.units import counted, show, signed_percent

SPARK, LONG_SPARK = 22, 64
MOST_POINTS = 10
"""Newest commits that are listed of one series."""
_SI = ("s", "B", "J", "W", "FLOP")


def list_document(tracks: Sequence[Track]) -> Document:
    """Return a table for each place of measurement with a row per series: case, sparkline, newest value, change."""
    blocks: list[Block] = []
    for place, group in groupby(tracks, lambda track: place_text(track.series)):
        heads = columns("#series", "label|case", "course", "#newest", "#change_ratio|change")
        blocks += [Heading(place, level=3), Table(columns=heads, rows=[_row(track) for track in group])]
    return Document(blocks=blocks or ["no series"])


def track_document(track: Track, configurations: Sequence[tuple[str, str]] = ()) -> Document:
    """Return one series with sparkline, changes and newest commits.

    Args:
        configurations: of a tuned kernel, the commits from which a configuration led, with that configuration.
    """
    series = track.series
    owner = f", {clean(series.owner)}" if series.owner else ""
    led = [(sha_text(sha), words) for sha, words in configurations]
    tuned = [
        Heading("Configurations of the tuned kernel that led", level=3),
        Table(columns=columns("`from", "~configuration"), rows=led),
    ]
    return Document(blocks=[
        Text(clean(series.label), "strong"), f"series {series.id}: {place_text(series)}{owner}", *_course(track),
        *(tuned if led else ()),
    ])  # fmt: skip


def value_text(value: float, unit: str) -> str:
    """Return a value with its unit and a prefix where the unit takes one.

    >>> value_text(1.2e-4, "s"), value_text(900.0, "1/s")
    ('120 µs', '900 1/s')
    """
    return show(value, unit) if unit in _SI else f"{value:.4g} {clean(unit)}"


def percent(ratio: float) -> str:
    """Return a ratio of values as a signed change.

    >>> percent(1.0512), percent(0.92)
    ('+5.1 %', '-8.0 %')
    """
    return signed_percent(ratio - 1)


def sha_text(sha: str) -> str:
    """Return a commit in ten characters."""
    return clean(sha[:10]) or "–"


def place_text(series: Series) -> str:
    """Return in words where a series is measured, and by what."""
    metric = "" if series.metric.name == "time" else f", {clean(series.metric.name)}"
    return f"{clean(series.device)}, {clean(series.testbed.name)}, {clean(series.branch)}{metric}"


def _row(track: Track) -> tuple[object, ...]:
    values = [point.value for point in track.points]
    if not values:
        return track.series.id, track.series.label, "no values", "", ""
    newest = value_text(values[-1], track.series.metric.unit)
    change = percent(values[-1] / values[0]) if values[0] > 0 else ""
    return track.series.id, track.series.label, sparkline(values, SPARK), newest, change


def _course(track: Track) -> Iterator[Block]:
    """Yield what a series did: its course, changes of its level, newest values."""
    values, unit = [point.value for point in track.points], track.series.metric.unit
    if not values:
        yield f"no values; {counted(track.failed_count, 'launch')} failed"
        return
    yield Heading(f"{len(values)} commits, {value_text(min(values), unit)} to {value_text(max(values), unit)}", level=3)
    yield f"  {sparkline(values, LONG_SPARK)}"
    for sign in "▲△~":
        if indices := [item.index for item in track.changes if sign_of(item) == sign]:
            yield f"  {marks(indices, len(values), LONG_SPARK, sign)}"
    if track.failed_count:
        yield f"  {counted(track.failed_count, 'launch')} without a value"
    yield Heading("Changes of the level", level=3)
    yield from _changes(track)
    yield Heading("Newest commits", level=3)
    yield _newest(track)


def _changes(track: Track) -> Iterator[str]:
    if track.outcome != "searched":
        yield f"changes were not searched: {track.outcome}; at least 12 positive values are needed"
        return
    if not track.changes:
        yield "no change of the level"
    for change in track.changes:
        yield from change_lines(change)
    for _, bridge in track.bridges:
        yield from bridge_lines(bridge)


def bridge_lines(bridge: Bridge) -> Iterator[str]:
    """Yield a change of the key in a few lines: what it did, where that was measured, what differs."""
    interval = f"{percent(bridge.low_ratio)} to {percent(bridge.high_ratio)}"
    joined = "" if bridge.joins else "; joins nothing"
    yield f"= new key {percent(bridge.time_ratio)} ({interval}), {bridge.verdict}{joined}"
    place = f"{sha_text(bridge.sha)}, {bridge.launch_count} launches"
    yield f"  series {bridge.old_series} → {bridge.new_series} at {place}"
    for name, before, after in bridge.differences:
        yield f"  {clean(name)}: {clean(before) or 'none'} → {clean(after) or 'none'}"


def sign_of(change: TrackChange) -> str:
    """Return the sign of a change: ▲ confirmed, △ suspect, ~ an episode of the clock."""
    return "~" if change.by_clock else "▲" if change.tier == "confirmed" else "△"


def change_lines(change: TrackChange) -> Iterator[str]:
    """Yield a change in a few lines: size and interval, commits, what else changed."""
    sign = sign_of(change) + (" worse" if change.worse else " better")
    interval = f"{percent(change.low_ratio)} to {percent(change.high_ratio)}"
    tier = "through the clock" if change.by_clock else change.tier
    yield f"{sign} {percent(change.value_ratio)} ({interval}), {tier}{', over since' if change.over else ''}"
    span = "" if change.span_count <= 1 else f" ({change.span_count} commits)"
    subject = f": {clean(change.subject)}" if change.subject and not change.by_clock else ""
    yield f"  {sha_text(change.good_sha)} → {sha_text(change.bad_sha)}{span}{subject}"
    for name, before, after in change.stack:
        yield f"  {clean(name)}: {clean(before) or 'none'} → {clean(after) or 'none'}"
    if change.devices is not None:
        yield "  another unit of the device ran it"
    if change.clock_ratio is not None and abs(change.clock_ratio - 1) >= 0.002:
        yield f"  clock {percent(change.clock_ratio)}{', gone at equal clocks' if change.by_clock else ''}"


def _newest(track: Track) -> Table:
    """Return the newest commits with their values and what changed from one to the next."""
    rows, unit = [], track.series.metric.unit
    for place, point in list(enumerate(track.points))[-MOST_POINTS:]:
        previous = track.points[place - 1].value if place else 0.0
        moved = percent(point.value / previous) if previous > 0 else ""
        rows.append((sha_text(point.sha), value_text(point.value, unit), moved, len(point.values)))
    return Table(columns=columns("`commit", "#value", "#change", "#launches"), rows=rows)
