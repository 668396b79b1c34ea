"""Max-min fair shares of one or several resource pools."""

from collections.abc import Sequence

SLACK_RATIO = 1e-12
"""Relative excess over a capacity that is left to rounding."""


def max_min(demands: Sequence[float], counts: Sequence[int], capacity: float) -> list[float]:
    """Return the share of a pool for one requester of each kind.

    Nobody gets more than its demand, and the rest is shared equally among the others: water-filling, as for
    flows in a network (Bertsekas and Gallager, Data Networks, 1992, section 6.5.2).

    Args:
        demands: What one requester of each kind would use alone, per second.
        counts: Requesters of each kind.
        capacity: What the pool serves, per second.

    >>> max_min([0.5, 1.0, 2.5], [1, 1, 1], 3.0)
    [0.5, 1.0, 1.5]
    >>> max_min([0.2, 3.0], [2, 1], 3.4)
    [0.2, 3.0]
    """
    shares = [0.0] * len(demands)
    left, waiting = capacity, sum(counts)
    for index in sorted(range(len(demands)), key=lambda i: demands[i]):
        if demands[index] * waiting <= left:
            shares[index] = demands[index]
        else:
            shares[index] = left / waiting
        left -= shares[index] * counts[index]
        waiting -= counts[index]
    return shares


def progress(uses: Sequence[Sequence[float]], counts: Sequence[int], capacities: Sequence[float]) -> list[float]:
    """Return the relative speed of each kind of work when all draw on several pools at once.

    A kind that one pool holds back draws less from the others, which their users share again. Every round lowers
    speeds to what the fullest pool can serve; it ends when no pool is over its capacity.

    Args:
        uses: For each kind, what one of it draws from each pool alone, per second.
        counts: How many of each kind there are.
        capacities: What each pool serves, per second.

    >>> progress([[1.0, 0.0], [1.0, 1.0]], [1, 1], [1.0, 0.25])
    [0.75, 0.25]
    """
    speeds = [1.0] * len(uses)
    caps = [1.0] * len(uses)
    for _ in range(2 * len(capacities) * max(len(uses), 1)):
        over = _fullest(uses, counts, capacities, speeds)
        if over is None:
            return speeds
        _settle(uses, counts, capacities, speeds, caps, over)
    return speeds


def _fullest(
    uses: Sequence[Sequence[float]], counts: Sequence[int], capacities: Sequence[float], speeds: list[float]
) -> int | None:
    """Return the pool that is furthest over its capacity; none where all are served."""
    worst, at = 1.0 + SLACK_RATIO, None
    for pool, capacity in enumerate(capacities):
        demand = sum(use[pool] * count * speed for use, count, speed in zip(uses, counts, speeds, strict=True))
        if demand > worst * capacity:
            worst, at = demand / capacity, pool
    return at


def _settle(
    uses: Sequence[Sequence[float]], counts: Sequence[int], capacities: Sequence[float],
    speeds: list[float], caps: list[float], pool: int,
) -> None:  # fmt: skip
    """Lower the users of one pool to their fair share of it."""
    users = [kind for kind, use in enumerate(uses) if use[pool] > 0]
    demands = [uses[kind][pool] * caps[kind] for kind in users]
    shares = max_min(demands, [counts[kind] for kind in users], capacities[pool])
    for kind, demand, share in zip(users, demands, shares, strict=True):
        if share < demand:
            caps[kind] = share / uses[kind][pool]
        speeds[kind] = min(speeds[kind], caps[kind])
