"""A report that lies beside the store, in its frame."""

from collections.abc import Iterator, Mapping

from nearpeak.errors import NotFoundError
from nearpeak.web._asked import Asked
from nearpeak.web._reports import report_names
from nearpeak.web._site import Site
from nearpeak.web._view import View
from nearpeak.web.pages import Page


def build(site: Site, asked: Asked) -> View:
    """Return the frame."""
    name = asked.path["report"]
    if name not in report_names(site.setting.reports):
        raise NotFoundError(f"report {name[:80]}: is not in the folder of reports")
    return View(title=name, template="report", context={"name": name, "source": f"/raw/reports/{name}"})


def _nowhere(_: Site) -> Iterator[Mapping[str, str]]:
    yield from ()


PAGE = Page(name="report", path="/reports/{report}", build=build, everywhere=_nowhere, is_static=False)
