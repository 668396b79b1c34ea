"""A test suite: distinct cases with the reasons for including each and its call counts per workload."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nearpeak.core.records.converter import COUNT
from nearpeak.core.records.record_codec import Shape, defaulted
from nearpeak.core.work.case import Case

REASONS = ("usecase", "directed")
"""Reason for a case: a workload calls it, or a test rule requires it."""


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
    """Rule that requires it."""
    call_count: int = 0
    """Calls per step of the source; 0 where nothing was counted."""


WHY = Shape(names={"call_count": "calls"}, brief=defaulted(Why), fields={"call_count": COUNT})
"""Codec of reasons; empty fields are omitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteCase:
    """A case of a suite."""

    case: Case
    """The case to run."""
    why: tuple[Why, ...]
    """Reasons, in a fixed order; a case without one does not exist."""
    chosen: bool = True
    """Whether it is run; others still count in the denominator of coverage."""

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
    """Calls without an operator, by name; no case represents them."""
    origin: Mapping[str, str] = field(default_factory=dict)
    """Origin: file, inputs, source of the dimensions, versions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Cases with their reasons."""

    name: str
    """Name for people."""
    cases: tuple[SuiteCase, ...]
    """All distinct cases, by operator, phase and digest."""
    sources: tuple[Source, ...]
    """Workloads it was built from, in the order of addition."""
    plan: Mapping[str, str] = field(default_factory=dict)
    """Selection of cases: goal, target, kind of time; empty when all are run."""
    infeasible: Mapping[str, str] = field(default_factory=dict)
    """Directed obligations that no legal case was found for, by name, with what the last trial was refused for."""

    @property
    def chosen(self) -> tuple[SuiteCase, ...]:
        """Return the cases that are run."""
        return tuple(case for case in self.cases if case.chosen)
