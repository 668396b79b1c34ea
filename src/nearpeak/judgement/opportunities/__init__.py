"""Optimisation opportunities: gaps between measured and least times, and one rule per module that suggests a remedy."""

from collections.abc import Callable, Sequence
from typing import Protocol

from nearpeak.base.registry import Registry
from nearpeak.core.answers.gap import PROVEN, THEORETICAL, Abstention, Advice, Gap, GapGroup, Ranking, TimedCase
from nearpeak.errors import SpecError
from nearpeak.units import show

SMALLEST_GAIN_RATIO = 0.01
"""Advice that gains less than this part of all measured time is left out."""
MOST = 20
"""Number of gaps, largest first, to which rules are applied."""


class Rule(Protocol):
    """A rule: for each gap, or for several together, what to try or why there is no verdict."""

    def __call__(self, gaps: Sequence[Gap]) -> tuple[Sequence[Advice], Sequence[Abstention]]:
        """Return advice, and abstentions with their reasons."""


RULES: Registry[Rule] = Registry.of_modules(
    "look", kind="rule", package=__name__, file=__file__, group="nearpeak.opportunities"
)
"""All rules by name; adding one is adding a file with a `look(gaps)`."""

KEYS: dict[str, Callable[[TimedCase], str]] = {
    "kernel": lambda row: row.case.op,
    "module": lambda row: row.module,
    "model": lambda row: row.model,
    "team": lambda row: row.team,
}
"""By what gaps can be grouped."""


def ranked(rows: Sequence[TimedCase]) -> Ranking:
    """Return the gaps of `rows`, largest first, with what to try about them.

    A row whose time is below its bound has no gap: a rule, a figure or a timer is wrong, and the abstention states it.
    """
    results = [gap_of(row) for row in rows]
    gaps = sorted(
        (item for item in results if isinstance(item, Gap)), key=lambda item: (-item.gain_s, item.timed.label)
    )
    advice: list[Advice] = []
    abstentions = [item for item in results if isinstance(item, Abstention)]
    for name in RULES:
        more, missing = RULES[name](gaps[:MOST])
        advice += more
        abstentions += missing
    least_s = SMALLEST_GAIN_RATIO * sum(item.timed.measured_s * item.timed.call_count for item in gaps)
    worth = [item for item in advice if item.opportunity.gain_s > least_s]
    worth.sort(key=lambda item: (-item.opportunity.gain_s, item.opportunity.title))
    return Ranking(gaps=tuple(gaps), advice=tuple(worth), abstentions=tuple(abstentions))


def gap_of(row: TimedCase) -> Gap | Abstention:
    """Return calls × (measured − max(bound, best known)) of `row`, or why there is none.

    Best known is the time of another runner where that is faster; where none is, only the bound is left.

    Raises:
        SpecError: a time is not positive, or there are no calls.
    """
    if not row.measured_s > 0 or row.call_count < 1:
        raise SpecError(f"{row.label}: {row.call_count} calls of {row.measured_s!r} s; both must be positive")
    bound_s, best_s = row.bound_s, row.best_known_s
    if bound_s is not None and row.measured_s < bound_s:
        reason = f"measured {show(row.measured_s, 's')}, below its bound of {show(bound_s, 's')}; find out why first"
        return Abstention(kind="gap", where=row.label, reason=reason)
    faster = best_s is not None and best_s < row.measured_s
    if bound_s is None and not faster:
        reason = (
            f"no bound on {row.target or 'an unnamed device'} and no faster runner; measure another, or a known device"
        )
        return Abstention(kind="gap", where=row.label, reason=reason)
    least_s = max(time_s for time_s in (bound_s, best_s if faster else None) if time_s is not None)
    gain_s = row.call_count * (row.measured_s - least_s)
    return Gap(
        timed=row, kind=PROVEN if faster else THEORETICAL, gain_s=gain_s, proven_s=gain_s if faster else 0.0,
        theoretical_s=None if bound_s is None else row.call_count * (row.measured_s - bound_s),
    )  # fmt: skip


def grouped(gaps: Sequence[Gap], by: str) -> tuple[GapGroup, ...]:
    """Return the gaps summed by kernel, module, model or team, largest first.

    Raises:
        SpecError: `by` is none of these.
    """
    if by not in KEYS:
        raise SpecError(f"rank: cannot group by {by!r}; choose {', '.join(KEYS)}")
    groups: dict[str, list[Gap]] = {}
    for gap in gaps:
        groups.setdefault(KEYS[by](gap.timed), []).append(gap)
    sums = [
        GapGroup(
            name=name, case_count=len(part), gain_s=sum(gap.gain_s for gap in part),
            proven_s=sum(gap.proven_s for gap in part),
            measured_s=sum(gap.timed.measured_s * gap.timed.call_count for gap in part),
        )
        for name, part in groups.items()
    ]  # fmt: skip
    return tuple(sorted(sums, key=lambda gap: (-gap.gain_s, gap.name)))
