"""Changes that are told as one, what was declared beforehand, and what is not to be told for a while."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nearpeak.core.change import ChangePoint
from nearpeak.errors import SpecError

PRIMARY, DOWNSTREAM, RELATED = "primary", "downstream", "related"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A change of one series that may be told."""

    series: str
    """Name of the series."""
    point: ChangePoint
    """The change; indices count commits that all series share."""
    axes: Mapping[str, str] = field(default_factory=dict)
    """What the series belongs to: workload, operator, device, host, component."""
    gap_s: float = 0.0
    """What it costs: weight times the change of the time."""
    upstream: tuple[str, ...] = ()
    """Series whose work is part of this one's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Changes that began together and share something."""

    low_index: int
    """First commit that may have caused them all, or the first that may have caused any."""
    high_index: int
    """Last such commit."""
    members: tuple[tuple[Candidate, str], ...]
    """Changes with their role, `primary` first, then `downstream` or `related` by what they cost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """A change that its author declared."""

    index: int
    """Commit that makes it."""
    select: Mapping[str, str]
    """Patterns with `*` and `?` by axis, `series` among them; all must match."""
    low_ratio: float
    """Least new over old time that was declared."""
    high_ratio: float
    """Largest."""
    actor: str
    """Who declared it."""

    def __post_init__(self) -> None:
        """Refuse a range that nothing can lie in."""
        if not 0 < self.low_ratio <= self.high_ratio:
            raise SpecError(f"expectation at {self.index}: {self.low_ratio} to {self.high_ratio} is no range of ratios")


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppression:
    """What is not told until a day, and why."""

    select: Mapping[str, str]
    """Patterns by axis, `series` among them; all must match."""
    until_ns: int
    """End, since 1970 UTC."""
    reason: str
    """Why; it must be given."""
    actor: str
    """Who asked for it."""

    def __post_init__(self) -> None:
        """Refuse a suppression without a reason, or of everything."""
        if not self.reason or not self.select:
            raise SpecError("suppression: a reason and at least one pattern are needed")
