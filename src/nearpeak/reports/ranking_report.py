"""Report of a ranking: gaps by size, sums by kernel or team, suggestions, and series that cannot be ranked."""

from collections import Counter
from collections.abc import Callable, Sequence

from nearpeak.core.answers.gap import MEASURED, PROVEN, Gap, GapGroup, Ranking
from nearpeak.reports.document import Cell, Document, Link, Table, columns
from nearpeak.reports.figure_text import limiter
from nearpeak.units import counted, show

_MOST_REASONS = 8
"""Reasons that a terminal shows."""


def document_of(ranking: Ranking, groups: Sequence[GapGroup], by: str, top: int) -> Document:
    """Return the ranking as a document whose tables show `top` rows in a terminal."""
    blocks = [gaps_table(ranking.gaps, brief_count=top), groups_table(groups, by, brief_count=top),
              advice_table(ranking, brief_count=top)]  # fmt: skip
    return Document(blocks=[*blocks, *([missing_table(ranking)] if ranking.abstentions else [])], kicker="Ranking")


def gaps_table(gaps: Sequence[Gap], *, brief_count: int = 0, link: Callable[[str], Link] | None = None) -> Table:
    """Return the gaps.

    Args:
        brief_count: rows that a terminal shows.
        link: returns where a case leads, by its digest.
    """
    largest_s = max((gap.gain_s for gap in gaps), default=0.0) or 1.0
    rows = [
        (
            Cell(value=gap.timed.label, link=link(gap.timed.case.digest) if link else None),
            gap.timed.target,
            gap.timed.runner,
            gap.gain_s,
            gap.to_expected_s,
            gap.timed.measured_s,
            gap.timed.measured_s - gap.gain_s / gap.timed.call_count,
            gap.kind,
            _why(gap),
            *(() if link else (gap.gain_s / largest_s,)),
        )
        for gap in gaps
    ]
    bars = () if link else ("gap_bar|",)  # a page of the dashboard draws them above its table
    return Table(
        name="gaps", caption="Gaps, largest first", rows=rows, brief_count=brief_count,
        rest=f"{len(gaps) - brief_count} more",
        columns=columns("case|Case", ">device|Device", ">runner|Runner", "#gap_s|Gap", "#to_expected_s|To expected",
                        "#time_s|Measured", "#least_s|Least known", ">kind|Kind", ">why|Why", *bars),
        empty="no gap: no series has a bound or a faster rival",
    )  # fmt: skip


def _why(gap: Gap) -> str:
    row = gap.timed
    if gap.kind == PROVEN:
        further = "" if gap.theoretical_s is None else f", {show(gap.theoretical_s, 's')} to the bound"
        why = f"{row.best_known_by} reaches it{further}"
    else:
        why = f"bound by {limiter(row.limiter)}"
    calls = f"{row.call_count} calls" if row.call_count > 1 else ""
    return ", ".join(filter(None, (why, calls, row.module)))


def groups_table(groups: Sequence[GapGroup], by: str, *, brief_count: int = 0) -> Table:
    """Return the sums of gaps by what they have in common."""
    rows = [
        (Cell(value=group.name, text=group.name or "not stated"), group.gain_s, group.proven_s, group.case_count)
        for group in groups
    ]  # fmt: skip
    heads = (f"{by}|{by.capitalize()}", "#gap_s|Gap", "#proven_s|Proven", "#cases|Cases")
    return Table(name="groups", caption=f"Sums by {by}", columns=columns(*heads), rows=rows, brief_count=brief_count)


def advice_table(ranking: Ranking, *, brief_count: int = 0) -> Table:
    """Return what to try."""
    rows = [
        (advice.opportunity.title, advice.opportunity.kind, advice.opportunity.gain_s,
         "measured" if advice.basis == MEASURED else "at most", advice.opportunity.evidence)
         for advice in ranking.advice
    ]  # fmt: skip
    return Table(
        name="advice", caption="What to try; gains overlap and must not be added", rows=rows, brief_count=brief_count,
        columns=columns("~title|What", "kind|Kind", "#gain_s|Gain", "basis|Sure", ">evidence|Evidence"),
        empty="nothing that evidence supports",
    )  # fmt: skip


def missing_table(ranking: Ranking) -> Table:
    """Return the abstentions of a ranking with their reasons."""
    counts = Counter((abstention.kind, abstention.reason) for abstention in ranking.abstentions)
    return Table(
        name="missing", caption="Not ranked, as evidence is missing", brief_count=_MOST_REASONS,
        columns=columns("kind|Kind", "#cases|Cases", "~reason|Reason"),
        rows=[(kind, count, reason) for (kind, reason), count in counts.most_common()],
        rest=f"{counted(len(counts) - _MOST_REASONS, 'more reason')}; --json lists all",
        empty="everything could be ranked",
    )  # fmt: skip
