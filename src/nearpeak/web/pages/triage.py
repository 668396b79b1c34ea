"""Dashboard page: open alerts by cost, navigated by keyboard."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nearpeak.core.history.alert import CLOSED
from nearpeak.core.history.stored_run import Series
from nearpeak.history.alert_queue import SHOWN, SORTS, AlertFilter, Queue
from nearpeak.history.alert_triage import NOTHING, Weight, weights_of
from nearpeak.reports.document import Cell, Link, Table, columns
from nearpeak.store.rows.list_rows import AlertRow
from nearpeak.web.cell_text import age, percent, sha_text, show, time_cell
from nearpeak.web.history_chart import Chart
from nearpeak.web.page_view import View
from nearpeak.web.pages import Page
from nearpeak.web.query_arguments import Query
from nearpeak.web.series_charts import small_charts
from nearpeak.web.site import Site

ROWS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An alert of the queue."""

    alert: AlertRow
    """The alert."""
    weight: Weight
    """Weight of the alert in the queue."""
    series: Series | None
    """Its first series."""
    chart: Chart | None
    """History of that series."""
    is_snoozed: bool
    """Whether the alert is snoozed now."""
    blamed: tuple[tuple[str, str], ...] = ()
    """Likely causes: axis and value."""
    commit_count: int | None = None
    """Commits since the first bad one; none where its place in the history is not known."""

    @property
    def worst(self) -> str:
        """Its largest change, in words."""
        return "" if self.weight.worst_ratio is None else percent(self.weight.worst_ratio)

    @property
    def gap(self) -> str:
        """Cost as text; empty where it is unknown."""
        return show(self.weight.gap_s, "s") if self.weight.gap_s else ""

    @property
    def is_closed(self) -> bool:
        """Whether nothing is left to do."""
        return self.alert.status in CLOSED


def build(site: Site, query: Query) -> View:
    """Return the queue."""
    shown, sort = query.choice("shown", SHOWN), query.choice("sort", SORTS)
    snoozed = query.choice("snoozed", ("hidden", "shown"))
    at_ns = None if snoozed == "shown" else site.now_ns
    wanted = AlertFilter(shown=shown, sort=sort, words=query.words(), owner=query.text("owner"), at_ns=at_ns)
    alerts = queue_of(site).wanted(wanted)
    limit, start = query.rows(ROWS)
    part = site.store.browsing.alerts(alerts[start : start + limit])
    known = weights_of(site.store.browsing.members([alert.id for alert in part]))
    waiting = _waiting(site, () if query.is_whole and not site.setting.is_static else part, known)
    table = _table(part, known)
    return View(
        title="Triage", template="triage", tables=(table,),
        context={
            "waiting": waiting, "table": table, "total": len(alerts), "start": start, "rows": ROWS,
            "shown": shown, "sort": sort, "snoozed": snoozed, "sorts": SORTS, "query": query.text("q"),
            "owner": query.text("owner"), "age": lambda at_ns: age(at_ns, site.now_ns), "sha": sha_text,
            "series_count": site.store.browsing.series((), limit=1).total_count,
        },
    )  # fmt: skip


def queue_of(site: Site) -> Queue:
    """Return the queue of alerts.

    What happens to an alert shows at once; the order follows newer values and effects at most OLDEST_S later.
    """
    queue: Queue = site.remembered("queue", lambda: Queue(site.store), site.store.browsing.mark()[:2], is_lazy=True)
    return queue


def _waiting(site: Site, alerts: Sequence[AlertRow], known: Mapping[int, Weight]) -> list[Waiting]:
    first = {item.id: known.get(item.id, NOTHING).series for item in alerts}
    series = {item.id: item for item in site.store.browsing.series_by_id([item for item in first.values() if item])}
    blamed = site.store.browsing.suspects([item.id for item in alerts])
    ages = site.store.commits.ages([item.rev_hi for item in alerts])
    charts = {item.name: item for item in small_charts(site, series.values())}
    return [
        Waiting(
            alert=item, weight=known.get(item.id, NOTHING), series=series.get(first[item.id] or 0),
            chart=charts.get(f"series{first[item.id]}"),
            is_snoozed=site.now_ns is not None and (item.snoozed_until_ns or 0) > site.now_ns,
            blamed=blamed.get(item.id, ())[:3], commit_count=ages.get(item.rev_hi),
        )
        for item in alerts
    ]  # fmt: skip


def _table(alerts: Sequence[AlertRow], known: Mapping[int, Weight]) -> Table:
    return Table(
        name="alerts", caption="Alerts",
        columns=columns("alert|Alert", "title|What", "state|State", "assignee|Who", "#worst_ratio|Largest change",
                        "#gap_s|Longer per call", "#changes|Series", "good|Last good", "bad|First bad",
                        "opened_ns|Opened"),
        rows=tuple(_row(alert, known.get(alert.id, NOTHING)) for alert in alerts), empty="no alerts",
    )  # fmt: skip


def _row(alert: AlertRow, weight: Weight) -> tuple[object, ...]:
    link = Link(page="alert", path={"alert": str(alert.id)})
    return (
        Cell(value=alert.id, link=link), alert.title, alert.status, alert.assignee,
        Cell(value=weight.worst_ratio, text="–" if weight.worst_ratio is None else percent(weight.worst_ratio)),
        Cell(value=weight.gap_s, text=show(weight.gap_s, "s") if weight.gap_s else "–"), weight.change_count,
        Cell(value=alert.rev_lo, text=sha_text(alert.rev_lo)), Cell(value=alert.rev_hi, text=sha_text(alert.rev_hi)),
        time_cell(alert.created_ns),
    )  # fmt: skip


PAGE = Page(name="triage", path="/", build=build, title="Triage", rank=1)
