"""Verdicts of `compare` beside two busy loops: pairs of the same work, and pairs with 5 % more planted."""

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks._figures import ROOT, Figure
from benchmarks.load import busy
from nearpeak.core.case import Case
from nearpeak.core.measurement import Timing
from nearpeak.measure.turns import Arm
from nearpeak.measuring import compare
from nearpeak.ops import case

FIGURES = ("compare_false_verdicts", "compare_planted_found", "compare_inconclusive", "compare_longest_pair")
PAIRS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Verdicts of some pairs."""

    verdicts: tuple[str, ...]
    """One for each pair."""
    longest_s: float
    """Wall time of the pair that took longest."""


def measure() -> Iterator[Figure]:
    """Yield false verdicts, the share of planted slowdowns found, inconclusive ones and the longest pair."""
    same, slower = pairs("base", PAIRS), pairs("planted", PAIRS)
    false = sum(one in ("regression", "improvement") for one in same.verdicts)
    yield Figure(
        name="compare_false_verdicts", value=false, unit=f"of {PAIRS} pairs", bar="<= 3 of 300 A/A pairs",
        passed=false * 300 <= 3 * PAIRS,
    )  # fmt: skip
    found = slower.verdicts.count("regression") / PAIRS
    yield Figure(name="compare_planted_found", value=100 * found, unit="%", bar=">= 95 %", passed=found >= 0.95)
    open_ratio = (same.verdicts + slower.verdicts).count("inconclusive") / (2 * PAIRS)
    yield Figure(name="compare_inconclusive", value=100 * open_ratio, unit="%", bar="<= 20 %", passed=open_ratio <= 0.2)
    longest_s = max(same.longest_s, slower.longest_s)
    yield Figure(name="compare_longest_pair", value=longest_s, unit="s", bar="<= 60 s a pair", passed=longest_s <= 60)


def pairs(candidate: str, count: int) -> Seen:
    """Return the verdicts on `count` pairs of the base work against the candidate's, beside two busy loops."""
    verdicts, longest_s = [], 0.0
    with busy():
        for number in range(count):
            begun_s = time.monotonic()
            verdicts.append(verdict(candidate))
            longest_s = max(longest_s, time.monotonic() - begun_s)
            print(f"  {candidate} {number + 1}/{count}: {verdicts[-1]}, longest {longest_s:.1f} s", flush=True)
    return Seen(verdicts=tuple(verdicts), longest_s=longest_s)


def verdict(candidate: str) -> str:
    """Return the verdict on one pair; what could not run says how it ended."""
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    arms = (Arm(runner=f"callable:benchmarks._planted:{name}") for name in ("base", candidate))
    found = compare(CASE, *arms, Timing(cache="hot", validate=False), budget_s=BUDGET_S)
    return found.judgement.verdict if found.judgement else found.outcome


CASE: Case = case("softmax", rows=64, columns=128, dtype="fp32")
BUDGET_S = 50.0
"""Budget of a pair; the round that is under way when it ends is still finished."""
