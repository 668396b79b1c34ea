"""The terms of a bound: one conservation law per resource, for one case or for columns of cases alike."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearpeak.core.bound import MODEL, PROVED, Policy
from nearpeak.core.target import Target
from nearpeak.core.work import Work
from nearpeak.errors import NotModelledError
from nearpeak.theory.links import link_assumptions, link_times
from nearpeak.theory.rates import matrix_rate, vector_rate

_VECTOR_FORMATS = {"vector.fp32": "fp32", "vector.fp64": "fp64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class TermColumn:
    """One term for one case (a float) or for many (an array)."""

    name: str
    """Resource."""
    time_s: Any
    """Time, a float or an array."""
    status: str
    """`proved` or `model`."""
    formula: str
    """How the time follows."""


def terms_of(work: Work, target: Target, policy: Policy) -> tuple[TermColumn, ...]:
    """Return the terms of `work` on `target`; the counts of `work` may be integers or arrays."""
    found = [_dram(work, target, policy)]
    if target.l2.bandwidth_bytes_per_s:
        time_s = (work.read_bytes + work.write_bytes) / target.l2.bandwidth_bytes_per_s
        found.append(TermColumn(name="l2", time_s=time_s, status=PROVED, formula="(read + write) / L2 bandwidth"))
    found += _matrix(work, target, policy)
    found += _vector(work, target)
    found += _special(work, target)
    found += [
        TermColumn(name=name, time_s=time_s, status=PROVED, formula=formula)
        for name, time_s, formula in link_times(work, target, policy)
    ]
    return tuple(found)


def roofline_s(work: Work, target: Target, policy: Policy) -> Any:
    """Return the plain roofline: documented rates, every byte charged."""
    memory_s = (work.read_bytes + work.write_bytes) / _bandwidth(target)
    for _name, time_s, _formula in link_times(work, target, policy):
        memory_s = larger(memory_s, time_s)
    matrix_s = _matrix_s(work, target, policy, documented=True)
    return memory_s if matrix_s is None else larger(memory_s, matrix_s)


def assumptions_of(work: Work, target: Target, policy: Policy) -> tuple[str, ...]:
    """Return the identifiers of what the proved terms rest on."""
    found = ["A1", "A2", "A3", *(["A4"] if policy.cold_inputs else [])]
    found += [*(["A5"] if policy.output_credit else []), "A6", "A7", "A9", "A11"]
    return (*found, *(["A12"] if target.measured else []), "A13", *link_assumptions(work, policy))


def larger(left: Any, right: Any) -> Any:
    """Return the larger time, element by element.

    >>> larger(1.0, 2.0)
    2.0
    """
    if isinstance(left, float) and isinstance(right, float):
        return max(left, right)
    return np.maximum(left, right)


def _dram(work: Work, target: Target, policy: Policy) -> TermColumn:
    """Charge what must cross the pins: cold inputs, and outputs beyond what a cache may keep."""
    cache_bytes = target.l2.capacity_bytes
    writes = _beyond(work.write_bytes, cache_bytes) if policy.output_credit else work.write_bytes
    reads = work.read_bytes if policy.cold_inputs else _beyond(work.read_bytes, cache_bytes)
    formula = "(read + (write - L2)+) / DRAM bandwidth" if policy.output_credit else "(read + write) / DRAM bandwidth"
    return TermColumn(name="dram", time_s=(reads + writes) / _bandwidth(target), status=PROVED, formula=formula)


def _beyond(size_bytes: Any, cache_bytes: int | None) -> Any:
    """Return the bytes beyond the cache's capacity; an unknown capacity could hold them all."""
    if cache_bytes is None:
        return size_bytes * 0
    if isinstance(size_bytes, int):
        return max(size_bytes - cache_bytes, 0)
    return np.maximum(size_bytes - cache_bytes, 0)


def _matrix(work: Work, target: Target, policy: Policy) -> Sequence[TermColumn]:
    time_s = _matrix_s(work, target, policy, documented=False)
    if time_s is None:
        return ()
    return (TermColumn(name="matrix", time_s=time_s, status=PROVED, formula="sum of FLOP / rate over formats"),)


def _matrix_s(work: Work, target: Target, policy: Policy, *, documented: bool) -> Any:
    """Return the time of all products, formats one after the other as they share the units."""
    total = None
    for kind, flop in work.flop.items():
        family, _, dtype = kind.partition(".")
        if family == "matrix":
            rate = matrix_rate(target, dtype, policy.dtype, documented=documented)[1]
            total = flop / rate if total is None else total + flop / rate
    return total


def _vector(work: Work, target: Target) -> Sequence[TermColumn]:
    """Charge element-wise arithmetic; a model, as linear parts may also run on matrix units."""
    total = None
    for kind, flop in work.flop.items():
        if kind in _VECTOR_FORMATS and kind in target.peaks:
            time_s = flop / vector_rate(target, _VECTOR_FORMATS[kind])[1]
            total = time_s if total is None else total + time_s
    if total is None:
        return ()
    return (TermColumn(name="vector", time_s=total, status=MODEL, formula="vector FLOP / vector rate"),)


def _special(work: Work, target: Target) -> Sequence[TermColumn]:
    """Charge special functions; a model, as polynomials on the vector units are another route."""
    count: Any = work.special_count
    if target.special_per_clock is None or (isinstance(count, int) and count == 0):
        return ()
    rate = target.special_per_clock * target.sm_count * target.clock_hz
    time_s = count / rate
    return (TermColumn(name="special", time_s=time_s, status=MODEL, formula="special functions / special rate"),)


def _bandwidth(target: Target) -> float:
    if target.dram.bandwidth_bytes_per_s is None:
        raise NotModelledError(f"{target.name}: no DRAM bandwidth is documented, so no bound on memory traffic")
    return target.dram.bandwidth_bytes_per_s
