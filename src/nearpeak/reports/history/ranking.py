"""A ranking for the terminal: gaps by size, their sums by kernel or team, what to try, what cannot be said."""

from collections import Counter
from collections.abc import Iterator, Sequence

from nearpeak.core.answers.gap import MEASURED, PROVEN, Gap, GapGroup, Ranking
from nearpeak.reports.figure_text import clean, hung, shortened, told_apart
from nearpeak.units import counted, show

WIDTH = 80
BAR = 14


def ranking_text(ranking: Ranking, groups: Sequence[GapGroup], by: str, top: int) -> str:
    """Return the ranking in at most 80 columns."""
    lines = [*_gaps(ranking.gaps, top), "", *_groups(groups, by, top), "", *_advice(ranking, top), *_missing(ranking)]
    return "\n".join(hung(lines, WIDTH)) + "\n"


def _gaps(gaps: Sequence[Gap], top: int) -> Iterator[str]:
    yield f"{'gap':>9}  {'':<{BAR}} {'case':<30} {'measured':>9} {'least':>9}"
    largest = max((one.gain_s for one in gaps), default=0.0)
    names = told_apart([one.timed.label for one in gaps[:top]], 30)
    for name, one in zip(names, gaps, strict=False):
        row = one.timed
        bar = "█" * round(BAR * one.gain_s / largest) if largest else ""
        least_s = row.measured_s - one.gain_s / row.call_count
        measured, least = show(row.measured_s, "s"), show(least_s, "s")
        yield f"{show(one.gain_s, 's'):>9}  {bar:<{BAR}} {name:<30} {measured:>9} {least:>9}"
        if one.kind == PROVEN:
            further = "" if one.theoretical_s is None else f"; {show(one.theoretical_s, 's')} to the bound"
            why = f"proven: {clean(row.best_known_by)} reaches it{further}"
        else:
            why = f"theoretical: bound by {clean(row.limiter)}"
        calls = f", {row.call_count} calls" if row.call_count > 1 else ""
        where = f", {shortened(row.module, 20)}" if row.module else ""
        yield f"{'':>9}  {shortened(f'{row.runner}, {row.target}{calls}{where}; {why}', WIDTH - 11)}"
    if len(gaps) > top:
        yield f"{'':>9}  {len(gaps) - top} more"


def _groups(groups: Sequence[GapGroup], by: str, top: int) -> Iterator[str]:
    yield f"{'gap':>9}  {'proven':>9}  by {by}"
    for one in groups[:top]:
        name = shortened(one.name, 40) or "not stated"
        yield f"{show(one.gain_s, 's'):>9}  {show(one.proven_s, 's'):>9}  {name} ({counted(one.case_count, 'case')})"


def _advice(ranking: Ranking, top: int) -> Iterator[str]:
    yield "what to try; gains overlap and must not be added"
    for one in ranking.advice[:top]:
        found = one.opportunity
        sure = "measured" if one.basis == MEASURED else "at most"
        yield f"{show(found.gain_s, 's'):>9}  {clean(found.title)} ({clean(found.kind)}, {sure})"
        yield f"           {clean(found.evidence)}"
    if not ranking.advice:
        yield "           nothing that evidence supports"


def _missing(ranking: Ranking) -> Iterator[str]:
    if not ranking.abstentions:
        return
    yield ""
    yield "not said, as evidence is missing"
    counts = Counter((one.kind, one.reason) for one in ranking.abstentions)
    for (kind, reason), count in counts.most_common(8):
        yield f"  {clean(kind)} ({count}): {clean(reason)}"
    if len(counts) > 8:
        yield f"  {len(counts) - 8} more reasons; --json lists all"
