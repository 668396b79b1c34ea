"""Terminal reports of series: a list with sparklines, or one series with newest commits and changes."""

from collections.abc import Iterator, Sequence

from nearpeak.core.history.bridge import Bridge
from nearpeak.core.history.stored_run import Series
from nearpeak.core.history.track import Track, TrackChange, TrackPoint
from nearpeak.reports.figure_text import clean, hung, shortened, told_apart
from nearpeak.reports.history.spark import marks, sparkline
from nearpeak.units import show, signed_percent

WIDTH = 80
SPARK, LONG_SPARK = 22, 64
MOST_POINTS = 10
"""Newest commits that are listed of one series."""
_SI = ("s", "B", "J", "W", "FLOP")


def list_text(tracks: Sequence[Track]) -> str:
    """Return a line for each series: number, case, sparkline, newest value, change since the first."""
    lines = [f"{'series':>6}  {'case':<27} {'':<{SPARK}} {'newest':>9} {'change':>8}"]
    previous = None
    names = told_apart([track.series.label for track in tracks], 27)
    for track, name in zip(tracks, names, strict=True):
        if (group := place_text(track.series)) != previous:
            lines.append(shortened(group, WIDTH))
            previous = group
        lines.append(_row(track, name))
    return "\n".join(lines) + "\n"


def detail_text(track: Track, configurations: Sequence[tuple[str, str]] = ()) -> str:
    """Return one series with sparkline, changes and newest commits.

    Args:
        configurations: of a tuned kernel, the commits from which a configuration led, with that configuration.
    """
    led = ["", "configurations of the tuned kernel, with the commit from which each led"] if configurations else []
    led += [f"  {sha_text(sha)}  {clean(words)}" for sha, words in configurations]
    return "\n".join(hung((*_detail(track), *led), WIDTH)) + "\n"


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


def _row(track: Track, label: str) -> str:
    values = [point.value for point in track.points]
    if not values:
        return f"{track.series.id:>6}  {label:<27} no values"
    newest = value_text(values[-1], track.series.metric.unit)
    change = percent(values[-1] / values[0]) if values[0] > 0 else ""
    return f"{track.series.id:>6}  {label:<27} {sparkline(values, SPARK):<{SPARK}} {newest:>9} {change:>8}"


def _detail(track: Track) -> Iterator[str]:
    series, values = track.series, [item.value for item in track.points]
    yield clean(series.label)
    yield f"series {series.id}: {place_text(series)}{f', {clean(series.owner)}' if series.owner else ''}"
    if not values:
        yield f"no values; {track.failed_count} launches failed"
        return
    unit = series.metric.unit
    yield ""
    yield f"  {sparkline(values, LONG_SPARK)}"
    for sign in "▲△~":
        if indices := [item.index for item in track.changes if sign_of(item) == sign]:
            yield f"  {marks(indices, len(values), LONG_SPARK, sign)}"
    yield f"  {len(values)} commits, {value_text(min(values), unit)} to {value_text(max(values), unit)}"
    if track.failed_count:
        yield f"  {track.failed_count} launches without a value"
    yield ""
    yield from _changes(track)
    yield ""
    yield from _newest(track)


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


def _newest(track: Track) -> Iterator[str]:
    unit = track.series.metric.unit
    first = max(0, len(track.points) - MOST_POINTS)
    previous: TrackPoint | None = track.points[first - 1] if first else None
    for point in track.points[first:]:
        moved = percent(point.value / previous.value) if previous and previous.value > 0 else ""
        launches = f"{len(point.values)} launches" if len(point.values) > 1 else "1 launch"
        yield f"  {sha_text(point.sha):<10}  {value_text(point.value, unit):>10}  {moved:>8}  {launches}"
        previous = point
