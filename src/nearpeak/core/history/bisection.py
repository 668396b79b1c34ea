"""Bisection for the change that slowed a case: search axes, comparisons made, and the outcome."""

from collections.abc import Mapping
from dataclasses import dataclass

from nearpeak.errors import SpecError

FOUND, LIKELY, NOT_THERE = "found", "likely", "not-there"
"""The culprit is sure; the budget ended before it was; good and bad do not differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectAxis:
    """Versions of one thing that differs between good and bad, in order."""

    name: str
    """`commit`, the name of a component, `driver`, …."""
    versions: tuple[str, ...]
    """From the good version, the first, to the bad one, the last."""
    weight_ratio: float = 1.0
    """How likely the culprit is here before anything is measured, against the other axes, for each version."""

    def __post_init__(self) -> None:
        """Refuse an axis on which nothing changes."""
        if len(self.versions) < 2 or len(set(self.versions)) < len(self.versions):
            raise SpecError(
                f"bisect: axis {self.name!r} needs two versions or more, each once; got {self.versions[:4]}"
            )
        if not 0 < self.weight_ratio < float("inf"):
            raise SpecError(f"bisect: axis {self.name!r}: weight {self.weight_ratio!r} is not positive and finite")


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """One change between neighbouring versions, and what it costs."""

    axis: str
    """Axis on which it lies."""
    before: str
    """Last version without it."""
    after: str
    """First version with it."""
    time_ratio: float
    """Time with it over time without."""
    probability_ratio: float
    """Chance that it is this one, given all comparisons."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectStep:
    """One comparison A B B A."""

    baseline: Mapping[str, str]
    """Version on each axis of the first arm."""
    candidate: Mapping[str, str]
    """Version on each axis of the second."""
    time_ratio: float | None
    """Candidate over baseline; none where it could not be built or run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bisection:
    """What a search found, and by which comparisons."""

    outcome: str
    """`found`, `likely` or `not-there`."""
    culprits: tuple[Culprit, ...]
    """Causes, the first found first."""
    steps: tuple[BisectStep, ...]
    """Every comparison in order, those that could not run among them."""
