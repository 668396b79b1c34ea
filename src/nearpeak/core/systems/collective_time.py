"""Time of a collective over the tiers of a fabric: parts, interval, limiting tier and lower bound."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class InnerTime(NamedTuple):
    """Time of a collective inside a node."""

    time_s: float
    """Expected time."""
    low_s: float
    """Low end of the 90 % interval."""
    high_s: float
    """High end of the 90 % interval."""
    ground: str
    """What it rests on."""


Inside = Callable[[str, float, int], InnerTime]
"""Gives the time inside a node by kind, bytes of the whole message and ranks; raises NotModelledError where unknown."""


class Part(NamedTuple):
    """A part of a collective's time."""

    name: str
    """`start`, `inside`, `hops`, `wire`, `wait`."""
    time_s: float
    """Time of the part."""
    ground: str
    """What it rests on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveTime:
    """Time of one collective, what it consists of, and how far to trust it."""

    time_s: float
    """Expected time; never below `bound_s`."""
    low_s: float
    """Low end of the 90 % interval."""
    high_s: float
    """High end of the 90 % interval."""
    bound_s: float
    """Time that no algorithm beats."""
    tier: str
    """Outermost tier that the group crosses; empty for a group of one."""
    limiter: str
    """Tier whose bytes, or hops, take longest."""
    algorithm: str
    """Algorithm and protocol between nodes; empty inside one."""
    parts: tuple[Part, ...]
    """Parts that add up to `time_s`."""


class CallTime(NamedTuple):
    """A collective of a captured workload on a cluster."""

    call: int
    """Position of the call."""
    dim: str
    """Mesh dimension of its group; empty where the capture names none."""
    found: CollectiveTime
    """Its time and tier."""


NOTHING = CollectiveTime(
    time_s=0.0, low_s=0.0, high_s=0.0, bound_s=0.0, tier="", limiter="", algorithm="", parts=()
)  # fmt: skip
"""A collective of one rank."""
