"""Dashboard page: all runs, newest first."""

from nearpeak.core.history.stored_run import Run
from nearpeak.reports.document import Cell, Table, columns
from nearpeak.web.cell_text import run_cell, sha_text, shortened, time_cell
from nearpeak.web.page_view import View
from nearpeak.web.pages import Page
from nearpeak.web.query_arguments import Query
from nearpeak.web.site import Site

ROWS = 100


def build(site: Site, query: Query) -> View:
    """Return a page of runs."""
    limit, start = query.rows(ROWS)
    runs, total = site.store.browsing.runs(query.words(), limit=min(limit, 5000), offset=start)
    table = Table(
        name="runs", caption="Runs, newest first", has_filter=site.setting.is_static,
        columns=columns("run|Run", "sha|Commit", "subject|Subject", "device|Device", "host|Host", "trigger|Why",
                        "started_ns|Started", "source|Source"),
        rows=tuple(map(_row, runs)), empty="no runs",
    )  # fmt: skip
    return View(
        title="Runs", template="runs", tables=(table,),
        context={"table": table, "total": total, "start": start, "limit": limit, "query": query.text("q"),
                 "page": start // max(limit, 1)},
    )  # fmt: skip


def _row(run: Run) -> tuple[object, ...]:
    sha, subject = (run.revision.sha, run.revision.subject) if run.revision else ("", "")
    return (
        run_cell(run.id), Cell(value=sha, text=sha_text(sha)), Cell(value=subject, text=shortened(subject, 80)),
        run.device.name, run.device.host, run.trigger, time_cell(run.started_ns), run.source,
    )  # fmt: skip


PAGE = Page(name="runs", path="/runs", build=build, title="Runs", rank=7)
