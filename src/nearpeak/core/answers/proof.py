"""The proof of a bound as plain data: every term with the figures it follows from, for independent checks."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nearpeak.core.answers.bound import Interval, Policy, Rewritten

ENGINE_VERSION = 1
# 1: terms of nearpeak.core.answers.bound.TERMS; raised whenever a term's expression changes its meaning.


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One figure of a term."""

    name: str
    """Name in the expression; its suffix is the unit."""
    value: float
    """The figure."""
    origin: str
    """`rule` (counted from the case), `datasheet`, `derived`, `measured` or `definition`."""
    source: str
    """Document, unit or rule behind it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvedTerm:
    """One term with everything that its time follows from."""

    name: str
    """Resource: one of nearpeak.core.answers.bound.TERMS."""
    status: str
    """`proved`, or `model`; only proved terms set the bound."""
    time_s: float
    """Time of this term alone."""
    formula: str
    """Formula of the time, for readers."""
    expression: str
    """The same over the quantities: + - * / and max, sqrt, log2."""
    quantities: tuple[Quantity, ...]
    """Figures that the expression uses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A bound's claim with all of its premises."""

    subject: str
    """Digest of the case, or name of the workload."""
    target: str
    """Target name."""
    bound_s: float
    """Time nothing can beat."""
    limiter: str
    """Term that sets it."""
    summed: bool
    """True for a list of cases: the bound is the sum of their own bounds, and at least the largest proved term."""
    terms: tuple[ProvedTerm, ...]
    """All terms."""
    policy: Policy
    """What the bound allows a program to do."""
    assumptions: tuple[str, ...]
    """Identifiers of what the proved terms rest on."""
    uncovered: Mapping[str, int] = field(default_factory=dict)
    """Calls without a rule, by name; with any, the bound is a lower estimate."""
    interval: Interval | None = None
    """Ends of the bound where it depends on values that are not given."""
    as_written_s: float | None = None
    """Bound of the step as written, where rewriting it algebraically lowers the bound; none elsewhere."""
    rewrites: tuple[Rewritten, ...] = ()
    """What was rewritten: the figures of the terms are those of the rewritten step."""
    engine: str = ""
    """Version of nearpeak."""
    version: int = ENGINE_VERSION
    """Version of the terms."""
