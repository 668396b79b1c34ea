"""Dashboard page: one case, with commands that reproduce it, its measurements and its time bound."""

from collections.abc import Iterator, Mapping, Sequence

from nearpeak.core.history.stored_run import Series
from nearpeak.errors import NearpeakError, NotFoundError
from nearpeak.history.series_state import standings
from nearpeak.history.stored_devices import case_of_series
from nearpeak.reports.document import Cell, Link, Table, columns
from nearpeak.reports.figure_text import limiter
from nearpeak.targets import TARGETS
from nearpeak.web.cell_text import clean, part, quantity, series_cell, workload_link
from nearpeak.web.measure_actions import again
from nearpeak.web.page_view import View
from nearpeak.web.pages import Page
from nearpeak.web.query_arguments import Query
from nearpeak.web.reproduction_commands import commands_of_case
from nearpeak.web.series_charts import small_charts
from nearpeak.web.site import Site, case_key, series_of_case

CHARTS = 12


def build(site: Site, query: Query) -> View:
    """Return the page of a case."""
    key = query.path["case"]
    matches = series_of_case(site.store, key)
    if not matches:
        raise NotFoundError(f"case {key}: has no series")
    first = matches[0]
    wish = again(site, f"/cases/{key}", matches)
    tables = (_measured(site, matches), _bounds(first), _parameters(first))
    return View(
        title=clean(first.label), template="case", tables=(*tables, wish.jobs),
        context={
            "series": first, "again": wish, "tables": tables, "count": len(matches),
            "charts": small_charts(site, matches[:CHARTS]),
            "commands": tuple(commands_of_case(matches)), "workload_link": workload_link(first.workload),
            "clean": clean,
            "digest": first.case,
        },
    )  # fmt: skip


def _measured(site: Site, series: Sequence[Series]) -> Table:
    return Table(
        name="measured", caption="Where it is measured",
        columns=columns("series|Series", "device|Device", "runner|Runner", "branch|Branch", "metric|Metric",
                        "#value|Newest", "#predicted_s|Predicted", "#bound_s|Speed of light",
                        "#attained_ratio|Reached"),
        rows=tuple(
            (series_cell(standing.series, f"series {standing.series.id}"), standing.series.device,
             standing.series.testbed.name,
             standing.series.branch, standing.series.metric.name, quantity(standing.value, standing.series.metric.unit),
             standing.predicted_s,
             standing.bound_s, part(standing.attained_ratio, implausible=standing.is_implausible))
            for standing in standings(site.store, series)
        ),
    )  # fmt: skip


def _bounds(series: Series) -> Table:
    """Return what the case takes at least on every device that is described."""
    from nearpeak.bounds.case_bound import case_bound
    from nearpeak.targets import target_of

    rows = []
    try:
        case = case_of_series(series)
    except NearpeakError:
        case = None
    for name in TARGETS if case is not None else ():
        target = target_of(name)
        try:
            bound = case_bound(case, target) if case is not None else None
        except NearpeakError:
            continue
        if bound is not None:
            link = Link(page="target", path={"target": name})
            rows.append((Cell(value=target.title, link=link), bound.time_s,
                         Cell(value=bound.limiter, text=limiter(bound.limiter))))  # fmt: skip
    rows.sort(key=lambda row: (row[1], str(row[0].value)))
    return Table(
        name="bounds", caption="Speed of light on every device",
        columns=columns("target|Device", "#bound_s|Least time", "limiter|Limited by"), rows=tuple(rows),
        empty="it is a benchmark of another tool: nothing bounds it",
    )  # fmt: skip


def _parameters(series: Series) -> Table:
    return Table(
        name="parameters", caption="What it is", columns=columns("name|Name", "value|Value"),
        rows=tuple((name, Cell(value=value, text=clean(str(value))))
                   for name, value in sorted(series.parameters.items())),
        empty="its tool states no parameters",
    )  # fmt: skip


def _everywhere(site: Site) -> Iterator[Mapping[str, str]]:
    for digest, _, _ in site.store.browsing.cases():
        if site.store.browsing.series((), {"case": digest}, limit=1).rows:
            yield {"case": case_key(digest)}


PAGE = Page(name="case", path="/cases/{case}", build=build, everywhere=_everywhere, is_computed=True)
