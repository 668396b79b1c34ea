"""Dashboard page: all runs, newest first."""

from nearpeak.core.history.stored_run import Run
from nearpeak.reports.document import Cell, Table, columns
from nearpeak.web.cell_text import run_cell, sha_text, shortened, time_cell
from nearpeak.web.page_view import View
from nearpeak.web.pages import Page
from nearpeak.web.query_arguments import Asked
from nearpeak.web.site import Site

ROWS = 100


def build(site: Site, asked: Asked) -> View:
    """Return a page of runs."""
    limit, start = asked.rows(ROWS)
    found, total = site.store.browsing.runs(asked.words(), limit=min(limit, 5000), offset=start)
    table = Table(
        name="runs", caption="Runs, newest first", has_filter=site.setting.is_static,
        columns=columns("run|Run", "sha|Commit", "subject|Subject", "device|Device", "host|Host", "trigger|Why",
                        "started_ns|Started", "source|Source"),
        rows=tuple(map(_row, found)), empty="no runs",
    )  # fmt: skip
    return View(
        title="Runs", template="runs", tables=(table,),
        context={"table": table, "total": total, "start": start, "limit": limit, "query": asked.text("q"),
                 "page": start // max(limit, 1)},
    )  # fmt: skip


def _row(one: Run) -> tuple[object, ...]:
    sha, subject = (one.revision.sha, one.revision.subject) if one.revision else ("", "")
    return (
        run_cell(one.id), Cell(value=sha, text=sha_text(sha)), Cell(value=subject, text=shortened(subject, 80)),
        one.device.name, one.device.host, one.trigger, time_cell(one.started_ns), one.source,
    )  # fmt: skip


PAGE = Page(name="runs", path="/runs", build=build, title="Runs", rank=7)
