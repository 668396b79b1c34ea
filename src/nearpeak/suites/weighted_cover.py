"""Greedy weighted set cover: the cheapest cases that reach a given share of the total weight."""

import heapq
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from nearpeak.errors import SpecError

Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """One choice of the plan."""

    key: str
    """Digest of the case."""
    gain_ratio: float
    """Share of all weight that it adds to what was chosen before."""
    covered_ratio: float
    """Share of all weight covered once it is chosen."""
    spent_s: float
    """Cost of all choices up to this one."""


def greedy_cover(
    covers: Mapping[str, Iterable[Key]],
    weights: Mapping[Key, float],
    cost_s: Mapping[str, float],
    goal_ratio: float = 1.0,
    mandatory: Iterable[str] = (),
    budget_s: float = math.inf,
) -> tuple[Pick, ...]:
    """Return which keys to choose so that they cover at least `goal_ratio` of all weight, in the order of choice.

    With a budget it ends before the goal where the next choice would cost more than is left; what costs less is still
    looked at, and one key alone is chosen instead where it covers more than all of them.

    Each step takes the largest uncovered weight per second, ties by lower cost, then by key; gains only shrink, so a
    queue is enough. What turns out not to be needed for the goal is dropped again, dearest first. For a goal
    of 1 and parts that count alike the cost is within 1 + ln n of the least, as Chvátal's greedy set cover.

    Source: Chvátal 1979, Mathematics of Operations Research 4(3), pages 233-235.

    Raises:
        SpecError: a cost is not above 0, the goal lies outside 0 to 1, or what is mandatory exceeds the budget.

    >>> covers = {"a": "xy", "b": "yz", "c": "xyz"}
    >>> [one.key for one in greedy_cover(covers, {"x": 1, "y": 1, "z": 1}, {"a": 1, "b": 1, "c": 9})]
    ['a', 'b']
    """
    if not 0 <= goal_ratio <= 1:
        raise SpecError(f"cover: goal {goal_ratio} is not between 0 and 1")
    if any(not cost_s[key] > 0 for key in covers):
        raise SpecError(f"cover: {min(covers, key=lambda key: cost_s[key])} costs nothing; every case takes time")
    held = {
        key: tuple(dict.fromkeys(part for part in parts if weights.get(part, 0) > 0)) for key, parts in covers.items()
    }
    chosen_first = tuple(dict.fromkeys(key for key in mandatory if key in held))
    wanted = goal_ratio * sum(weights.values()) * (1 - 1e-12)
    left_s = budget_s - sum(cost_s[key] for key in chosen_first)
    if left_s < 0:
        raise SpecError(f"cover: the mandatory cases alone take more than the budget of {budget_s:g} s; raise it")
    grown = _grown(held, weights, cost_s, chosen_first, (wanted, left_s))
    if math.isfinite(budget_s):
        return _picks(
            [*chosen_first, *_better(grown, held, weights, cost_s, chosen_first, left_s)], held, weights, cost_s
        )
    return _picks(_needed([*chosen_first, *grown], held, weights, cost_s, chosen_first, wanted), held, weights, cost_s)


def _better(
    grown: list[str], held: Mapping[str, Sequence[Key]], weights: Mapping[Key, float], cost_s: Mapping[str, float],
    mandatory: Sequence[str], left_s: float,
) -> list[str]:  # fmt: skip
    """Return the choices, or the one affordable key that covers more: the better of both is near the best by a factor.

    Source: Khuller, Moss, Naor 1999, Information Processing Letters 70(1), pages 39-45.
    """
    first = {part for key in mandatory for part in held[key]}

    def gain(keys: Iterable[str]) -> float:
        return sum(weights[part] for part in {part for key in keys for part in held[key]} - first)

    alone = [key for key in held if key not in mandatory and cost_s[key] <= left_s]
    best = min(alone, key=lambda key: (-gain([key]), cost_s[key], key), default=None)
    return [best] if best is not None and gain([best]) > gain(grown) else grown


def _grown(
    held: Mapping[str, Sequence[Key]], weights: Mapping[Key, float], cost_s: Mapping[str, float],
    mandatory: Sequence[str], limits: tuple[float, float],
) -> list[str]:  # fmt: skip
    """Return what greedy choice adds to the mandatory keys, up to the weight and the cost of `limits`."""
    wanted, left_s = limits
    covered = {part for key in mandatory for part in held[key]}
    reached = sum(weights[part] for part in covered)

    def gain(key: str) -> float:
        return sum(weights[part] for part in held[key] if part not in covered)

    queue = [(-gain(key) / cost_s[key], cost_s[key], key) for key in held if key not in mandatory]
    heapq.heapify(queue)
    chosen: list[str] = []
    while queue and reached < wanted:
        _, cost, key = heapq.heappop(queue)
        now = gain(key)
        if now <= 0 or cost > left_s:
            continue
        if queue and (-now / cost, cost, key) > queue[0]:
            heapq.heappush(queue, (-now / cost, cost, key))
            continue
        chosen.append(key)
        left_s -= cost
        covered.update(held[key])
        reached += now
    return chosen


def _needed(
    order: Sequence[str], held: Mapping[str, Sequence[Key]], weights: Mapping[Key, float],
    cost_s: Mapping[str, float], mandatory: Sequence[str], wanted: float,
) -> list[str]:  # fmt: skip
    """Return the choices without those whose loss leaves the goal reached."""
    times: dict[Key, int] = {}
    for key in order:
        for part in held[key]:
            times[part] = times.get(part, 0) + 1
    reached = sum(weights[part] for part in times)
    dropped: set[str] = set()
    for key in sorted(set(order) - set(mandatory), key=lambda key: (-cost_s[key], key)):
        lost = sum(weights[part] for part in held[key] if times[part] == 1)
        if reached - lost >= wanted:
            reached -= lost
            dropped.add(key)
            for part in held[key]:
                times[part] -= 1
    return [key for key in order if key not in dropped]


def _picks(
    order: Sequence[str], held: Mapping[str, Sequence[Key]], weights: Mapping[Key, float], cost_s: Mapping[str, float]
) -> tuple[Pick, ...]:
    total = sum(weights.values()) or 1.0
    covered: set[Key] = set()
    picks, reached, spent_s = [], 0.0, 0.0
    for key in order:
        gain = sum(weights[part] for part in held[key] if part not in covered)
        covered.update(held[key])
        reached, spent_s = reached + gain, spent_s + cost_s[key]
        picks.append(Pick(key=key, gain_ratio=gain / total, covered_ratio=reached / total, spent_s=spent_s))
    return tuple(picks)
