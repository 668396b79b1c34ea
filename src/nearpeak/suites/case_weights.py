"""Weights of a suite's cases in calls, FLOP or time, per workload and over all workloads."""

from collections.abc import Mapping
from functools import lru_cache

from nearpeak.core.answers.suite import Suite
from nearpeak.core.work.case import Case
from nearpeak.errors import NearpeakError, SpecError
from nearpeak.ops import work_of

CURRENCIES = ("calls", "flop", "time")
Weights = dict[str, dict[Case, float]]
"""Weight of each case by workload."""


def weights_of(suite: Suite, currency: str, time_s: Mapping[Case, float] | None = None) -> Weights:
    """Return the weight of each case in each workload, in one of CURRENCIES.

    Args:
        time_s: seconds per call of a case; cases without a time have weight 0, which the caller must report.

    Raises:
        SpecError: no such currency, or time without times.
    """
    if currency not in CURRENCIES or (currency == "time" and time_s is None):
        raise SpecError(f"currency {currency!r}: is not one of {', '.join(CURRENCIES)}, or has no times")
    weights: Weights = {source.name: {} for source in suite.sources if source.kind == "usecase"}
    for suite_case in suite.cases:
        for why in suite_case.why:
            if why.source in weights and why.call_count:
                case, row = suite_case.case, weights[why.source]
                flop_or_s = _flop(case) if currency == "flop" else (time_s or {}).get(case, 0.0)
                row[case] = row.get(case, 0.0) + why.call_count * (1.0 if currency == "calls" else flop_or_s)
    return weights


def fleet_of(weights: Weights) -> dict[Case, float]:
    """Return the weight of each case when every workload counts alike: all weights add up to 1.

    >>> from nearpeak.ops import case
    >>> a, b = (case("fill", elements=n, dtype="bf16") for n in (1, 2))
    >>> list(fleet_of({"x": {a: 3.0, b: 1.0}, "y": {b: 1e6}}).values())
    [0.375, 0.625]
    """
    totals = {name: sum(row.values()) for name, row in weights.items()}
    weighing = [name for name, total in totals.items() if total > 0]
    fleet: dict[Case, float] = {}
    for name in weighing:
        for case, weight in weights[name].items():
            fleet[case] = fleet.get(case, 0.0) + weight / totals[name] / len(weighing)
    return fleet


@lru_cache(maxsize=65536)
def _flop(case: Case) -> float:
    try:
        return float(sum(work_of(case).flop.values()))
    except NearpeakError:
        return 0.0
