"""Values of findings as the store holds them: detectors, change points, alerts with events, comparisons."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nearpeak.store.rows.list_rows import AlertRow

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Detector:
    """What found a change point, with all that its answer depends on."""

    name: str
    """Name."""
    version: str = "1"
    """Version."""
    parameters: Json = field(default_factory=dict)
    """Thresholds and the like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredChange:
    """Where a series changes its level."""

    series: int
    """Identity of the series within its store."""
    order_key: int
    """First run of the new level."""
    rev_lo: str
    """Last commit of the old level."""
    rev_hi: str
    """First commit of the new one."""
    effect_ratio: float
    """Logarithm of new over old level; of a linear metric new minus old."""
    low_ratio: float | None = None
    """Lower end of its interval."""
    high_ratio: float | None = None
    """Upper end."""
    score_ratio: float | None = None
    """How sure the detector is, on its own scale."""
    tier: str = "suspect"
    """`suspect`, or `confirmed`."""
    before_count: int = 0
    """Values before it that were looked at."""
    after_count: int = 0
    """Values after it."""
    evidence: Json = field(default_factory=dict)
    """What else it rests on."""
    id: int = 0
    """Identity within the store; 0 before it is stored."""
    retracted_ns: int | None = None
    """When the detector no longer found it; none while it does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert(AlertRow):
    """An alert: change points that belong together, and their state."""

    first_triaged_ns: int | None
    """When somebody, or a measurement, first took it further; none while it is new."""
    members: tuple[tuple[int, str], ...]
    """Change points with their role: `primary`, `downstream` or `related`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertEvent:
    """One step in the life of an alert."""

    at_ns: int
    """When."""
    actor: str
    """Who, or what."""
    from_status: str
    """State before."""
    to_status: str
    """State after."""
    note: str
    """Why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredComparison:
    """A verdict on two groups of runs, with all that it was based on."""

    baseline: str
    """What the candidate was compared with: a run, a commit, a bound."""
    candidate: str
    """What was judged."""
    verdict: str
    """`improvement`, `invariant`, `regression`, `inconclusive`, or why there is none."""
    series: int | None = None
    """Series that both are of; none across series."""
    theta_ratio: float | None = None
    """Logarithm of candidate over baseline."""
    theta_clock_ratio: float | None = None
    """The same with the clock taken out."""
    low_ratio: float | None = None
    """Lower end of the interval."""
    high_ratio: float | None = None
    """Upper end."""
    look_count: int = 1
    """Looks at the data so far."""
    launch_count: int = 0
    """Launches that it rests on."""
    inputs: Json = field(default_factory=dict)
    """Everything that decided it."""
    id: int = 0
    """Identity within the store; 0 before it is stored."""
    created_ns: int = 0
    """When; 0 before it is stored."""
