"""Placement of a group of ranks on the tiers of a fabric: how many members each instance of a tier holds."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from nearpeak.core.systems.fabric import Fabric, Tier
from nearpeak.core.systems.mesh import Mesh
from nearpeak.errors import SpecError

_MOST_GROUPS = 64
"""Groups of a dimension that are looked at where they do not lie equally on the tiers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One tier that a group crosses."""

    tier: Tier
    """The tier."""
    part_count: int
    """Instances of the tier below (devices, at the innermost) that hold members of the group, in all."""
    member_count: int
    """Fewest members that one of them holds."""
    below_device_count: int
    """Devices of one instance of the tier below."""
    busy_device_count: int
    """Devices of it that communicate at the same time, those of other groups included."""

    @property
    def link_count(self) -> float:
        """Links of this tier that an instance of the tier below has."""
        return max(self.below_device_count / self.tier.shared_by, 1.0)

    @property
    def group_bytes_per_s(self) -> float:
        """Rate at which all members of one part send through the tier together, one direction.

        Each member has the links next to it, and groups that run at the same time share what there is.
        """
        links = min(self.link_count, self.member_count, self.link_count * self.member_count / self.busy_device_count)
        return self.tier.bandwidth_bytes_per_s * links / self.tier.oversubscription

    @property
    def device_bytes_per_s(self) -> float:
        """Rate at which one member alone sends through the tier, one direction."""
        share = min(1.0, self.link_count / self.busy_device_count)
        return self.tier.bandwidth_bytes_per_s * share / self.tier.oversubscription


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlacement:
    """The tiers that a group crosses, innermost first; none for a group of one."""

    rank_count: int
    """Ranks of the group."""
    levels: tuple[Level, ...]
    """Tiers whose links the group needs."""
    inner: Tier
    """Innermost tier of the fabric."""

    @property
    def inner_rank_count(self) -> int:
        """Members of the group inside one node, the fewest of any."""
        return self.outer[0].member_count if self.outer else self.rank_count

    @property
    def outer(self) -> tuple[Level, ...]:
        """The tiers beyond the innermost."""
        return tuple(level for level in self.levels if level.below_device_count > 1)


def place_ranks(ranks: Sequence[int], fabric: Fabric, busy_rank_count: int = 0) -> GroupPlacement:
    """Return where the tiers of a fabric hold the members of a group.

    Args:
        ranks: members; rank and device have one number.
        busy_rank_count: ranks from 0 on that communicate at the same time; 0 for the members alone.

    >>> from nearpeak.targets.clusters import cluster_of
    >>> placement = place_ranks(range(16), cluster_of("16xh100_sxm", "ib400").fabric)
    >>> placement.inner_rank_count, [(level.tier.name, level.part_count) for level in placement.levels]
    (8, [('nvlink', 16), ('ib', 2)])
    """
    if not ranks or len(set(ranks)) != len(ranks) or min(ranks) < 0:
        raise SpecError(f"group {list(ranks)[:8]}: ranks must be different numbers of at least 0")
    fabric.tier_of_span(max(max(ranks) + 1, busy_rank_count))
    levels = []
    below = 1
    for tier in fabric.tiers:
        size = tier.device_count or max(max(ranks) + 1, below)
        parts = Counter(rank // below for rank in ranks)
        joined = Counter(part * below // size for part in parts)
        if max(joined.values()) > 1:
            fewest = min(parts.values())
            busy = min(below, busy_rank_count) if busy_rank_count else fewest
            levels.append(
                Level(tier=tier, part_count=len(parts), member_count=fewest, below_device_count=below,
                      busy_device_count=max(busy, fewest))
            )  # fmt: skip
        below = size
    return GroupPlacement(rank_count=len(ranks), levels=tuple(levels), inner=fabric.tiers[0])


@lru_cache(maxsize=1 << 12)  # planners ask for the same groups over and over
def place_group(mesh: Mesh, dim: str, fabric: Fabric) -> GroupPlacement:
    """Return the placement of the groups of a dimension, all of which communicate at the same time.

    Of groups that lie differently on the tiers, that of most parts and, of these, fewest members in one; as not all of
    them need the links between nodes, it is taken to have these alone.

    >>> from nearpeak.targets.clusters import cluster_of
    >>> fabric = cluster_of("64xh100_sxm", "ib400").fabric
    >>> mesh = Mesh(dims=(("tp", 8), ("dp", 8)))
    >>> [place_group(mesh, dim, fabric).inner_rank_count for dim in ("tp", "dp")]
    [8, 1]
    """
    groups = _groups(mesh, dim, fabric)
    busy = mesh.rank_count if len(groups) == 1 else 0
    return max((place_ranks(group, fabric, busy) for group in groups), key=_severity)


@lru_cache(maxsize=1 << 12)
def place_neighbours(mesh: Mesh, dim: str, fabric: Fabric) -> GroupPlacement:
    """Return the placement of two neighbours along a dimension, the farthest apart of all, while all of them send.

    As many pairs cross the border of a node as its devices or the stride of the dimension, the fewer.
    """
    if mesh.degree(dim) == 1:
        return place_ranks((0,), fabric, mesh.rank_count)
    pairs = {pair for group in _groups(mesh, dim, fabric) for pair in pairwise(group)}
    return max((place_ranks(pair, fabric, mesh.stride(dim)) for pair in sorted(pairs)), key=_severity)


def _groups(mesh: Mesh, dim: str, fabric: Fabric) -> list[tuple[int, ...]]:
    """Return the groups of a dimension that may lie differently; one where all lie alike."""
    degree, stride = mesh.degree(dim), mesh.stride(dim) if mesh.degree(dim) > 1 else 1
    sizes = [tier.device_count for tier in fabric.tiers if tier.device_count]
    is_alike = all(  # every group has as many members in each instance of a tier as any other
        stride % size == 0 or (size % stride == 0 and (degree * stride % size == 0 or size % (degree * stride) == 0))
        for size in sizes
    )
    if is_alike:
        return [mesh.group(dim, 0)]
    firsts = [rank for rank in mesh.ranks() if mesh.coordinate(rank).get(dim, 0) == 0]
    return [mesh.group(dim, rank) for rank in firsts[:_MOST_GROUPS]]


def _severity(placement: GroupPlacement) -> tuple[int, int, int]:
    outer = placement.outer
    return len(outer), outer[-1].part_count if outer else 0, -(outer[-1].member_count if outer else 0)
