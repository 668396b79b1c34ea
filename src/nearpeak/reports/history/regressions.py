"""Document of regressions: groups of series that changed together, with likely causes."""

from collections.abc import Iterator, Mapping, Sequence

from nearpeak.core.history.level_change import LEAST_VALUES, SEARCHED, TOO_SHORT
from nearpeak.core.history.track import Regressed, Track
from nearpeak.history.failed_series import FailedGroup
from nearpeak.history.regression_groups import cause_of
from nearpeak.history.series_tracks import commits_since, largest_step
from nearpeak.reports.document import Block, Column, Document, Heading, Table, columns
from nearpeak.reports.figure_text import clean
from nearpeak.reports.history.spark import sparkline
from nearpeak.reports.history.tracks import percent, sha_text
from nearpeak.units import counted

SPARK = 10
MOST_SERIES = 8
"""Series that are listed of one group."""
_NAMES = (1, 2, 3)
"""Places of label, testbed and device in the rows of a group."""


def regressions_document(
    groups: Sequence[Regressed], tracks: Sequence[Track], failures: Sequence[FailedGroup] = ()
) -> Document:
    """Return groups, newest first, with a sparkline for each series; before them what no longer runs."""
    by_series = {item.series.id: item for item in tracks}
    blocks = [block for failed in failures for block in _failure(failed)]
    blocks += [block for item in groups for block in _group(item, by_series)]
    summary = f"{counted(len(groups), 'group')} of changes in {len(tracks)} series"
    return Document(blocks=[*blocks, Heading(summary, level=3), *unsearched_lines(tracks)])


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


def _failure(group: FailedGroup) -> Iterator[Block]:
    yield Heading(f"✗ {sha_text(group.bad_sha)} {clean(group.title)}", level=3)
    followed = f"; alert {group.alert_id}, {clean(group.status)}" if group.alert_id else ""
    since = f"ran until {sha_text(group.good_sha)}" if group.good_sha else "never ran before"
    yield f"  {since}{followed}"
    rows = [(item.series.id, item.series.label, item.series.testbed.name, item.series.device)
            for item in group.failures]  # fmt: skip
    yield from _series_table(columns("#series|", "label|", "testbed|", "device|"), rows)


def _group(group: Regressed, tracks: Mapping[int, Track]) -> Iterator[Block]:
    sign = "▲" if any(change.tier == "confirmed" for _, change in group.changes) else "△"
    count = len(group.changes)
    subject = "episode of the clock, no change of the code" if group.by_clock else cause_of(group)
    yield Heading(f"{'~' if group.by_clock else sign} {sha_text(group.bad_sha)} {clean(subject)}", level=3)
    followed = f"; alert {group.alert_id}, {clean(group.status)}" if group.alert_id else ""
    direction = "worse" if group.changes[0][1].worse else "better"
    over = "; over since" if group.over else ""
    over += "; gone at equal clocks" if group.by_clock else ""
    ages = [commits_since(tracks[series.id], change) for series, change in group.changes]
    age = f", {counted(max(ages), 'commit')} ago" if max(ages) else ", at the newest commit"
    yield f"  {count} series {direction} since {sha_text(group.good_sha)}{age}{over}{followed}"
    for axis, what in group.suspects:
        yield f"  {clean(axis)}: {clean(what)}"
    rows = []
    for series, change in group.changes:
        spark = sparkline([point.value for point in tracks[series.id].points], SPARK)
        rows.append((series.id, series.label, series.testbed.name, series.device, spark,
                     percent(change.value_ratio)))  # fmt: skip
    yield from _series_table(columns("#series|", "label|", "testbed|", "device|", "course|", "#change_ratio|"), rows)


def _series_table(heads: tuple[Column, ...], rows: Sequence[tuple[object, ...]]) -> Iterator[Block]:
    """Yield what all series of one group share, and a table of the rest; a terminal shows the first of them."""
    shared = [place for place in _NAMES if len({row[place] for row in rows}) == 1]
    if shared:
        yield f"  {', '.join(clean(str(rows[0][place])) for place in shared)}:"
    places = [place for place in range(len(heads)) if place not in shared]
    yield Table(
        columns=tuple(heads[place] for place in places), rows=[tuple(row[place] for place in places) for row in rows],
        brief_count=MOST_SERIES, rest=f"{len(rows) - MOST_SERIES} more series", indent_count=2,
    )  # fmt: skip
