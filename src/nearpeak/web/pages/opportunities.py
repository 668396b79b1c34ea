"""Dashboard page: optimization gaps by size, their sums, suggestions, and series that cannot be ranked."""

from collections.abc import Sequence
from dataclasses import replace

from nearpeak.core.answers.gap import Ranking
from nearpeak.errors import NotFoundError
from nearpeak.history.opportunity_ranking import ranking_of
from nearpeak.judgement.opportunities import KEYS, grouped
from nearpeak.reports.ranking_report import advice_table, gaps_table, groups_table, missing_table
from nearpeak.web.cell_text import case_link, clean, show
from nearpeak.web.page_view import View
from nearpeak.web.pages import Page
from nearpeak.web.query_arguments import Query
from nearpeak.web.site import Site

ROWS = 100
MOST_SERIES = 300
"""Newest series that are ranked for one page; a choice of device or words narrows them."""


def build(site: Site, query: Query) -> View:
    """Return the ranking."""
    by = query.choice("by", ("kernel", *(key for key in KEYS if key != "kernel")))
    device, words = query.text("device"), query.words()
    where = {"metric": "time"} | ({"device": device} if device else {})
    part = site.store.browsing.series(words, where, limit=MOST_SERIES)
    mark = (site.store.browsing.mark()[0], device, words)
    ranking = site.remembered(f"ranking {device} {words}", lambda: _ranking(site, part.rows), mark,
                              is_lazy=True)  # fmt: skip
    gaps = ranking.gaps if query.is_whole else ranking.gaps[:ROWS]
    tables = (
        gaps_table(gaps, link=case_link), groups_table(grouped(ranking.gaps, by), by),
        advice_table(replace(ranking, advice=ranking.advice[:ROWS])), missing_table(ranking),
    )  # fmt: skip
    largest = max((gap.gain_s for gap in gaps), default=0.0)
    return View(
        title="Opportunities", template="opportunities", tables=tables,
        context={
            "tables": tables, "by": by, "keys": KEYS, "device": device, "query": query.text("q"),
            "devices": site.remembered("choices", site.store.browsing.choices)["device"],
            "bars": [(clean(gap.timed.label), gap.gain_s / largest if largest else 0.0, show(gap.gain_s, "s"),
                      clean(f"{gap.timed.runner}, {gap.timed.target}")) for gap in gaps[:12]],
            "ranked": len(part.rows), "total": part.total_count,
        },
    )  # fmt: skip


def _ranking(site: Site, series: Sequence[object]) -> Ranking:
    try:
        return ranking_of(site.store, series)  # type: ignore[arg-type]
    except NotFoundError:
        return Ranking(gaps=(), advice=(), abstentions=())


PAGE = Page(name="opportunities", path="/opportunities", build=build, title="Opportunities", rank=6, is_computed=True)
