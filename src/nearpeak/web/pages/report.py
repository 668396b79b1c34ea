"""Dashboard page: a report file from the reports folder of the store, in its frame."""

from collections.abc import Iterator, Mapping

from nearpeak.errors import NotFoundError
from nearpeak.web.page_view import View
from nearpeak.web.pages import Page
from nearpeak.web.query_arguments import Query
from nearpeak.web.site import Site
from nearpeak.web.workload_reports import report_names


def build(site: Site, query: Query) -> View:
    """Return the frame."""
    name = query.path["report"]
    if name not in report_names(site.setting.reports):
        raise NotFoundError(f"report {name[:80]}: is not in the folder of reports")
    return View(title=name, template="report", context={"name": name, "source": f"/raw/reports/{name}"})


def _nowhere(_: Site) -> Iterator[Mapping[str, str]]:
    yield from ()


PAGE = Page(name="report", path="/reports/{report}", build=build, everywhere=_nowhere, is_static=False)
