"""Dashboard page: all series, filtered by text and choices, as a list or as a grid of charts."""

from collections.abc import Mapping, Sequence

from nearpeak.core.history.stored_run import Series
from nearpeak.history.series_state import Standing, standings
from nearpeak.reports.document import Cell, Table, columns
from nearpeak.reports.history.spark import sparkline
from nearpeak.web.cell_text import change, part, quantity, series_cell, workload_link
from nearpeak.web.page_view import View
from nearpeak.web.pages import Page
from nearpeak.web.query_arguments import Query
from nearpeak.web.series_charts import small_charts
from nearpeak.web.site import Site

ROWS, CHARTS, MOST_SEARCHED = 100, 24, 20_000
COURSE = 24
"""Newest values that the line of a series is drawn from."""
CHOICES = ("device", "testbed", "branch", "metric", "owner", "workload")


def build(site: Site, query: Query) -> View:
    """Return a page of series."""
    words, shown = query.words(), query.choice("as", ("list", "charts"))
    where = {name: value for name in CHOICES if (value := query.text(name))}
    limit, start = query.rows(CHARTS if shown == "charts" else ROWS)
    part = site.store.browsing.series(words, where, limit=limit, offset=start)
    ids = [series.id for series in part.rows]
    table = _table(site, part.rows, site.store.browsing.change_counts(ids) if len(ids) <= MOST_SEARCHED else {})
    choices = site.remembered("choices", site.store.browsing.choices)
    return View(
        title="Series", template="all_series", tables=(table,),
        context={
            "table": table, "total": part.total_count, "start": start, "limit": limit, "query": query.text("q"),
            "where": where, "as_charts": shown == "charts",
            "charts": small_charts(site, part.rows) if shown == "charts" and not query.is_whole else (),
            "choices": {name: choices[name] for name in CHOICES if len(choices[name]) > 1 or name in where},
            "page": start // max(limit, 1), "titles": {"testbed": "runner", "workload": "kernel"},
        },
    )  # fmt: skip


def _table(site: Site, series: Sequence[Series], changes: Mapping[int, int]) -> Table:
    ids = [item.id for item in series]
    courses = site.store.browsing.newest_values(ids, COURSE) if len(ids) <= ROWS else {}  # none in whole exports
    return Table(
        name="series", caption="Series", has_filter=site.setting.is_static,
        columns=columns("series|Series", "device|Device", "runner|Runner", "branch|Branch", "workload|Kernel",
                        "metric|Metric", "owner|Owner", "course|Course", "#value|Newest",
                        "#change_ratio|Against previous", "#attained_ratio|Reached", "#changes|Changes"),
        rows=tuple(
            _row(state, sparkline(courses.get(state.series.id, ()), COURSE // 2), changes.get(state.series.id, 0))
            for state in standings(site.store, series, predicted=False)
        ),
        empty="no series fits",
    )  # fmt: skip


def _row(state: Standing, course: str, changes: int) -> tuple[object, ...]:
    series = state.series
    return (
        series_cell(series), series.device, series.testbed.name, series.branch,
        Cell(value=series.workload, link=workload_link(series.workload)), series.metric.name, series.owner,
        Cell(value=course, kind="whole"), quantity(state.value, series.metric.unit),
        change(state.change_ratio, direction=series.metric.direction, sure=False),
        part(state.attained_ratio, implausible=state.is_implausible), changes,
    )  # fmt: skip


PAGE = Page(name="all_series", path="/series", build=build, title="Series", rank=2)
