"""Triage: alerts that wait, the costliest first, gone through by keys."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nearpeak.core.alert import CLOSED, STATUSES
from nearpeak.core.history import Series
from nearpeak.history.triage import NOTHING, Weight, ordered, weights_of
from nearpeak.store.listed import AlertKey, AlertRow
from nearpeak.web._asked import Asked
from nearpeak.web._chart import Chart
from nearpeak.web._histories import small_charts
from nearpeak.web._site import Site
from nearpeak.web._view import Cell, Link, Table, View, columns
from nearpeak.web._words import age, percent, sha_text, show, time_cell
from nearpeak.web.pages import Page

ROWS = 24
SORTS = ("gap", "age", "owner")


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
    shown, sort = asked.choice("shown", ("open", "closed", "all", *STATUSES)), asked.choice("sort", SORTS)
    snoozed = asked.choice("snoozed", ("hidden", "shown"))
    found, known = alerts_in_order(
        site, shown, sort, asked.words(), asked.text("owner"), with_snoozed=snoozed == "shown"
    )
    limit, start = asked.rows(ROWS)
    part = site.store.browsing.alerts(found[start : start + limit])
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


def weights(site: Site, alerts: Sequence[int]) -> Mapping[int, Weight]:
    """Return the weight of each of some alerts.

    Weighing all takes a look at every change, which is remembered; alerts that came since are weighed at once.
    """
    found: dict[int, Weight] = site.remembered(
        "weights", lambda: weights_of(site.store.browsing.members()), site.store.browsing.mark(), is_lazy=True
    )
    missing = [one for one in alerts if one not in found]
    return found | weights_of(site.store.browsing.members(missing)) if missing else found


def alerts_in_order(
    site: Site, shown: str, sort: str, words: Sequence[str] = (), owner: str = "", *, with_snoozed: bool = True
) -> tuple[list[int], Mapping[int, Weight]]:
    """Return the alerts of the queue in order, and their weights.

    The order without words is remembered until something happens to an alert: thousands of them are ordered for it.
    """
    if words or owner:
        return _in_order(site, shown, sort, words, owner, with_snoozed)
    found: tuple[list[int], Mapping[int, Weight]] = site.remembered(
        f"queue {shown} {sort} {with_snoozed}", lambda: _in_order(site, shown, sort, (), "", with_snoozed),
        site.store.browsing.mark()[2:],
    )  # fmt: skip
    return found


def _in_order(
    site: Site, shown: str, sort: str, words: Sequence[str], owner: str, with_snoozed: bool
) -> tuple[list[int], Mapping[int, Weight]]:
    found: Sequence[AlertKey] = site.store.browsing.alert_keys(shown=shown, words=words)
    known = weights(site, [one.id for one in found])
    if owner:
        found = [one for one in found if owner in (one.assignee, *known.get(one.id, NOTHING).owners)]
    if not with_snoozed and site.now_ns is not None:
        found = [one for one in found if (one.snoozed_until_ns or 0) <= site.now_ns]
    return [one.id for one in ordered(found, known, sort)], known


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


def _row(one: AlertRow, weight: Weight) -> tuple[Cell, ...]:
    link = Link(page="alert", path={"alert": str(one.id)})
    return (
        Cell(value=one.id, link=link), Cell(value=one.title), Cell(value=one.status), Cell(value=one.assignee),
        Cell(value=weight.worst_ratio, text="–" if weight.worst_ratio is None else percent(weight.worst_ratio)),
        Cell(value=weight.gap_s, text=show(weight.gap_s, "s") if weight.gap_s else "–"),
        Cell(value=weight.change_count), Cell(value=one.rev_lo, text=sha_text(one.rev_lo)),
        Cell(value=one.rev_hi, text=sha_text(one.rev_hi)), time_cell(one.created_ns),
    )  # fmt: skip


PAGE = Page(name="triage", path="/", build=build, title="Triage", rank=1)
