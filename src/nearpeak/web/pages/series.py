"""Dashboard page: one series, with change points, intervals, bound, prediction and correlated series."""

from collections.abc import Iterator, Mapping, Sequence

from nearpeak.core.history.level_change import NOT_FINITE, NOT_POSITIVE, SEARCHED, TOO_SHORT
from nearpeak.core.history.stored_run import Run, Series
from nearpeak.core.history.track import Track, TrackChange, TrackPoint
from nearpeak.history.series_state import standings
from nearpeak.history.series_tracks import track_of
from nearpeak.reports.document import Cell, Link, Table, columns
from nearpeak.store import History
from nearpeak.web.cell_text import (
    case_link,
    change,
    clean,
    part,
    percent,
    quantity,
    run_cell,
    series_cell,
    sha_text,
    shortened,
    value_text,
    workload_link,
)
from nearpeak.web.cell_text import where as place_of
from nearpeak.web.history_chart import Chart, Mark, chart_of
from nearpeak.web.measure_actions import again
from nearpeak.web.page_view import View
from nearpeak.web.pages import Page
from nearpeak.web.query_arguments import Asked
from nearpeak.web.reproduction_commands import commands_of
from nearpeak.web.series_charts import intervals_of, levels_of
from nearpeak.web.site import Site, series_of

ROWS = 60
"""Newest commits of the table; its exports hold all."""
_UNSEARCHED = {
    SEARCHED: "no change of the level",
    TOO_SHORT: "not searched: too few commits have a value yet",
    NOT_FINITE: "not searched: some values are not finite",
    NOT_POSITIVE: "not searched: some values are not positive",
}


def build(site: Site, asked: Asked) -> View:
    """Return the page of a series."""
    number = asked.id("series")
    one = series_of(site.store, number)
    track, history = _track(site, one)
    intervals = intervals_of(history, track.points)
    chart = _chart(one, track, intervals)
    runs = {run.id: run for run in _runs(site, track, asked)}
    tables = (_points(one, track, intervals, runs, ROWS if not asked.is_whole else None), _changes(track),
              _beside(site, one), (wish := again(site, f"/series/{number}", [one])).jobs)  # fmt: skip
    (standing,) = standings(site.store, [one])
    return View(
        title=f"{one.label}, {one.device}", template="series", tables=tables,
        context={
            "series": one, "again": wish, "track": track, "chart": chart, "points": tables[0], "changes": tables[1],
            "beside": tables[2], "standing": standing, "where": place_of(one), "case_link": case_link(one.case),
            "workload_link": workload_link(one.workload), "commands": tuple(commands_of(site, one)),
            "alerts": _alerts(site, number), "clock": _clock(track), "value_text": value_text, "percent": percent,
            "policy": one.testbed.policy, "newest": track.points[-1] if track.points else None,
            "rest": max(0, len(track.points) - ROWS), "clean": clean,
        },
    )  # fmt: skip


def _track(site: Site, one: Series) -> tuple[Track, History]:
    """Return the history with its changes; remembered as long as no run came to it."""
    newest = site.store.browsing.newest([one.id]).get(one.id, (0, 0.0))[0]
    found: tuple[Track, History] = site.remembered(
        f"track {one.id}", lambda: (track_of(site.store, one.id), site.store.history(one.id)), (newest, one.run_count)
    )
    return found


def _runs(site: Site, track: Track, asked: Asked) -> Sequence[Run]:
    rows = track.points if asked.is_whole else track.points[-ROWS:]
    return site.store.runs([one.run_id for one in rows]) if rows else ()


def _chart(one: Series, track: Track, intervals: Sequence[tuple[float, float]]) -> Chart:
    marks = tuple(
        Mark(index=each.index, is_worse=each.worse, is_sure=each.tier == "confirmed",
             text=percent(each.value_ratio) + (" through the clock" if each.by_clock else ""))
        for each in track.changes
    )  # fmt: skip
    return chart_of(
        f"series{one.id}", f"{one.label}, {place_of(one)}", one.metric.unit, track.points, intervals, marks=marks,
        lines=levels_of(one),
    )  # fmt: skip


def _points(
    one: Series, track: Track, intervals: Sequence[tuple[float, float]], runs: Mapping[int, Run], most: int | None
) -> Table:
    rows = list(zip(track.points, intervals, strict=True))[::-1]
    return Table(
        name="history", caption="Values, newest first",
        columns=columns("sha|Commit", "subject|Subject", f"#value_{one.metric.unit}|Value",
                        f"#low_{one.metric.unit}|95 % from", f"#high_{one.metric.unit}|to", "#launches|Launches",
                        "#clock_hz|Clock", "run|Run"),
        rows=tuple(_point(one, point, ends, runs.get(point.run_id)) for point, ends in rows[:most]),
        empty="no values",
    )  # fmt: skip


def _point(one: Series, point: TrackPoint, ends: tuple[float, float], run: Run | None) -> tuple[object, ...]:
    subject = run.revision.subject if run and run.revision else ""
    clock = sum(point.clocks_hz) / len(point.clocks_hz) if point.clocks_hz else None
    return (
        Cell(value=point.sha, text=sha_text(point.sha)), Cell(value=subject, text=shortened(clean(subject), 90)),
        *(quantity(value, one.metric.unit) for value in (point.value, *ends)), len(point.values),
        Cell(value=clock, text="–" if clock is None else f"{clock / 1e9:.3f} GHz"), run_cell(point.run_id),
    )  # fmt: skip


def _changes(track: Track) -> Table:
    return Table(
        name="changes", caption="Changes of the level",
        columns=columns("change|Change", "#ratio|Size", "#low_ratio|From", "#high_ratio|To", "tier|How sure",
                        "good|Last good", "bad|First bad", "subject|Subject", "stack|Software that changed",
                        "#clock_ratio|Clock"),
        rows=tuple(_change(one, track.series.metric.direction) for one in reversed(track.changes)),
        empty=_UNSEARCHED.get(track.outcome, f"not searched: {track.outcome}"),
    )  # fmt: skip


def _change(one: TrackChange, direction: str) -> tuple[object, ...]:
    said = "▲ worse" if one.worse else "▼ better"
    over = ", taken back since" if one.over else ""
    stack = ", ".join(f"{name} {before or 'none'} → {after or 'none'}" for name, before, after in one.stack)
    sure = "through the clock" if one.by_clock else one.tier
    return (
        Cell(value="worse" if one.worse else "better", text=said + over, kind="bad" if one.worse else "good"),
        change(one.value_ratio, direction=direction, sure=one.tier == "confirmed"),
        *(Cell(value=ratio, text=percent(ratio)) for ratio in (one.low_ratio, one.high_ratio)), sure,
        Cell(value=one.good_sha, text=sha_text(one.good_sha)),
        Cell(value=one.bad_sha, text=sha_text(one.bad_sha), link=_commits(one)),
        Cell(value=one.subject, text=shortened(clean(one.subject), 80)), stack,
        Cell(value=one.clock_ratio, text="–" if one.clock_ratio is None else percent(one.clock_ratio)),
    )  # fmt: skip


def _commits(one: TrackChange) -> Link | None:
    if not one.good_sha or not one.bad_sha:
        return None
    return Link(page="compare", query={"a": one.good_sha, "b": one.bad_sha})


def _beside(site: Site, one: Series) -> Table:
    """Return the other series of the same case."""
    found = site.store.browsing.series((), {"case": one.case}, limit=60).rows
    others = [other for other in found if other.id != one.id]
    return Table(
        name="beside", caption="The same case elsewhere",
        columns=columns("series|Series", "device|Device", "runner|Runner", "branch|Branch", "metric|Metric",
                        "#value|Newest", "#attained_ratio|Of the speed of light"),
        rows=tuple(
            (series_cell(row.series), row.series.device, row.series.testbed.name, row.series.branch,
             row.series.metric.name, quantity(row.value, row.series.metric.unit),
             part(row.attained_ratio, implausible=row.is_implausible))
            for row in standings(site.store, others, predicted=False)
        ),
        empty="it is measured nowhere else",
    )  # fmt: skip


def _alerts(site: Site, number: int) -> tuple[int, ...]:
    changes = site.store.browsing.changes(series=[number])
    found = site.store.browsing.alerts_of_changes([one.id for one in changes]) if changes else {}
    return tuple(sorted(set(found.values())))


def _clock(track: Track) -> str:
    share = track.clock_share_ratio
    return "" if share is None else f"{share:.0%} of a change of the clock shows in this series"


def _everywhere(site: Site) -> Iterator[Mapping[str, str]]:
    for one in site.store.browsing.series((), limit=100_000).rows:
        yield {"series": str(one.id)}


PAGE = Page(name="series", path="/series/{series}", build=build, everywhere=_everywhere, is_computed=True)
