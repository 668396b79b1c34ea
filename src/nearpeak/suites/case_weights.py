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
        time_s: seconds per call of a case; cases without one weigh nothing, which who asks has to know.

    Raises:
        SpecError: no such currency, or time without times.
    """
    if currency not in CURRENCIES or (currency == "time" and time_s is None):
        raise SpecError(f"currency {currency!r}: is not one of {', '.join(CURRENCIES)}, or has no times")
    found: Weights = {one.name: {} for one in suite.sources if one.kind == "usecase"}
    for one in suite.cases:
        for why in one.why:
            if why.source in found and why.call_count:
                worth = why.call_count * _worth(one.case, currency, time_s or {})
                found[why.source][one.case] = found[why.source].get(one.case, 0.0) + worth
    return found


def fleet_of(weights: Weights) -> dict[Case, float]:
    """Return the weight of each case when every workload counts alike: all weights add up to 1.

    >>> from nearpeak.ops import case
    >>> a, b = (case("fill", elements=n, dtype="bf16") for n in (1, 2))
    >>> list(fleet_of({"x": {a: 3.0, b: 1.0}, "y": {b: 1e6}}).values())
    [0.375, 0.625]
    """
    totals = {name: sum(row.values()) for name, row in weights.items()}
    weighing = [name for name, total in totals.items() if total > 0]
    found: dict[Case, float] = {}
    for name in weighing:
        for case, weight in weights[name].items():
            found[case] = found.get(case, 0.0) + weight / totals[name] / len(weighing)
    return found


def _worth(case: Case, currency: str, time_s: Mapping[Case, float]) -> float:
    if currency == "calls":
        return 1.0
    return _flop(case) if currency == "flop" else time_s.get(case, 0.0)


@lru_cache(maxsize=65536)
def _flop(case: Case) -> float:
    try:
        return float(sum(work_of(case).flop.values()))
    except NearpeakError:
        return 0.0
