"""Dashboard page: one kernel or model, with its cases on every device and the report of its bounds."""

from collections.abc import Iterator, Mapping, Sequence

from nearpeak.core.history.stored_run import Series
from nearpeak.errors import NotFoundError
from nearpeak.history.series_state import Standing, standings
from nearpeak.reports.document import Cell, Table, columns
from nearpeak.web.cell_text import case_link, change, clean, part, quantity, series_link
from nearpeak.web.page_view import View
from nearpeak.web.pages import Page
from nearpeak.web.query_arguments import Asked
from nearpeak.web.series_charts import small_charts
from nearpeak.web.site import Site, key_of
from nearpeak.web.workload_reports import cases_of, targets_of

ROWS, CHARTS = 200, 12


def build(site: Site, asked: Asked) -> View:
    """Return the page of a workload."""
    name, found = named(site, asked.path["workload"])
    limit, start = asked.rows(ROWS)
    rows = standings(site.store, found[start : start + limit])
    table = _table(rows)
    report = bool(targets_of(found) and cases_of(found, most=1))
    return View(
        title=clean(name) or "not named", template="workload", tables=(table,),
        context={
            "name": name, "table": table, "total": len(found), "start": start, "limit": limit,
            "page": start // max(limit, 1), "charts": small_charts(site, found[:CHARTS]), "has_report": report,
            "source": f"/raw/workloads/{asked.path['workload']}", "key": asked.path["workload"], "clean": clean,
            "devices": len({one.device for one in found}), "cases": len({one.case for one in found}),
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
                        "#value|Newest", "#change_ratio|Against the one before", "#predicted_s|Predicted",
                        "#bound_s|Speed of light", "#attained_ratio|Reached"),
        rows=tuple(
            (Cell(value=one.series.label, link=case_link(one.series.case)),
             Cell(value=one.series.id, text=f"series {one.series.id}", link=series_link(one.series.id)),
             one.series.device, one.series.testbed.name, one.series.metric.name,
             quantity(one.value, one.series.metric.unit),
             change(one.change_ratio, direction=one.series.metric.direction, sure=False), one.predicted_s, one.bound_s,
             part(one.attained_ratio, implausible=one.is_implausible))
            for one in rows
        ),
    )  # fmt: skip


def _everywhere(site: Site) -> Iterator[Mapping[str, str]]:
    for name in sorted({one.workload for one in site.store.browsing.series((), limit=100_000).rows}):
        if name:
            yield {"workload": key_of(name)}


PAGE = Page(name="workload", path="/workloads/{workload}", build=build, everywhere=_everywhere, is_computed=True)
