"""A fabric: the tiers of links that connect the devices of a cluster, innermost first."""

from dataclasses import dataclass
from itertools import pairwise

from nearpeak.errors import SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferFit:
    """Measured time of one kind of collective on a tier: `base_s` + message bytes / `bytes_per_s`."""

    kind: str
    """Collective."""
    rank_count: int
    """Ranks that took part."""
    base_s: float
    """Time of the smallest message."""
    bytes_per_s: float
    """Message bytes per second of large messages."""
    low_ratio: float = 1.0
    """Measured over fitted: the 5th percentile."""
    high_ratio: float = 1.0
    """Measured over fitted: the 95th percentile."""

    def __post_init__(self) -> None:
        """Refuse fits that no link has."""
        if self.rank_count < 2 or self.base_s < 0 or self.bytes_per_s <= 0:
            raise SpecError(
                f"fit of {self.kind}: needs at least 2 ranks, a base of at least 0 s and a rate above 0; got "
                f"{self.rank_count}, {self.base_s:g} s, {self.bytes_per_s:g} B/s"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """One level of a fabric: the links inside a board, a node, a rack or between nodes."""

    name: str
    """Short name, `nvlink` or `ib`."""
    device_count: int
    """Devices that one instance of the tier connects; 0 for any number (the outermost tier)."""
    bandwidth_bytes_per_s: float
    """Bandwidth of one device into the tier, one direction."""
    latency_s: float
    """Time of a message without bytes between two devices."""
    reduces: bool = False
    """Whether switches of the tier add (NVLink SHARP, SHARP on InfiniBand)."""
    oversubscription: float = 1.0
    """Bandwidth into the tier's switches over bandwidth through them; at least 1."""
    shared_by: int = 1
    """Devices that share one link of this bandwidth."""
    reached_ratio: float = 1.0
    """Share of the bandwidth that large collectives reach."""
    fits: tuple[TransferFit, ...] = ()
    """Measured times of collectives on this tier; of several of one kind and size of group the least holds."""
    source: str
    """Document that states bandwidth and latency."""

    def __post_init__(self) -> None:
        """Refuse figures that no link has."""
        if self.bandwidth_bytes_per_s <= 0 or self.latency_s < 0 or self.oversubscription < 1 or self.shared_by < 1:
            raise SpecError(
                f"tier {self.name}: bandwidth must be above 0, latency at least 0, oversubscription and shared_by at "
                f"least 1; got {self.bandwidth_bytes_per_s:g} B/s, {self.latency_s:g} s, {self.oversubscription:g}, "
                f"{self.shared_by}"
            )
        if not 0 < self.reached_ratio <= 1:
            raise SpecError(f"tier {self.name}: reached_ratio={self.reached_ratio:g} must be above 0 and at most 1")

    @property
    def device_bandwidth_bytes_per_s(self) -> float:
        """Bandwidth that each device has when all of them send through the tier at once, one direction."""
        return self.bandwidth_bytes_per_s / (self.shared_by * self.oversubscription)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """The tiers of one kind of cluster."""

    name: str
    """Name of its file."""
    title: str
    """What it is, in words."""
    tiers: tuple[Tier, ...]
    """Innermost first; each connects whole instances of the one before it."""

    def __post_init__(self) -> None:
        """Refuse tiers that do not nest."""
        sizes = [tier.device_count for tier in self.tiers]
        if not sizes or any(size == 0 for size in sizes[:-1]):
            raise SpecError(
                f"fabric {self.name}: at least one tier, and only the outermost may have any number of devices"
            )
        bounded = [size for size in sizes if size]
        for inner, outer in pairwise(bounded):
            if outer % inner or outer <= inner:
                raise SpecError(f"fabric {self.name}: a tier of {outer} devices does not hold whole tiers of {inner}")

    def tier_of_span(self, device_count: int) -> int:
        """Return the place of the innermost tier whose instances hold `device_count` neighbouring devices.

        Raises:
            SpecError: no tier is that large.
        """
        for place, tier in enumerate(self.tiers):
            if tier.device_count == 0 or device_count <= tier.device_count:
                return place
        raise SpecError(
            f"fabric {self.name}: {device_count} devices, but its outermost tier {self.tiers[-1].name!r} connects at "
            f"most {self.tiers[-1].device_count}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """A number of equal devices on a fabric."""

    target: str
    """Name of the device's target."""
    device_count: int
    """Devices in all."""
    fabric: Fabric
    """What connects them."""
