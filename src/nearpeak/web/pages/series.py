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
from nearpeak.web.query_arguments import Query
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


def build(site: Site, query: Query) -> View:
    """Return the page of a series."""
    number = query.id("series")
    series = series_of(site.store, number)
    track, history = _track(site, series)
    intervals = intervals_of(history, track.points)
    chart = _chart(site, series, track, intervals)
    shown = track.points if query.is_whole else track.points[-ROWS:]
    runs = {run.id: run for run in site.store.runs([point.run_id for point in shown])} if shown else {}
    tables = (_points(series, track, intervals, runs, ROWS if not query.is_whole else None), _changes(track),
              _beside(site, series), (wish := again(site, f"/series/{number}", [series])).jobs)  # fmt: skip
    (standing,) = standings(site.store, [series])
    return View(
        title=f"{series.label}, {series.device}", template="series", tables=tables,
        context={
            "series": series, "again": wish, "track": track, "chart": chart, "points": tables[0], "changes": tables[1],
            "beside": tables[2], "standing": standing, "where": place_of(series), "case_link": case_link(series.case),
            "workload_link": workload_link(series.workload), "commands": tuple(commands_of(site, series)),
            "alerts": _alerts(site, number), "clock": _clock(track), "value_text": value_text, "percent": percent,
            "policy": series.testbed.policy, "newest": track.points[-1] if track.points else None,
            "rest": max(0, len(track.points) - ROWS), "clean": clean,
        },
    )  # fmt: skip


def _track(site: Site, series: Series) -> tuple[Track, History]:
    """Return the history with its changes; remembered as long as no run came to it."""
    newest = site.store.browsing.newest([series.id]).get(series.id, (0, 0.0))[0]
    track_and_history: tuple[Track, History] = site.remembered(
        f"track {series.id}",
        lambda: (track_of(site.store, series.id), site.store.history(series.id)),
        (newest, series.run_count),
    )
    return track_and_history


def _chart(site: Site, series: Series, track: Track, intervals: Sequence[tuple[float, float]]) -> Chart:
    marks = tuple(
        Mark(index=each.index, is_worse=each.worse, is_sure=each.tier == "confirmed",
             text=percent(each.value_ratio) + (" through the clock" if each.by_clock else ""))
        for each in track.changes
    )  # fmt: skip
    return chart_of(
        f"series{series.id}", f"{series.label}, {place_of(series)}", series.metric.unit, track.points, intervals,
        marks=marks,
        lines=levels_of(series),
        commits=site.store.browsing.commit_texts(point.sha for point in track.points if point.sha),
    )  # fmt: skip


def _points(
    series: Series, track: Track, intervals: Sequence[tuple[float, float]], runs: Mapping[int, Run], most: int | None
) -> Table:
    rows = list(zip(track.points, intervals, strict=True))[::-1]
    return Table(
        name="history", caption="Values, newest first",
        columns=columns("sha|Commit", "subject|Subject", f"#value_{series.metric.unit}|Value",
                        f"#low_{series.metric.unit}|95 % from", f"#high_{series.metric.unit}|to", "#launches|Launches",
                        "#clock_hz|Clock", "run|Run"),
        rows=tuple(_point(series, point, ends, runs.get(point.run_id)) for point, ends in rows[:most]),
        empty="no values",
    )  # fmt: skip


def _point(series: Series, point: TrackPoint, ends: tuple[float, float], run: Run | None) -> tuple[object, ...]:
    subject = run.revision.subject if run and run.revision else ""
    clock = sum(point.clocks_hz) / len(point.clocks_hz) if point.clocks_hz else None
    return (
        Cell(value=point.sha, text=sha_text(point.sha)), Cell(value=subject, text=shortened(clean(subject), 90)),
        *(quantity(value, series.metric.unit) for value in (point.value, *ends)), len(point.values),
        Cell(value=clock, text="–" if clock is None else f"{clock / 1e9:.3f} GHz"), run_cell(point.run_id),
    )  # fmt: skip


def _changes(track: Track) -> Table:
    return Table(
        name="changes", caption="Changes of the level",
        columns=columns("change|Change", "#ratio|Size", "#low_ratio|From", "#high_ratio|To", "tier|How sure",
                        "good|Last good", "bad|First bad", "subject|Subject", "stack|Software that changed",
                        "#clock_ratio|Clock"),
        rows=tuple(_change(change, track.series.metric.direction) for change in reversed(track.changes)),
        empty=_UNSEARCHED.get(track.outcome, f"not searched: {track.outcome}"),
    )  # fmt: skip


def _change(step: TrackChange, direction: str) -> tuple[object, ...]:
    direction_text = "▲ worse" if step.worse else "▼ better"
    over = ", taken back since" if step.over else ""
    stack = ", ".join(f"{name} {before or 'none'} → {after or 'none'}" for name, before, after in step.stack)
    ends = {"a": step.good_sha, "b": step.bad_sha}
    commits = Link(page="compare", query=ends) if all(ends.values()) else None
    sure = "through the clock" if step.by_clock else step.tier
    return (
        Cell(value="worse" if step.worse else "better", text=direction_text + over,
             kind="bad" if step.worse else "good"),
        change(step.value_ratio, direction=direction, sure=step.tier == "confirmed"),
        *(Cell(value=ratio, text=percent(ratio)) for ratio in (step.low_ratio, step.high_ratio)), sure,
        Cell(value=step.good_sha, text=sha_text(step.good_sha)),
        Cell(value=step.bad_sha, text=sha_text(step.bad_sha), link=commits),
        Cell(value=step.subject, text=shortened(clean(step.subject), 80)), stack,
        Cell(value=step.clock_ratio, text="–" if step.clock_ratio is None else percent(step.clock_ratio)),
    )  # fmt: skip


def _beside(site: Site, series: Series) -> Table:
    """Return the other series of the same case."""
    matches = site.store.browsing.series((), {"case": series.case}, limit=60).rows
    others = [other for other in matches if other.id != series.id]
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
    by_change = site.store.browsing.alerts_of_changes([change.id for change in changes]) if changes else {}
    return tuple(sorted(set(by_change.values())))


def _clock(track: Track) -> str:
    share = track.clock_share_ratio
    return "" if share is None else f"{share:.0%} of a change of the clock shows in this series"


def _everywhere(site: Site) -> Iterator[Mapping[str, str]]:
    for series in site.store.browsing.series((), limit=100_000).rows:
        yield {"series": str(series.id)}


PAGE = Page(name="series", path="/series/{series}", build=build, everywhere=_everywhere, is_computed=True)
