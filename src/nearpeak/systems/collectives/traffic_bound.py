"""Proved lower bound on the time of a collective: bytes that must cross each border over the rate of all its links."""

from typing import NamedTuple

from nearpeak.systems.collectives.group_placement import GroupPlacement
from nearpeak.systems.collectives.traffic import compulsory_bytes


class TrafficBound(NamedTuple):
    """Least time of a collective, and the border that sets it."""

    time_s: float
    """Least time."""
    tier: str
    """Tier whose links carry the bytes; empty for none."""
    moved_bytes: float
    """Bytes that must cross, of all groups that run at the same time."""
    bytes_per_s: float
    """Rate of all links that cross the border, one direction."""


def traffic_bound(
    kind: str, size_bytes: float, placement: GroupPlacement, device_bytes_per_s: float = 0.0
) -> TrafficBound:  # fmt: skip
    """Return the least time of a collective: bytes over bandwidth at the border that takes longest.

    All links of a node count, even those next to devices outside the group, and no oversubscription, so that no route
    beats it. Groups that communicate at the same time share the links.

    Args:
        device_bytes_per_s: rate of all links of one device; with 0 the border of a device is left out.

    >>> from nearpeak.systems.collectives.group_placement import place_ranks
    >>> from nearpeak.targets.clusters import cluster_of
    >>> placement = place_ranks(range(64), cluster_of("64xh100_sxm", "ib400").fabric)
    >>> found = traffic_bound("all_reduce", 2**30, placement)
    >>> found.tier, round(found.time_s * 1e3, 3)
    ('ib', 4.698)
    """
    bounds = [TrafficBound(0.0, "", 0.0, 1.0)]
    for place, level in enumerate(placement.levels):
        upper, below_count = placement.levels[place:], level.below_device_count
        rate = sum(max(below_count / each.tier.shared_by, 1.0) * each.tier.bandwidth_bytes_per_s for each in upper)
        if below_count == 1:  # devices have links that no tier states, to the host
            rate = device_bytes_per_s
        if not rate:
            continue
        groups = level.busy_device_count / max(level.member_count, 1) if below_count > 1 else 1.0
        needed_bytes = groups * compulsory_bytes(
            kind, size_bytes, placement.rank_count, level.member_count, level.part_count,
            switches_add=any(each.tier.reduces for each in upper),
        )  # fmt: skip
        bounds.append(TrafficBound(needed_bytes / rate, level.tier.name, needed_bytes, rate))
    return max(bounds)
