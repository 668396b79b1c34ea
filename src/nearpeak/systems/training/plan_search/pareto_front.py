"""The Pareto front of plans: those that no other beats in throughput, price and free memory at once."""

from collections.abc import Iterable

from nearpeak.core.systems.plan_answer import PlanResult


def pareto_front(results: Iterable[PlanResult]) -> tuple[PlanResult, ...]:
    """Return the plans that none dominates, fastest first; of equals the first.

    >>> pareto_front([])
    ()
    """
    ordered = sorted(results, key=lambda result: (-result.tokens_per_s, result.token_price, -result.free_bytes))
    front: list[PlanResult] = []
    for result in ordered:
        is_dominated = any(
            other.token_price <= result.token_price and other.free_bytes >= result.free_bytes for other in front
        )
        if not is_dominated:
            front.append(result)
    return tuple(front)
