"""Dashboard page: full-text search over series, alerts, kernels, reports, runs and devices."""

from collections.abc import Sequence

from nearpeak.core.history.stored_run import Run
from nearpeak.history.alert_queue import Wanted
from nearpeak.reports.document import Cell, Link, Table, columns
from nearpeak.targets import TARGETS, target_of
from nearpeak.web.cell_text import run_cell, series_cell, sha_text, shortened, where, workload_link
from nearpeak.web.page_view import View
from nearpeak.web.pages import Page
from nearpeak.web.pages.triage import queue_of
from nearpeak.web.query_arguments import Asked
from nearpeak.web.site import Site
from nearpeak.web.workload_reports import report_names

ROWS = 25


def build(site: Site, asked: Asked) -> View:
    """Return what fits."""
    words = asked.words()
    tables = _found(site, words) if words else ()
    return View(
        title="Search", template="search", tables=tables,
        context={"query": asked.text("q"), "tables": [one for one in tables if one.rows],
                 "rows": ROWS, "any": any(one.rows for one in tables)},
    )  # fmt: skip


def _found(site: Site, words: tuple[str, ...]) -> tuple[Table, ...]:
    series = site.store.browsing.series(words, limit=ROWS)
    runs, run_count = site.store.browsing.runs(words, limit=ROWS)
    return (
        _kernels(site, words),
        Table(
            name="series", caption=f"Series ({series.total_count})", columns=columns("series|Series", "where|Where"),
            rows=tuple((series_cell(one), where(one)) for one in series.rows),
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
    found = [one for one in names if _holds(one, words)]
    return Table(
        name="workloads", caption=f"Kernels and models ({len(found)})", columns=columns("workload|Kernel or model"),
        rows=tuple((Cell(value=one, link=workload_link(one)),) for one in found[:ROWS]),
    )  # fmt: skip


def _reports(site: Site, words: Sequence[str]) -> Table:
    found = [one for one in report_names(site.setting.reports) if _holds(one, words)]
    return Table(
        name="reports", caption=f"Reports ({len(found)})", columns=columns("report|Report"),
        rows=tuple((Cell(value=one, link=Link(page="report", path={"report": one})),) for one in found[:ROWS]),
    )  # fmt: skip


def _alerts(site: Site, words: tuple[str, ...], *, has_series: bool) -> Table:
    """Return the alerts whose own texts hold the words, then those on series that do."""
    numbers = queue_of(site).wanted(Wanted(shown="all", words=words))
    more = site.store.browsing.alerts_of_series(words, limit=ROWS + 1) if has_series else ()
    found = list(dict.fromkeys((*numbers, *more)))
    count = f"{ROWS} and more" if len(more) > ROWS and len(numbers) <= ROWS else str(len(found))
    return Table(
        name="alerts", caption=f"Alerts ({count})", columns=columns("alert|Alert", "state|State"),
        rows=tuple((Cell(value=one.title, link=Link(page="alert", path={"alert": str(one.id)})),
                    one.status) for one in site.store.browsing.alerts(found[:ROWS])),
    )  # fmt: skip


def _runs(runs: Sequence[Run], count: int) -> Table:
    revisions = [(one, one.revision.sha if one.revision else "", one.revision.subject if one.revision else "")
                 for one in runs]  # fmt: skip
    return Table(
        name="runs", caption=f"Runs ({count})",
        columns=columns("run|Run", "sha|Commit", "subject|Subject", "device|Device"),
        rows=tuple(
            (run_cell(one.id), Cell(value=sha, text=sha_text(sha)), Cell(value=subject, text=shortened(subject, 80)),
             one.device.name)
            for one, sha, subject in revisions
        ),
    )  # fmt: skip


PAGE = Page(name="search", path="/search", build=build, is_static=False)
