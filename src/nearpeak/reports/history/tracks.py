"""Terminal reports of series: a list with sparklines, or one series with newest commits and changes."""

from collections.abc import Iterator, Sequence

from nearpeak.core.history.bridge import Bridge
from nearpeak.core.history.stored_run import Series
from nearpeak.core.history.track import Track, TrackChange, TrackPoint
from nearpeak.reports.figure_text import clean, hung, shortened, told_apart
from nearpeak.reports.history.spark import marks, sparkline
from nearpeak.units import show

WIDTH = 80
SPARK, LONG_SPARK = 22, 64
MOST_POINTS = 10
"""Newest commits that are listed of one series."""
_SI = ("s", "B", "J", "W", "FLOP")


def list_text(tracks: Sequence[Track]) -> str:
    """Return a line for each series: number, case, sparkline, newest value, change since the first."""
    lines = [f"{'series':>6}  {'case':<27} {'':<{SPARK}} {'newest':>9} {'change':>8}"]
    previous = None
    names = told_apart([one.series.label for one in tracks], 27)
    for one, name in zip(tracks, names, strict=True):
        if (group := place_text(one.series)) != previous:
            lines.append(shortened(group, WIDTH))
            previous = group
        lines.append(_row(one, name))
    return "\n".join(lines) + "\n"


def detail_text(track: Track) -> str:
    """Return one series with sparkline, changes and newest commits."""
    return "\n".join(hung(_detail(track), WIDTH)) + "\n"


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
    return f"{(ratio - 1) * 100:+.1f} %"


def sha_text(sha: str) -> str:
    """Return a commit in ten characters."""
    return clean(sha[:10]) or "–"


def place_text(series: Series) -> str:
    """Return in words where a series is measured, and by what."""
    metric = "" if series.metric.name == "time" else f", {clean(series.metric.name)}"
    return f"{clean(series.device)}, {clean(series.testbed.name)}, {clean(series.branch)}{metric}"


def _row(track: Track, label: str) -> str:
    values = [one.value for one in track.points]
    if not values:
        return f"{track.series.id:>6}  {label:<27} no values"
    newest = value_text(values[-1], track.series.metric.unit)
    change = percent(values[-1] / values[0]) if values[0] > 0 else ""
    return f"{track.series.id:>6}  {label:<27} {sparkline(values, SPARK):<{SPARK}} {newest:>9} {change:>8}"


def _detail(track: Track) -> Iterator[str]:
    series, values = track.series, [one.value for one in track.points]
    yield clean(series.label)
    yield f"series {series.id}: {place_text(series)}{f', {clean(series.owner)}' if series.owner else ''}"
    if not values:
        yield f"no values; {track.failed_count} launches failed"
        return
    unit = series.metric.unit
    yield ""
    yield f"  {sparkline(values, LONG_SPARK)}"
    for sign in "▲△~":
        if indices := [one.index for one in track.changes if sign_of(one) == sign]:
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
    for one in track.changes:
        yield from change_lines(one)
    for _, bridge in track.bridges:
        yield from bridge_lines(bridge)


def bridge_lines(one: Bridge) -> Iterator[str]:
    """Yield a change of the key in a few lines: what it did, where that was measured, what differs."""
    interval = f"{percent(one.low_ratio)} to {percent(one.high_ratio)}"
    joined = "" if one.joins else "; joins nothing"
    yield f"= new key {percent(one.time_ratio)} ({interval}), {one.verdict}{joined}"
    yield f"  series {one.old_series} → {one.new_series} at {sha_text(one.sha)}, {one.launch_count} launches"
    for name, before, after in one.differences:
        yield f"  {clean(name)}: {clean(before) or 'none'} → {clean(after) or 'none'}"


def sign_of(one: TrackChange) -> str:
    """Return what stands for a change: ▲ confirmed, △ suspect, ~ an episode of the clock."""
    return "~" if one.by_clock else "▲" if one.tier == "confirmed" else "△"


def change_lines(one: TrackChange) -> Iterator[str]:
    """Yield a change in a few lines: size and interval, commits, what else changed."""
    sign = sign_of(one) + (" worse" if one.worse else " better")
    interval = f"{percent(one.low_ratio)} to {percent(one.high_ratio)}"
    tier = "through the clock" if one.by_clock else one.tier
    yield f"{sign} {percent(one.value_ratio)} ({interval}), {tier}{', over since' if one.over else ''}"
    span = "" if one.span_count <= 1 else f" ({one.span_count} commits)"
    said = f": {clean(one.subject)}" if one.subject and not one.by_clock else ""
    yield f"  {sha_text(one.good_sha)} → {sha_text(one.bad_sha)}{span}{said}"
    for name, before, after in one.stack:
        yield f"  {clean(name)}: {clean(before) or 'none'} → {clean(after) or 'none'}"
    if one.devices is not None:
        yield "  another unit of the device ran it"
    if one.clock_ratio is not None and abs(one.clock_ratio - 1) >= 0.002:
        yield f"  clock {percent(one.clock_ratio)}{', gone at equal clocks' if one.by_clock else ''}"


def _newest(track: Track) -> Iterator[str]:
    unit = track.series.metric.unit
    first = max(0, len(track.points) - MOST_POINTS)
    previous: TrackPoint | None = track.points[first - 1] if first else None
    for point in track.points[first:]:
        moved = percent(point.value / previous.value) if previous and previous.value > 0 else ""
        launches = f"{len(point.values)} launches" if len(point.values) > 1 else "1 launch"
        yield f"  {sha_text(point.sha):<10}  {value_text(point.value, unit):>10}  {moved:>8}  {launches}"
        previous = point
