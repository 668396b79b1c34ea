"""The expected value of one output: float64 results with the error bound of each element."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nearpeak.core.work.case import Case
from nearpeak.ops import OPS, Tolerance

SPREAD = 6.0
"""Standard deviations of a sum of rounding errors that the bound allows: SPREAD * sqrt(length) roundoffs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """The expected value of one output or gradient."""

    values: Any
    """Float64 values, or integers."""
    rounded: Any
    """The values after rounding to the output's format."""
    bound: Any
    """Greatest permitted difference to `values`, element by element."""
    spread: Any
    """Root mean square error of a correct result, element by element."""
    floor: Any
    """The part of it that every implementation has: final rounding, and rounding in sums."""
    inner: Any
    """The part of `bound` without the final rounding."""
    once: bool
    """Whether results may be rounded to the output's format no more often than the tolerance states."""
    dtype: str
    """Format of the output."""
    ends: tuple[tuple[Any, Any], ...] = ()
    """Least and largest results of each permitted way to round; none where only final rounding is permitted."""


def arguments_of(case: Case) -> dict[str, Any]:
    """Return the arguments of rule, reference and PyTorch call."""
    return {**dict(case.axes), **dict(case.dtypes), **dict(case.attributes)}


def tolerance_of(case: Case) -> Tolerance:
    """Return the operator's tolerance for the attributes of `case`."""
    return tolerance(case.op, arguments_of(case))


def tolerance(op: str, arguments: Mapping[str, Any]) -> Tolerance:
    """Return the tolerance of `op` for these arguments.

    Operators that only select or count are exact, and get a round of neighbouring floats.

    >>> tolerance("reduce", {"function": "sum"}).kind, tolerance("reduce", {"function": "argmax"}).kind
    ('normalisation', 'exact')
    """
    numerics = OPS[op].tolerance
    named = {name: value for name, value in arguments.items() if isinstance(value, str)}
    chosen = {*named.values(), *(f"{name}={value}" for name, value in named.items())}
    rows = [entry.partition(":") for entry in numerics.rounds]
    numerics = replace(numerics, rounds=tuple(kind for kind, _, choice in rows if not choice or choice in chosen))
    numerics = replace(numerics, by_element=tuple(chosen.intersection(numerics.by_element)))
    if numerics.step_if and arguments.get(numerics.step_if):
        numerics = replace(numerics, steps_count=numerics.steps_count + 1)
    if chosen.intersection(numerics.exact):
        return replace(numerics, kind="exact", steps_count=0, rounds=(*numerics.rounds, "close"))
    if numerics.gates and arguments.get(numerics.gates):
        return replace(numerics, gates="always")
    return numerics


def sum_length(numerics: Tolerance, arguments: Mapping[str, Any]) -> float:
    """Return the length of the longest sum that the tolerance names, 1 where nothing is summed."""
    return float(max(np.prod([arguments[axis] for axis in numerics.reduction.split()], dtype=float), 1.0))
