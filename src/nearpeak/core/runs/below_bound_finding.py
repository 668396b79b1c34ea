"""Finding of a measurement below its bound, with the evidence for finding the cause."""

from collections.abc import Mapping
from dataclasses import dataclass

CAUSES = (
    "open", "gaming", "wrong_result", "algebraic_shortcut", "algorithm_outside_class", "precision_below_policy",
    "warm_cache", "peak_too_low", "capture_error",
)  # fmt: skip
"""Possible causes; `open` until one is established."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BelowBound:
    """One case that ran faster than its bound permits: a rule, a figure, a timer or an assumption is wrong."""

    label: str
    """The case in one line."""
    digest: str
    """Identity of the case."""
    measured_s: float
    """Shortest run."""
    samples_s: tuple[float, ...]
    """All runs."""
    timer_s: float
    """Resolution of the timer, which the measurement stays below the bound by more than."""
    bound_s: float
    """Time that nothing should beat."""
    limiter: str
    """Term that sets it."""
    terms_s: Mapping[str, float]
    """Time by term, models included."""
    runner: str
    """What measured."""
    assumptions: tuple[str, ...]
    """Identifiers of what the bound rests on: one of them may not hold."""
    cause: str = "open"
    """One of CAUSES."""
