"""Dashboard page: open alerts by cost, navigated by keyboard."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nearpeak.core.history.alert import CLOSED
from nearpeak.core.history.stored_run import Series
from nearpeak.history.alert_queue import SHOWN, SORTS, Queue, Wanted
from nearpeak.history.alert_triage import NOTHING, Weight, weights_of
from nearpeak.reports.document import Cell, Link, Table, columns
from nearpeak.store.rows.list_rows import AlertRow
from nearpeak.web.cell_text import age, percent, sha_text, show, time_cell
from nearpeak.web.history_chart import Chart
from nearpeak.web.page_view import View
from nearpeak.web.pages import Page
from nearpeak.web.query_arguments import Asked
from nearpeak.web.series_charts import small_charts
from nearpeak.web.site import Site

ROWS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An alert of the queue."""

    alert: AlertRow
    """The alert."""
    weight: Weight
    """How much it matters."""
    series: Series | None
    """Its first series."""
    chart: Chart | None
    """History of that series."""
    is_snoozed: bool
    """Whether nobody is to be bothered now."""
    blamed: tuple[tuple[str, str], ...] = ()
    """What may be behind it: axis and what it is."""

    @property
    def worst(self) -> str:
        """Its largest change, in words."""
        return "" if self.weight.worst_ratio is None else percent(self.weight.worst_ratio)

    @property
    def gap(self) -> str:
        """What it costs, in words; empty where that is not known."""
        return show(self.weight.gap_s, "s") if self.weight.gap_s else ""

    @property
    def is_closed(self) -> bool:
        """Whether nothing is left to do."""
        return self.alert.status in CLOSED


def build(site: Site, asked: Asked) -> View:
    """Return the queue."""
    shown, sort = asked.choice("shown", SHOWN), asked.choice("sort", SORTS)
    snoozed = asked.choice("snoozed", ("hidden", "shown"))
    at_ns = None if snoozed == "shown" else site.now_ns
    wanted = Wanted(shown=shown, sort=sort, words=asked.words(), owner=asked.text("owner"), at_ns=at_ns)
    found = queue_of(site).wanted(wanted)
    limit, start = asked.rows(ROWS)
    part = site.store.browsing.alerts(found[start : start + limit])
    known = weights_of(site.store.browsing.members([one.id for one in part]))
    waiting = _waiting(site, () if asked.is_whole and not site.setting.is_static else part, known)
    table = _table(part, known)
    return View(
        title="Triage", template="triage", tables=(table,),
        context={
            "waiting": waiting, "table": table, "total": len(found), "start": start, "rows": ROWS,
            "shown": shown, "sort": sort, "snoozed": snoozed, "sorts": SORTS, "query": asked.text("q"),
            "owner": asked.text("owner"), "age": lambda at_ns: age(at_ns, site.now_ns), "sha": sha_text,
            "series_count": site.store.browsing.series((), limit=1).total_count,
        },
    )  # fmt: skip


def queue_of(site: Site) -> Queue:
    """Return the queue of alerts.

    What happens to an alert shows at once; the order follows newer values and effects at most OLDEST_S later.
    """
    found: Queue = site.remembered("queue", lambda: Queue(site.store), site.store.browsing.mark()[:2], is_lazy=True)
    return found


def _snoozed(site: Site, one: AlertRow) -> bool:
    return site.now_ns is not None and (one.snoozed_until_ns or 0) > site.now_ns


def _waiting(site: Site, alerts: Sequence[AlertRow], known: Mapping[int, Weight]) -> list[Waiting]:
    first = {one.id: known.get(one.id, NOTHING).series for one in alerts}
    series = {one.id: one for one in site.store.browsing.series_by_id([one for one in first.values() if one])}
    blamed = site.store.browsing.blamed([one.id for one in alerts])
    charts = {one.name: one for one in small_charts(site, series.values())}
    return [
        Waiting(
            alert=one, weight=known.get(one.id, NOTHING), series=series.get(first[one.id] or 0),
            chart=charts.get(f"series{first[one.id]}"), is_snoozed=_snoozed(site, one),
            blamed=blamed.get(one.id, ())[:3],
        )
        for one in alerts
    ]  # fmt: skip


def _table(alerts: Sequence[AlertRow], known: Mapping[int, Weight]) -> Table:
    return Table(
        name="alerts", caption="Alerts",
        columns=columns("alert|Alert", "title|What", "state|State", "assignee|Who", "#worst_ratio|Largest change",
                        "#gap_s|Longer per call", "#changes|Series", "good|Last good", "bad|First bad",
                        "opened_ns|Opened"),
        rows=tuple(_row(one, known.get(one.id, NOTHING)) for one in alerts), empty="no alerts",
    )  # fmt: skip


def _row(one: AlertRow, weight: Weight) -> tuple[object, ...]:
    link = Link(page="alert", path={"alert": str(one.id)})
    return (
        Cell(value=one.id, link=link), one.title, one.status, one.assignee,
        Cell(value=weight.worst_ratio, text="–" if weight.worst_ratio is None else percent(weight.worst_ratio)),
        Cell(value=weight.gap_s, text=show(weight.gap_s, "s") if weight.gap_s else "–"), weight.change_count,
        Cell(value=one.rev_lo, text=sha_text(one.rev_lo)), Cell(value=one.rev_hi, text=sha_text(one.rev_hi)),
        time_cell(one.created_ns),
    )  # fmt: skip


PAGE = Page(name="triage", path="/", build=build, title="Triage", rank=1)
