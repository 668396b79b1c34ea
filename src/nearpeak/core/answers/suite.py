"""A suite: distinct cases, each with the reasons for which it exists and how often each workload calls it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nearpeak.core.records.converter import COUNT
from nearpeak.core.records.record_codec import Shape, defaulted
from nearpeak.core.work.case import Case

REASONS = ("usecase", "directed")
"""Why a case exists: a workload calls it, or a rule asks for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Why:
    """One reason for a case."""

    kind: str
    """One of REASONS."""
    source: str
    """Name of the source that gave it."""
    module: str = ""
    """Module path, numbers of repeated layers replaced by `*`."""
    line: str = ""
    """File and line of the call."""
    rule: str = ""
    """Rule that asked for it."""
    call_count: int = 0
    """Calls per step of the source; 0 where nothing was counted."""


WHY = Shape(names={"call_count": "calls"}, brief=defaulted(Why), fields={"call_count": COUNT})
"""How reasons are written: what says nothing is left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteCase:
    """A case of a suite."""

    case: Case
    """What is run."""
    why: tuple[Why, ...]
    """Reasons, in a fixed order; a case without one does not exist."""
    chosen: bool = True
    """Whether it is run; one that is not still counts in what coverage is a share of."""

    @property
    def call_count(self) -> int:
        """Calls of all sources together."""
        return sum(why.call_count for why in self.why)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A workload or file of rules that a suite was built from."""

    name: str
    """Name and step, e.g. `llama-3-8b decode`."""
    digest: str
    """SHA-256 over its cases, counts and places: the same one is never counted twice."""
    kind: str = "usecase"
    """One of REASONS."""
    call_count: int = 0
    """Calls that an operator of the catalogue covers."""
    uncovered: Mapping[str, int] = field(default_factory=dict)
    """Calls that no operator covers, by name: no case stands for them."""
    origin: Mapping[str, str] = field(default_factory=dict)
    """Where it came from: file, inputs, source of the dimensions, versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Cases with their reasons."""

    name: str
    """Name for people."""
    cases: tuple[SuiteCase, ...]
    """All distinct cases, by operator, phase and digest."""
    sources: tuple[Source, ...]
    """What it was built from, in the order in which it was added."""
    plan: Mapping[str, str] = field(default_factory=dict)
    """How the chosen cases were chosen: goal, target, kind of time; empty when all are run."""
    infeasible: Mapping[str, str] = field(default_factory=dict)
    """Directed obligations that no legal case was found for, by name, with what the last trial was refused for."""

    @property
    def chosen(self) -> tuple[SuiteCase, ...]:
        """Return the cases that are run."""
        return tuple(one for one in self.cases if one.chosen)
