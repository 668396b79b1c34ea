"""Terminal report of regressions: groups of series that changed together, with likely causes."""

from collections.abc import Iterator, Mapping, Sequence

from nearpeak.core.history.track import Regressed, Track
from nearpeak.reports.figure_text import clean, hung, shortened
from nearpeak.reports.history.spark import sparkline
from nearpeak.reports.history.tracks import WIDTH, percent, sha_text

SPARK = 18
MOST_SERIES = 8
"""Series that are listed of one group."""


def regressions_text(groups: Sequence[Regressed], tracks: Sequence[Track], searched_count: int) -> str:
    """Return groups, newest first, with a sparkline for each series."""
    by_series = {item.series.id: item for item in tracks}
    lines = [line for item in groups for line in _group(item, by_series)]
    lines.append(f"{len(groups)} groups of changes in {searched_count} series")
    return "\n".join(hung(lines, WIDTH)) + "\n"


def _group(group: Regressed, tracks: Mapping[int, Track]) -> Iterator[str]:
    sign = "▲" if any(change.tier == "confirmed" for _, change in group.changes) else "△"
    count = len(group.changes)
    subject = "episode of the clock, no change of the code" if group.by_clock else group.subject
    yield f"{'~' if group.by_clock else sign} {sha_text(group.bad_sha)} {shortened(subject, WIDTH - 13)}"
    followed = f"; alert {group.alert_id}, {clean(group.status)}" if group.alert_id else ""
    direction = "worse" if group.changes[0][1].worse else "better"
    over = "; over since" if group.over else ""
    over += "; gone at equal clocks" if group.by_clock else ""
    yield f"  {count} series {direction} since {sha_text(group.good_sha)}{over}{followed}"
    for axis, what in group.suspects:
        yield f"  {clean(axis)}: {clean(what)}"
    for series, change in group.changes[:MOST_SERIES]:
        values = [point.value for point in tracks[series.id].points]
        label = shortened(f"{series.label} {series.testbed.name}", 24)
        device = shortened(series.device, 13)
        spark = sparkline(values, SPARK)
        yield f"  {series.id:>5}  {label:<24}  {device:<13}  {spark:<{SPARK}} {percent(change.value_ratio):>8}"
    if count > MOST_SERIES:
        yield f"  {count - MOST_SERIES} more series"
    yield ""
