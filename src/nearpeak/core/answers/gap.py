"""Gaps between measured times and bounds, recommended experiments, and cases that lack measurements."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nearpeak.core.answers.analysis import Opportunity
from nearpeak.core.work.case import Case

PROVEN, THEORETICAL = "proven", "theoretical"
"""Another runner reaches the time; only the bound says that it could be reached."""
MEASURED, ESTIMATED = "measured", "estimated"
"""A gain that a measurement shows; one that follows from bounds and counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """The work of a row done in another way on the same device: what its bound is, and what it took."""

    kind: str
    """Name of the rule that asks for it: `precision`, `padding`, `batching`, …."""
    label: str
    """The difference, in a few words."""
    bound_s: float | None = None
    """Bound of one run; none where no rule or figure covers it."""
    measured_s: float | None = None
    """Time of one run; none where it was not measured."""
    work_ratio: float = 1.0
    """Works of the row that one run does: 4 for a batch four times as large."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedCase:
    """A case with what it took, what it must take, and what else is known of it on its device."""

    case: Case
    """The case that ran."""
    label: str
    """The case in one line."""
    target: str
    """Device."""
    runner: str
    """Runner."""
    call_count: int
    """Calls per step of the model, or 1 for a case on its own."""
    measured_s: float
    """Time of one call."""
    bound_s: float | None
    """Time nothing can beat; none where no rule or figure covers the case."""
    limiter: str = ""
    """Term that sets the bound."""
    terms_s: Mapping[str, float] = field(default_factory=dict)
    """Bound of one call by term."""
    expected_s: float | None = None
    """Time that good software is expected to reach; none where nothing predicts it."""
    best_known_s: float | None = None
    """Shortest time that another runner reached; none where no other ran it."""
    best_known_by: str = ""
    """That runner."""
    module: str = ""
    """Pattern of the modules that call it; empty where the source does not say."""
    model: str = ""
    """Workload that it belongs to."""
    team: str = ""
    """Owner."""
    matrix_flop: int = 0
    """FLOP of one call that matrix units can do."""
    moved_bytes: int = 0
    """Bytes that one call reads and writes."""
    host_s: float | None = None
    """Wall time of one call where `measured_s` is the device's; none where it was not taken."""
    launch_floor_s: float | None = None
    """Least time of one kernel on the device."""
    sm_count: int | None = None
    """Multiprocessors of the device."""
    alternatives: tuple[Alternative, ...] = ()
    """The same work in other ways."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """Possible saving: calls × (measured − max(bound, best known))."""

    timed: TimedCase
    """The case and all that is known of it."""
    kind: str
    """`proven` or `theoretical`."""
    gain_s: float
    """The gap of all calls."""
    proven_s: float
    """The part of it that another runner reaches; 0 where none is faster."""
    theoretical_s: float | None
    """calls × (measured − bound); none without a bound."""

    @property
    def to_expected_s(self) -> float | None:
        """Calls × (measured − expected), 0 where it takes no longer than expected; none without a prediction."""
        row = self.timed
        return None if row.expected_s is None else row.call_count * max(0.0, row.measured_s - row.expected_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class GapGroup:
    """Gaps that share a kernel, a module, a model or a team."""

    name: str
    """Common module; empty where the source does not state it."""
    case_count: int
    """Cases in it."""
    gain_s: float
    """Sum of their gaps."""
    proven_s: float
    """Sum of the parts that other runners reach."""
    measured_s: float
    """Sum of what all their calls take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abstention:
    """A rule that says nothing of some rows, because evidence is missing."""

    kind: str
    """The rule; `gap` where not even the gap can be stated."""
    where: str
    """Case that it says nothing about."""
    reason: str
    """Missing evidence, and how to obtain it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """Something to try about a gap."""

    opportunity: Opportunity
    """A recommendation: action, place, largest gain and evidence."""
    basis: str
    """`measured` or `estimated`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Recommendations and missing evidence."""

    gaps: tuple[Gap, ...]
    """Largest first."""
    advice: tuple[Advice, ...]
    """Experiments, largest gain first; gains overlap and must not be added."""
    abstentions: tuple[Abstention, ...]
    """Open questions, with the reason."""
