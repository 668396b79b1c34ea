"""Level changes (change points) of a time series: position, size and confidence."""

from dataclasses import dataclass

SUSPECT, CONFIRMED = "suspect", "confirmed"
"""Tiers: a suspect only buys a new measurement; a confirmed change is told."""
SEARCHED, TOO_SHORT, NOT_FINITE, NOT_POSITIVE = "searched", "too-short", "not-finite", "not-positive"
"""Outcomes of a search."""
LEAST_VALUES = 12
"""Values that a search needs; shorter series are compared with their baseline instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoint:
    """The level of a series is another one from a value on."""

    index: int
    """First value of the new level; the value before it is the last of the old one."""
    low_index: int
    """First value that may be the first of the new level (9 chances in 10 from here to `high_index`)."""
    high_index: int
    """Last value that may be the first of the new level."""
    tier: str
    """`suspect` or `confirmed`."""
    probability_ratio: float
    """Chance that the level changes here, given the noise that was found."""
    time_ratio: float
    """New level over old level; above 1 is slower where values are times."""
    low_ratio: float
    """Lower end of its 99 % interval."""
    high_ratio: float
    """Upper end."""
    before_count: int
    """Values between the change before (or the start) and this one."""
    after_count: int
    """Values between this change and the next (or the end)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Detection:
    """Level changes of one series."""

    outcome: str
    """`searched`, or why it was not: `too-short`, `not-finite`, `not-positive`."""
    points: tuple[ChangePoint, ...] = ()
    """Changes in the order of the series."""

    @property
    def confirmed(self) -> tuple[ChangePoint, ...]:
        """Return the changes of the confirmed tier."""
        return tuple(point for point in self.points if point.tier == CONFIRMED)
