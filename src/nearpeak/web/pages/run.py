"""Dashboard page: one run, with its machine, software, commit and all its measurements."""

from collections.abc import Iterator, Mapping

from nearpeak.core.history.stored_run import Run
from nearpeak.errors import NotFoundError
from nearpeak.reports.document import Cell, Link, Table, columns
from nearpeak.store.rows.list_rows import MeasuredRow
from nearpeak.web.cell_text import clean, date, quantity, series_link
from nearpeak.web.page_view import View
from nearpeak.web.pages import Page
from nearpeak.web.query_arguments import Query
from nearpeak.web.site import Site

ROWS = 100


def build(site: Site, query: Query) -> View:
    """Return the page of a run."""
    number = query.id("run")
    runs = site.store.runs([number])
    if not runs:
        raise NotFoundError(f"run {number}: is not in the store")
    run = runs[0]
    limit, start = query.rows(ROWS)
    part = site.store.browsing.measurements(number, limit=limit, offset=start)
    tables = (
        _measured(part.rows),
        _facts(run),
        Table(
            name="software",
            caption="Software",
            columns=columns("component|Component", "version|Version"),
            rows=tuple(run.stack),
            empty="not stated",
        ),
    )
    return View(
        title=f"Run {number}", template="run", tables=tables,
        context={
            "run": run, "measured": tables[0], "facts": tables[1], "stack": tables[2], "total": part.total_count,
            "start": start, "limit": limit, "page": start // max(limit, 1), "date": date, "clean": clean,
            "compare": _compare(site, run),
        },
    )  # fmt: skip


def _compare(site: Site, run: Run) -> Link | None:
    """Return the link to the comparison with the commit before; none where nothing was measured before."""
    before = site.store.commits.before(run.revision.sha) if run.revision else ""
    return Link(page="compare", query={"a": before, "b": run.revision.sha}) if run.revision and before else None


def _measured(rows: tuple[MeasuredRow, ...]) -> Table:
    return Table(
        name="measurements", caption="Measurements",
        columns=columns("case|Case", "runner|Runner", "metric|Metric", "#launch|Launch", "#value|Median",
                        "#low|95 % from", "#high|to", "#samples|Samples", "outcome|Outcome", "#clock_hz|Clock",
                        "note|Note"),
        rows=tuple(map(_row, rows)), empty="it measured nothing",
    )  # fmt: skip


def _row(measured: MeasuredRow) -> tuple[object, ...]:
    failed = measured.value is None
    return (
        Cell(value=measured.label, link=series_link(measured.series)), measured.testbed, measured.metric,
        measured.launch,
        *(quantity(value, measured.unit) for value in (measured.value, measured.low_value, measured.high_value)),
        measured.sample_count,
        Cell(value=measured.outcome, kind="bad" if failed else ""),
        Cell(value=measured.clock_hz, text="–" if measured.clock_hz is None else f"{measured.clock_hz / 1e9:.3f} GHz"),
        Cell(value=measured.note, text=clean(measured.note)[:200]),
    )  # fmt: skip


def _facts(run: Run) -> Table:
    device = run.device
    rows = [
        ("device", device.name), ("vendor", device.vendor), ("architecture", device.architecture),
        ("unit", device.uuid), ("partition", device.partition), ("host", device.host), *device.settings,
        *((name, str(value)) for name, value in sorted(run.facts.items())),
    ]  # fmt: skip
    return Table(
        name="environment", caption="Where it ran", columns=columns("name|What", "value|Value"),
        rows=tuple((name, value) for name, value in rows if value),
    )  # fmt: skip


def _everywhere(site: Site) -> Iterator[Mapping[str, str]]:
    for run in site.store.browsing.runs((), limit=5000)[0]:
        yield {"run": str(run.id)}


PAGE = Page(name="run", path="/runs/{run}", build=build, everywhere=_everywhere)
