"""Opportunities: gaps by size, their sums, what to try, and what cannot be said."""

from collections import Counter
from collections.abc import Sequence

from nearpeak.core.answers.gap import MEASURED, PROVEN, Gap, GapGroup, Ranking
from nearpeak.errors import NotFoundError
from nearpeak.history.opportunity_ranking import ranking_of
from nearpeak.judgement.opportunities import KEYS, grouped
from nearpeak.reports.figure_text import limiter
from nearpeak.web.cell_text import case_link, clean, quantity, show
from nearpeak.web.page_view import Cell, Table, View, columns
from nearpeak.web.pages import Page
from nearpeak.web.query_arguments import Asked
from nearpeak.web.site import Site

ROWS = 100
MOST_SERIES = 300
"""Newest series that are ranked for one page; a choice of device or words narrows them."""


def build(site: Site, asked: Asked) -> View:
    """Return the ranking."""
    by = asked.choice("by", ("kernel", *(key for key in KEYS if key != "kernel")))
    device, words = asked.text("device"), asked.words()
    where = {"metric": "time"} | ({"device": device} if device else {})
    part = site.store.browsing.series(words, where, limit=MOST_SERIES)
    mark = (site.store.browsing.mark()[0], device, words)
    ranking = site.remembered(f"ranking {device} {words}", lambda: _ranking(site, part.rows), mark,
                              is_lazy=True)  # fmt: skip
    gaps = ranking.gaps if asked.is_whole else ranking.gaps[:ROWS]
    tables = (_gaps(gaps), _groups(grouped(ranking.gaps, by), by), _advice(ranking), _missing(ranking))
    largest = max((one.gain_s for one in gaps), default=0.0)
    return View(
        title="Opportunities", template="opportunities", tables=tables,
        context={
            "tables": tables, "by": by, "keys": KEYS, "device": device, "query": asked.text("q"),
            "devices": site.remembered("choices", site.store.browsing.choices)["device"],
            "bars": [(clean(one.timed.label), one.gain_s / largest if largest else 0.0, show(one.gain_s, "s"),
                      clean(f"{one.timed.runner}, {one.timed.target}")) for one in gaps[:12]],
            "ranked": len(part.rows), "total": part.total_count,
        },
    )  # fmt: skip


def _ranking(site: Site, series: Sequence[object]) -> Ranking:
    try:
        return ranking_of(site.store, series)  # type: ignore[arg-type]
    except NotFoundError:
        return Ranking(gaps=(), advice=(), abstentions=())


def _gaps(gaps: Sequence[Gap]) -> Table:
    return Table(
        name="gaps", caption="Gaps, largest first",
        columns=columns("case|Case", "device|Device", "runner|Runner", "#gap_s|Gap", "#time_s|Measured",
                        "#least_s|Least known to be possible", "kind|Kind", "why|Why"),
        rows=tuple(_gap(one) for one in gaps), empty="no gap: no series has a bound or a faster rival",
    )  # fmt: skip


def _gap(one: Gap) -> tuple[Cell, ...]:
    row = one.timed
    why = f"{row.best_known_by} reaches it" if one.kind == PROVEN else f"bound by {limiter(row.limiter)}"
    return (
        Cell(value=row.label, link=case_link(row.case.digest)), Cell(value=row.target), Cell(value=row.runner),
        quantity(one.gain_s, "s"), quantity(row.measured_s, "s"),
        quantity(row.measured_s - one.gain_s / row.call_count, "s"), Cell(value=one.kind), Cell(value=why),
    )  # fmt: skip


def _groups(groups: Sequence[GapGroup], by: str) -> Table:
    return Table(
        name="groups", caption=f"Sums by {by}",
        columns=columns(f"{by}|{by.capitalize()}", "#gap_s|Gap", "#proven_s|Proven", "#cases|Cases"),
        rows=tuple(
            (Cell(value=one.name, text=clean(one.name) or "not stated"), quantity(one.gain_s, "s"),
             quantity(one.proven_s, "s"), Cell(value=one.case_count)) for one in groups
        ),
    )  # fmt: skip


def _advice(ranking: Ranking) -> Table:
    return Table(
        name="advice", caption="What to try; gains overlap and must not be added",
        columns=columns("title|What", "kind|Kind", "#gain_s|Gain", "basis|Sure", "evidence|Evidence"),
        rows=tuple(
            (Cell(value=one.opportunity.title), Cell(value=one.opportunity.kind), quantity(one.opportunity.gain_s, "s"),
             Cell(value="measured" if one.basis == MEASURED else "at most"), Cell(value=one.opportunity.evidence))
            for one in ranking.advice[:ROWS]
        ),
        empty="nothing that evidence supports",
    )  # fmt: skip


def _missing(ranking: Ranking) -> Table:
    counts = Counter((one.kind, one.reason) for one in ranking.abstentions)
    return Table(
        name="missing", caption="Not said, as evidence is missing",
        columns=columns("kind|Kind", "#cases|Cases", "reason|Reason"),
        rows=tuple((Cell(value=kind), Cell(value=count), Cell(value=reason))
                   for (kind, reason), count in counts.most_common()),
        empty="everything could be said",
    )  # fmt: skip


PAGE = Page(name="opportunities", path="/opportunities", build=build, title="Opportunities", rank=6, is_computed=True)
