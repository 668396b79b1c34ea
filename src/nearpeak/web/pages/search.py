"""Dashboard page: full-text search over series, alerts, kernels, reports, runs and devices."""

from collections.abc import Sequence

from nearpeak.core.history.stored_run import Run
from nearpeak.history.alert_queue import AlertFilter
from nearpeak.reports.document import Cell, Link, Table, columns
from nearpeak.targets import TARGETS, target_of
from nearpeak.web.cell_text import run_cell, series_cell, sha_text, shortened, where, workload_link
from nearpeak.web.page_view import View
from nearpeak.web.pages import Page
from nearpeak.web.pages.triage import queue_of
from nearpeak.web.query_arguments import Query
from nearpeak.web.site import Site
from nearpeak.web.workload_reports import report_names

ROWS = 25


def build(site: Site, query: Query) -> View:
    """Return what fits."""
    words = query.words()
    tables = _found(site, words) if words else ()
    return View(
        title="Search", template="search", tables=tables,
        context={"query": query.text("q"), "tables": [table for table in tables if table.rows],
                 "rows": ROWS, "any": any(table.rows for table in tables)},
    )  # fmt: skip


def _found(site: Site, words: tuple[str, ...]) -> tuple[Table, ...]:
    series = site.store.browsing.series(words, limit=ROWS)
    runs, run_count = site.store.browsing.runs(words, limit=ROWS)
    return (
        _kernels(site, words),
        Table(
            name="series", caption=f"Series ({series.total_count})", columns=columns("series|Series", "where|Where"),
            rows=tuple((series_cell(item), where(item)) for item in series.rows),
        ),
        _alerts(site, words, has_series=bool(series.rows)), _reports(site, words), _runs(runs, run_count),
        Table(
            name="targets", caption="Devices that are described", columns=columns("target|Device"),
            rows=tuple(
                (Cell(value=target_of(name).title, link=Link(page="target", path={"target": name})),)
                for name in TARGETS
                if _holds(f"{name} {target_of(name).vendor} {target_of(name).title}", words)
            )[:ROWS],
        ),
    )  # fmt: skip


def _holds(text: str, words: Sequence[str]) -> bool:
    return all(word.lower() in text.lower() for word in words)


def _kernels(site: Site, words: Sequence[str]) -> Table:
    names = sorted({name for _, _, name in site.store.browsing.cases()})
    matches = [kernel for kernel in names if _holds(kernel, words)]
    return Table(
        name="workloads", caption=f"Kernels and models ({len(matches)})", columns=columns("workload|Kernel or model"),
        rows=tuple((Cell(value=kernel, link=workload_link(kernel)),) for kernel in matches[:ROWS]),
    )  # fmt: skip


def _reports(site: Site, words: Sequence[str]) -> Table:
    matches = [name for name in report_names(site.setting.reports) if _holds(name, words)]
    return Table(
        name="reports", caption=f"Reports ({len(matches)})", columns=columns("report|Report"),
        rows=tuple((Cell(value=name, link=Link(page="report", path={"report": name})),) for name in matches[:ROWS]),
    )  # fmt: skip


def _alerts(site: Site, words: tuple[str, ...], *, has_series: bool) -> Table:
    """Return the alerts whose own texts hold the words, then those on series that do."""
    numbers = queue_of(site).wanted(AlertFilter(shown="all", words=words))
    more = site.store.browsing.alerts_of_series(words, limit=ROWS + 1) if has_series else ()
    matches = list(dict.fromkeys((*numbers, *more)))
    count = f"{ROWS} and more" if len(more) > ROWS and len(numbers) <= ROWS else str(len(matches))
    return Table(
        name="alerts", caption=f"Alerts ({count})", columns=columns("alert|Alert", "state|State"),
        rows=tuple((Cell(value=alert.title, link=Link(page="alert", path={"alert": str(alert.id)})),
                    alert.status) for alert in site.store.browsing.alerts(matches[:ROWS])),
    )  # fmt: skip


def _runs(runs: Sequence[Run], count: int) -> Table:
    revisions = [(run, run.revision.sha if run.revision else "", run.revision.subject if run.revision else "")
                 for run in runs]  # fmt: skip
    return Table(
        name="runs", caption=f"Runs ({count})",
        columns=columns("run|Run", "sha|Commit", "subject|Subject", "device|Device"),
        rows=tuple(
            (run_cell(run.id), Cell(value=sha, text=sha_text(sha)), Cell(value=subject, text=shortened(subject, 80)),
             run.device.name)
            for run, sha, subject in revisions
        ),
    )  # fmt: skip


PAGE = Page(name="search", path="/search", build=build, is_static=False)
