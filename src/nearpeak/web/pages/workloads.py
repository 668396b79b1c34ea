"""Dashboard page: kernels and models with measured cases, and reports in the folder of the store."""

from nearpeak.reports.document import Cell, Link, Table, columns
from nearpeak.web.cell_text import workload_link
from nearpeak.web.page_view import View
from nearpeak.web.pages import Page
from nearpeak.web.query_arguments import Query
from nearpeak.web.site import Site
from nearpeak.web.workload_reports import report_names


def build(site: Site, query: Query) -> View:
    """Return the list."""
    del query
    counts: dict[str, int] = {}
    for _, _, name in site.store.browsing.cases():
        counts[name] = counts.get(name, 0) + 1
    kernels = Table(
        name="workloads", caption="Measured", columns=columns("workload|Kernel or model", "#cases|Cases"),
        rows=tuple((Cell(value=name, link=workload_link(name)), count) for name, count in counts.items()),
        empty="nothing is measured yet",
    )  # fmt: skip
    names = () if site.setting.is_static else report_names(site.setting.reports)
    reports = Table(
        name="reports", caption="Reports", columns=columns("report|Report"),
        rows=tuple((Cell(value=name, link=Link(page="report", path={"report": name})),) for name in names),
        empty="no folder of reports is shown: nearpeak serve --reports FOLDER",
    )  # fmt: skip
    return View(
        title="Workloads", template="workloads", tables=(kernels, reports),
        context={"tables": (kernels, reports) if names else (kernels,)},
    )  # fmt: skip


PAGE = Page(name="workloads", path="/workloads", build=build, title="Workloads", rank=8)
