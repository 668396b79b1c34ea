"""A change point as it is followed from commit to commit: never deleted, only marked."""

from dataclasses import dataclass

from nearpeak.core.change import ChangePoint

OPEN, PROVED, REFUTED, UNDECIDED = "open", "proved", "refuted", "undecided"
"""What new measurements say: none yet; the change is there; it is not; neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracked:
    """One change point over the runs of its series."""

    point: ChangePoint
    """As it was seen last."""
    first_seen_index: int
    """Newest value of the series when it was first seen."""
    last_seen_index: int
    """Newest value of the series when it was last seen."""
    retracted_index: int | None = None
    """Newest value when it was first not found again; none while it is found."""
    measured: str = OPEN
    """`open`, `proved`, `refuted` or `undecided`."""
    tried_tier: str = ""
    """Tier at which it was last measured again; empty where it was not."""
    went_away_index: int | None = None
    """Newest value when the level was found back at the old one; none while it is not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remeasurement:
    """Which two commits to measure again in turns on one device, and for whom."""

    good_index: int
    """Newest measured value that is safely before the change."""
    bad_index: int
    """Newest measured value."""
    series: tuple[str, ...]
    """Series to measure first, by weight times effect."""
    waiting: tuple[str, ...] = ()
    """Series to measure only if one of the first shows a change."""
