"""Terminal report of regressions: groups of series that changed together, with likely causes."""

from collections.abc import Iterator, Mapping, Sequence

from nearpeak.core.history.level_change import LEAST_VALUES, SEARCHED, TOO_SHORT
from nearpeak.core.history.track import Regressed, Track
from nearpeak.history.failed_series import FailedGroup
from nearpeak.history.regression_groups import cause_of
from nearpeak.history.series_tracks import commits_since, largest_step
from nearpeak.reports.figure_text import clean, hung, shortened
from nearpeak.reports.history.spark import sparkline
from nearpeak.reports.history.tracks import WIDTH, percent, sha_text
from nearpeak.units import counted

SPARK = 18
MOST_SERIES = 8
"""Series that are listed of one group."""


def regressions_text(groups: Sequence[Regressed], tracks: Sequence[Track], failures: Sequence[FailedGroup] = ()) -> str:
    """Return groups, newest first, with a sparkline for each series; before them what no longer runs."""
    by_series = {item.series.id: item for item in tracks}
    lines = [line for failed in failures for line in _failure(failed)]
    lines += [line for item in groups for line in _group(item, by_series)]
    lines.append(f"{counted(len(groups), 'group')} of changes in {len(tracks)} series")
    lines += unsearched_lines(tracks)
    return "\n".join(hung(lines, WIDTH)) + "\n"


def unsearched_lines(tracks: Sequence[Track]) -> list[str]:
    """Return what the search could not look at, what it needs, and the largest difference seen there."""
    left_out = [track for track in tracks if track.outcome != SEARCHED]
    if not left_out:
        return []
    short = [track for track in left_out if track.outcome == TOO_SHORT]
    lines = [
        f"{len(left_out) - len(short)} series not searched: their values are not positive or not finite"
    ] if len(left_out) > len(short) else []  # fmt: skip
    if short:
        most = max(len(track.points) for track in short)
        lines.append(
            f"{len(short)} series not searched: a search needs {LEAST_VALUES} commits, these have {most} at most;"
            " 'nearpeak gate' compares two"
        )
    step = largest_step(short)
    if step is not None:
        track, place = step
        old, new = track.points[place - 1], track.points[place]
        lines.append(
            f"  largest difference between neighbours there: {percent(new.value / old.value)}, series"
            f" {track.series.id}, {sha_text(old.sha)} to {sha_text(new.sha)}; these alone do not tell it from noise"
        )
    return lines


def _failure(group: FailedGroup) -> Iterator[str]:
    yield f"✗ {sha_text(group.bad_sha)} {shortened(clean(group.title), WIDTH - 13)}"
    followed = f"; alert {group.alert_id}, {clean(group.status)}" if group.alert_id else ""
    since = f"ran until {sha_text(group.good_sha)}" if group.good_sha else "never ran before"
    yield f"  {since}{followed}"
    for failed in group.failures[:MOST_SERIES]:
        label = shortened(f"{failed.series.label} {failed.series.testbed.name}", 40)
        yield f"  {failed.series.id:>5}  {label:<40}  {shortened(failed.series.device, 20)}"
    if len(group.failures) > MOST_SERIES:
        yield f"  {len(group.failures) - MOST_SERIES} more series"
    yield ""


def _group(group: Regressed, tracks: Mapping[int, Track]) -> Iterator[str]:
    sign = "▲" if any(change.tier == "confirmed" for _, change in group.changes) else "△"
    count = len(group.changes)
    subject = "episode of the clock, no change of the code" if group.by_clock else cause_of(group)
    yield f"{'~' if group.by_clock else sign} {sha_text(group.bad_sha)} {shortened(subject, WIDTH - 13)}"
    followed = f"; alert {group.alert_id}, {clean(group.status)}" if group.alert_id else ""
    direction = "worse" if group.changes[0][1].worse else "better"
    over = "; over since" if group.over else ""
    over += "; gone at equal clocks" if group.by_clock else ""
    ages = [commits_since(tracks[series.id], change) for series, change in group.changes]
    age = f", {counted(max(ages), 'commit')} ago" if max(ages) else ", at the newest commit"
    yield f"  {count} series {direction} since {sha_text(group.good_sha)}{age}{over}{followed}"
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
