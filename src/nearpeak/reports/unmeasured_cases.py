"""Cases that were to be run and gave no time, in words: a report without them would look as if all had been well."""

from collections.abc import Iterator

from nearpeak.core.answers.analysis import Analysis, TargetAnalysis
from nearpeak.reports.figure_text import clean, shortened
from nearpeak.units import counted

MOST_COUNT = 5
"""Cases that are named."""


def lines_of(analysis: Analysis, target: TargetAnalysis) -> Iterator[str]:
    """Yield how many cases gave no time, then each of the first with the reason; nothing where all gave one."""
    lacking = [(row.label, time.unmeasured) for row, time in zip(analysis.rows, target.times, strict=True)
               if time.unmeasured]  # fmt: skip
    if not lacking:
        return
    yield f"{len(lacking)} of {counted(len(target.times), 'case')} without a measured time:"
    for label, why in lacking[:MOST_COUNT]:
        yield f"{clean(label)}: {shortened(why, 200)}"
    if len(lacking) > MOST_COUNT:
        yield f"and {len(lacking) - MOST_COUNT} more"
