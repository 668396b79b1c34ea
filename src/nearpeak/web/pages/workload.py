"""Dashboard page of one kernel or model: its series with newest values and charts, and the report of its bounds."""

from collections.abc import Iterator, Mapping, Sequence

from nearpeak.core.history.stored_run import Series
from nearpeak.errors import NotFoundError
from nearpeak.history.series_state import Standing, standings
from nearpeak.reports.document import Cell, Table, columns
from nearpeak.web.cell_text import case_link, change, clean, part, quantity, series_link
from nearpeak.web.page_view import View
from nearpeak.web.pages import Page
from nearpeak.web.query_arguments import Query
from nearpeak.web.series_charts import small_charts
from nearpeak.web.site import Site, key_of
from nearpeak.web.workload_reports import cases_of, targets_of

ROWS, CHARTS = 200, 12


def build(site: Site, query: Query) -> View:
    """Return the page of a workload."""
    name, series = named(site, query.path["workload"])
    limit, start = query.rows(ROWS)
    rows = standings(site.store, series[start : start + limit])
    table = _table(rows)
    report = bool(targets_of(series) and cases_of(series, most=1))
    return View(
        title=clean(name) or "not named", template="workload", tables=(table,),
        context={
            "name": name, "table": table, "total": len(series), "start": start, "limit": limit,
            "page": start // max(limit, 1), "charts": small_charts(site, series[:CHARTS]), "has_report": report,
            "source": f"/raw/workloads/{query.path['workload']}", "key": query.path["workload"], "clean": clean,
            "devices": len({item.device for item in series}), "cases": len({item.case for item in series}),
        },
    )  # fmt: skip


def named(site: Site, key: str) -> tuple[str, Sequence[Series]]:
    """Return the workload of an address with its series.

    Raises:
        NotFoundError: there is none.
    """
    for name in site.remembered("choices", site.store.browsing.choices)["workload"]:
        if key_of(name) == key:
            return name, site.store.browsing.series((), {"workload": name}, limit=5000).rows
    raise NotFoundError(f"workload {key[:60]}: is not in the store")


def _table(rows: Sequence[Standing]) -> Table:
    return Table(
        name="cases", caption="Cases",
        columns=columns("case|Case", "series|Series", "device|Device", "runner|Runner", "metric|Metric",
                        "#value|Newest", "#change_ratio|Against previous", "#predicted_s|Predicted",
                        "#bound_s|Speed of light", "#attained_ratio|Reached"),
        rows=tuple(
            (Cell(value=standing.series.label, link=case_link(standing.series.case)),
             Cell(value=standing.series.id, text=f"series {standing.series.id}", link=series_link(standing.series.id)),
             standing.series.device, standing.series.testbed.name, standing.series.metric.name,
             quantity(standing.value, standing.series.metric.unit),
             change(standing.change_ratio, direction=standing.series.metric.direction, sure=False),
             standing.predicted_s, standing.bound_s,
             part(standing.attained_ratio, implausible=standing.is_implausible))
            for standing in rows
        ),
    )  # fmt: skip


def _everywhere(site: Site) -> Iterator[Mapping[str, str]]:
    for name in sorted({series.workload for series in site.store.browsing.series((), limit=100_000).rows}):
        if name:
            yield {"workload": key_of(name)}


PAGE = Page(name="workload", path="/workloads/{workload}", build=build, everywhere=_everywhere, is_computed=True)
