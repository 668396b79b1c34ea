"""Groups of related level changes, announced changes, and muted alerts."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nearpeak.core.history.level_change import ChangePoint
from nearpeak.errors import SpecError

PRIMARY, DOWNSTREAM, RELATED = "primary", "downstream", "related"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A change of one series that may be reported."""

    series: str
    """Name of the series."""
    point: ChangePoint
    """The change; indices count commits that all series share."""
    axes: Mapping[str, str] = field(default_factory=dict)
    """What the series belongs to: workload, operator, device, host, component."""
    gap_s: float = 0.0
    """Cost: weight times the change of the time."""
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
    """A change that is meant: a commit, series, and how much."""

    sha: str
    """Commit that makes it."""
    selector: Mapping[str, object]
    """Series, by patterns with `*` and `?` of what they belong to; all must match, and none is asked of all."""
    low_ratio: float
    """Least change that is as expected: new over old, less one."""
    high_ratio: float
    """Largest."""
    author: str
    """Author."""

    def __post_init__(self) -> None:
        """Refuse a range that nothing can lie in."""
        if not -1 < self.low_ratio <= self.high_ratio:
            raise SpecError(f"expectation of {self.sha}: {self.low_ratio} to {self.high_ratio} is the wrong way round")


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppression:
    """Muted changes, with the reason and the end of muting."""

    selector: Mapping[str, object]
    """Series, as in `Expectation`."""
    until_ns: int
    """End, since 1970 UTC; there is none without."""
    reason: str
    """Why."""
    author: str
    """Author."""
    rev_lo: str = ""
    """First commit that it holds for; empty for all."""
    rev_hi: str = ""
    """Last one."""

    def __post_init__(self) -> None:
        """Refuse a suppression without a reason."""
        if not self.reason.strip():
            raise SpecError("suppression: needs a reason and an end that lies ahead")
