"""Search: series, alerts, runs and devices whose texts hold some words."""

from nearpeak.history.queue import Wanted
from nearpeak.targets import TARGETS, target_of
from nearpeak.web._asked import Asked
from nearpeak.web._site import Site
from nearpeak.web._view import Cell, Link, Table, View, columns
from nearpeak.web._words import clean, run_cell, series_cell, sha_text, where
from nearpeak.web.pages import Page
from nearpeak.web.pages.triage import queue_of

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
    numbers = queue_of(site).wanted(Wanted(shown="all", words=words))
    alerts = site.store.browsing.alerts(numbers[:ROWS])
    return (
        Table(
            name="series", caption=f"Series ({series.total_count})", columns=columns("series|Series", "where|Where"),
            rows=tuple((series_cell(one), Cell(value=where(one))) for one in series.rows),
        ),
        Table(
            name="alerts", caption=f"Alerts ({len(numbers)})", columns=columns("alert|Alert", "state|State"),
            rows=tuple((Cell(value=one.title, link=Link(page="alert", path={"alert": str(one.id)})),
                        Cell(value=one.status)) for one in alerts),
        ),
        Table(
            name="runs", caption=f"Runs ({run_count})",
            columns=columns("run|Run", "sha|Commit", "subject|Subject", "device|Device"),
            rows=tuple(
                (run_cell(one.id), Cell(value=one.revision.sha if one.revision else "",
                                        text=sha_text(one.revision.sha if one.revision else "")),
                 Cell(value=one.revision.subject if one.revision else "",
                      text=clean(one.revision.subject if one.revision else "")[:80]), Cell(value=one.device.name))
                for one in runs
            ),
        ),
        Table(
            name="targets", caption="Devices that are described", columns=columns("target|Device"),
            rows=tuple(
                (Cell(value=target_of(name).title, link=Link(page="target", path={"target": name})),)
                for name in TARGETS if all(word.lower() in f"{name} {target_of(name).title}".lower() for word in words)
            )[:ROWS],
        ),
    )  # fmt: skip


PAGE = Page(name="search", path="/search", build=build, is_static=False)
