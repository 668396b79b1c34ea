"""Plan of paired rounds within a time budget: looks fixed in advance, and the change that they can show."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from nearpeak.core.runs.paired_rounds import Round
from nearpeak.judgement.paired_verdict import ALPHA_RATIO, LOOKS, POWER_RATIO, rounds_needed, student_quantile
from nearpeak.units import counted

PLANNED_AFTER = 2
"""Rounds after which the plan is made: the first also validates, the second costs what all others do."""

MOST_ROUNDS = 40
"""Rounds after which more of them hardly show smaller changes."""
MOST_OVERRUN = 1.5
"""Time over the budget at which rounds end without a verdict: they came to take longer than the plan took them for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """Rounds that a budget is enough for."""

    looks: tuple[int, ...]
    """Rounds after which a verdict may be given, at most three; empty where the first of them does not fit."""
    text: str
    """What the budget can show, in one sentence."""


def planned(
    rounds: Sequence[Round], spent_s: float, round_s: float, budget_s: float, tolerance_ratio: float
) -> RoundPlan:
    """Return the looks that fit into a budget, by what the rounds so far took; their ratios play no part in it.

    Args:
        rounds: rounds so far, at least two, whose spread says roughly which change the budget can show.
        spent_s: time that they took.
        round_s: time of the last one.
        budget_s: time for all.

    >>> few = [Round(four_log_ratio=(x,)) for x in (0.01, -0.01)]
    >>> [planned(few, 10.0, 4.0, budget_s, 0.02).looks for budget_s in (20.0, 22.0, 38.0, 60.0, 600.0)]
    [(), (5,), (5, 9), (5, 10, 14), (10, 20, 40)]
    >>> planned(few, 10.0, 4.0, 20.0, 0.02).text
    '4 rounds fit into 20 s, too few for a verdict: 5 take about 22 s (--budget)'
    """
    fitting = len(rounds) + math.floor(max(0.0, budget_s - spent_s) / max(round_s, 1e-9))
    count = min(MOST_ROUNDS, fitting)
    if count < LOOKS[0]:
        least_s = spent_s + (LOOKS[0] - len(rounds)) * round_s
        text = (
            f"{counted(count, 'round')} fit into {budget_s:.3g} s, too few for a verdict: "
            f"{LOOKS[0]} take about {math.ceil(least_s)} s (--budget)"
        )
        return RoundPlan(looks=(), text=text)
    looks = (*[look for look in LOOKS if look < count][-2:], count)  # never more than three
    spread = statistics.stdev(statistics.median(pair.four_log_ratio) for pair in rounds)
    reach = sum(student_quantile(share, count - 1) for share in (1 - ALPHA_RATIO / 2, POWER_RATIO))
    seen = max(tolerance_ratio, math.expm1(min(reach * spread / math.sqrt(count), 50.0)))
    needed = rounds_needed(rounds, tolerance_ratio)
    more = f"; {tolerance_ratio:.1%} would need about {needed} rounds" if needed > count else ""
    return RoundPlan(
        looks=looks, text=f"{count} rounds fit into {budget_s:.3g} s and show changes from about {seen:.1%}{more}"
    )
