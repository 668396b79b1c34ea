"""What was found in a trace: a claim with evidence, counter-evidence, gain and a way to refute it, or an abstention."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from nearpeak.core.traces.executed_run import Executed
from nearpeak.core.traces.shortfall import Shortfall


class Planted(NamedTuple):
    """How often a kind of finding comes first in traces whose cause is known."""

    date: str
    """Day on which it was counted."""
    trace_count: int
    """Traces that have its cause."""
    right_count: int
    """Those of them in which it comes first."""
    other_count: int
    """Traces that have another cause, or none."""
    wrong_count: int
    """Those of them in which it comes first."""


class Change(NamedTuple):
    """What would be different about one item if a cause were gone; none leaves it as it is."""

    item: int
    """Position of the item."""
    before_ns: int | None = None
    """Host time before the call."""
    call_ns: int | None = None
    """Host time in the call."""
    device_ns: int | None = None
    """Length of its work."""
    lag_ns: int | None = None
    """What it starts later than needed."""
    lane: int | None = None
    """Stream on which it runs instead."""
    waits: int | None = None
    """What the host waits for instead."""
    after: tuple[int, ...] | None = None
    """What it runs after instead."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One figure behind a claim."""

    what: str
    """What was counted or timed."""
    value: float
    """The figure."""
    unit: str
    """Its unit, empty for counts and ratios."""
    events: tuple[int, ...] = ()
    """Events that it comes from, the first ones where there are many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counter:
    """Something that would contradict the claim, and whether it is there."""

    what: str
    """What was looked for."""
    state: str
    """`found`, `not found` or `not observable`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFinding:
    """One claim about the steps of a trace."""

    id: str
    """Kind of finding, as in the catalogue."""
    key: str
    """Which of that kind: stream, kernel or operator; empty where there is one only."""
    claim: str
    """One falsifiable sentence with numbers."""
    evidence: tuple[Evidence, ...]
    """Figures behind it."""
    counter: tuple[Counter, ...]
    """What was looked for against it."""
    gain_s: float
    """Expected gain of a step."""
    gain_low_s: float
    """Low end."""
    gain_high_s: float
    """High end: nothing beats this."""
    scope: str
    """`local` for a part, `global` for the step."""
    method: str
    """How the gain was worked out, `replay`, `bound` or `none`."""
    falsifier: str
    """The cheapest experiment that would refute it, and what it is predicted to show."""
    changes: tuple[Change, ...] = ()
    """What removing the cause changes in the queues."""
    remedies: tuple[tuple[str, float], ...] = ()
    """What would remove it, with the gain in seconds that bounds each."""
    terms: tuple[tuple[str, float], ...] = ()
    """What the gain is made of, in seconds, with what other queues hide of it; they sum to the gain."""
    remedy_of: str = ""
    """Kind of finding whose cause this removes; it stands behind that one and gains nothing of its own."""
    planted: Planted | None = None
    """How often this kind is right on traces with planted causes; none where that was not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abstained:
    """A finding about which nothing can be said."""

    id: str
    """Kind of finding."""
    reason: str
    """What is missing, and how to record it."""


class Unseen(NamedTuple):
    """Calls of a model that a trace does not show; of a step."""

    label: str
    """What they compute."""
    call_count: float
    """How many of them."""
    expected_s: float | None
    """Their expected time together; none where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelJoin:
    """How the captured calls of a model stand to what ran; of a step."""

    name: str
    """Model."""
    step_bound_s: float
    """Least time of its step."""
    bound_is_whole: bool
    """Whether that covers every call."""
    call_count: int
    """Calls that have a case."""
    seen_count: float
    """Those of them that ran, by operator, extents and formats."""
    unseen: tuple[Unseen, ...]
    """The others, most expected time first."""
    uncovered_count: int
    """Calls without a case, and those never seen without an expected time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceReport:
    """The steps of a trace and what was found in them."""

    executed: Executed
    """The steps."""
    verdict: str
    """One sentence."""
    findings: tuple[TraceFinding, ...]
    """Largest gain first."""
    abstentions: tuple[Abstained, ...]
    """What could not be told."""
    together_s: float
    """Gain of a step if all causes were gone at once: never their sum."""
    exclusive: tuple[tuple[str, str], ...]
    """Pairs of findings that take the same time away, whose gains do not add up."""
    shortfall: Shortfall | None = None
    """What stands between executed and expected time; none where no operator has an expected time."""
    model: str = ""
    """Model that was expected; empty where the operators that ran are their own expectation."""
    created: str = ""
    """Version of nearpeak."""
    join: ModelJoin | None = None
    """How that model's calls stand to what ran; none without one."""

    @property
    def step_s(self) -> float:
        """Return the mean length of a step; without the profiler where somebody measured that, and it is shorter."""
        recorded_s = self.executed.window_ns * 1e-9 / self.executed.step_count
        return min(recorded_s, self.executed.unprofiled_step_s or recorded_s)


def gains_by_id(report: TraceReport) -> Mapping[str, float]:
    """Return the largest gain of each kind of finding."""
    found: dict[str, float] = {}
    for one in report.findings:
        found[one.id] = max(found.get(one.id, 0.0), one.gain_s)
    return found
