"""Findings of a trace analysis: claim, evidence, counter-evidence, gain and refutation test, or an abstention."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from nearpeak.core.answers.notebook_display import html_of
from nearpeak.core.traces.executed_run import Executed
from nearpeak.core.traces.shortfall import Shortfall


class Planted(NamedTuple):
    """Hit rate of a kind of finding on traces with a known cause."""

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
    """Change of one item without a cause; none leaves it unchanged."""

    item: int
    """Position of the item."""
    before_ns: int | None = None
    """Host time before the call."""
    call_ns: int | None = None
    """Host time in the call."""
    device_ns: int | None = None
    """Length of its work."""
    lag_ns: int | None = None
    """Delay of its start."""
    lane: int | None = None
    """Stream on which it runs instead."""
    waits: int | None = None
    """New host dependency."""
    after: tuple[int, ...] | None = None
    """New predecessor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One figure behind a claim."""

    what: str
    """Counted or timed quantity."""
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
    """Subject of the search."""
    state: str
    """`found`, `not found` or `not observable`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceFinding:
    """One claim about the steps of a trace."""

    id: str
    """Kind of finding, as in the catalogue."""
    key: str
    """Instance: stream, kernel or operator; empty where there is one only."""
    claim: str
    """One falsifiable sentence with numbers."""
    evidence: tuple[Evidence, ...]
    """Figures behind it."""
    counter: tuple[Counter, ...]
    """Counter-evidence that was examined."""
    gain_s: float
    """Expected gain of a step."""
    gain_low_s: float
    """Low end."""
    gain_high_s: float
    """High end: nothing beats this."""
    scope: str
    """`local` for a part, `global` for the step."""
    method: str
    """Derivation of the gain: `replay`, `bound` or `none`."""
    falsifier: str
    """The cheapest experiment that would refute it, and what it is predicted to show."""
    changes: tuple[Change, ...] = ()
    """Changes of the queues without the cause."""
    remedies: tuple[tuple[str, float], ...] = ()
    """Remedies, each with an upper bound of its gain in seconds."""
    terms: tuple[tuple[str, float], ...] = ()
    """Parts of the gain in seconds, less what other queues hide; they sum to the gain."""
    remedy_of: str = ""
    """Kind of finding whose cause this removes; it ranks behind that one without a separate gain."""
    planted: Planted | None = None
    """Hit rate of this kind on traces with planted causes; none if not measured."""

    @property
    def action(self) -> str:
        """Return what to do: the experiment that would refute it, without what it should show."""
        return self.falsifier.partition(":")[0]


LARGE_RATIO = 0.1
"""Part of a step beyond which a part that no rule judged forbids a conclusion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """A part of a step's time, and which rules judged it; the parts add up to the step."""

    name: str
    """`computing`, `communication alone`, `idle: …` and others."""
    time_s: float
    """Its time in a step."""
    share_ratio: float
    """Part of the step."""
    judges: tuple[str, ...]
    """Kinds of finding that were looked for in it with all the evidence that they need; of communication, copies and
    fills only those that were found."""
    reason: str
    """Why there are none; empty where there are."""

    @property
    def is_large(self) -> bool:
        """Whether it is too large to go without a word."""
        return self.share_ratio > LARGE_RATIO

    @property
    def is_open(self) -> bool:
        """Whether it is large, and no rule judged it."""
        return self.is_large and not self.judges


@dataclass(frozen=True, slots=True, kw_only=True)
class Abstained:
    """An abstention: a finding that the trace cannot decide."""

    id: str
    """Kind of finding."""
    reason: str
    """Missing data, and how to record them."""


class Unseen(NamedTuple):
    """Calls of a model that a trace does not show; of a step."""

    label: str
    """Their computation."""
    call_count: float
    """Count."""
    expected_s: float | None
    """Their expected time together; none where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelJoin:
    """Captured calls of a model matched to executed operators, per step."""

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
    """Abstentions."""
    together_s: float
    """Gain of a step if all causes were gone at once: never their sum."""
    exclusive: tuple[tuple[str, str], ...]
    """Pairs of findings that take the same time away, whose gains do not add up."""
    terms: tuple[Term, ...] = ()
    """Parts of a step, longest first, each with the rules that judged it; none where the trace was refused."""
    refused: str = ""
    """Why the trace allows no conclusion at all; empty where it allows some."""
    shortfall: Shortfall | None = None
    """Causes of executed above expected time; none where no operator has an expected time."""
    model: str = ""
    """Model that was expected; empty where the operators that ran are their own expectation."""
    created: str = ""
    """Version of nearpeak."""
    join: ModelJoin | None = None
    """Match of that model's calls with executed operators; none without a model."""

    @property
    def step_s(self) -> float:
        """Return the mean length of a step; without the profiler where somebody measured that, and it is shorter."""
        recorded_s = self.executed.window_ns * 1e-9 / self.executed.step_count
        return min(recorded_s, self.executed.unprofiled_step_s or recorded_s)

    def _repr_html_(self) -> str | None:
        """Return what a notebook shows."""
        return html_of(self)


def gains_by_id(report: TraceReport) -> Mapping[str, float]:
    """Return the largest gain of each kind of finding."""
    gains: dict[str, float] = {}
    for finding in report.findings:
        gains[finding.id] = max(gains.get(finding.id, 0.0), finding.gain_s)
    return gains
