"""All terms of a bound, one per resource, for single cases and columns of cases."""

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import Any

from nearpeak.bounds.terms.dependency_depth import depth_terms
from nearpeak.bounds.terms.group_barrier import barrier_terms
from nearpeak.bounds.terms.link_traffic import link_assumptions, link_terms
from nearpeak.bounds.terms.memory_traffic import bandwidth_of, dram_term, l2_terms
from nearpeak.bounds.terms.special_function_term import special_terms
from nearpeak.bounds.terms.storage_capacity import capacity_terms
from nearpeak.bounds.terms.term_column import TermColumn, larger
from nearpeak.bounds.terms.unit_rates import matrix_rate, vector_rate
from nearpeak.core.answers.bound import MODEL, PROVED, Policy, Term
from nearpeak.core.work.target import Target
from nearpeak.core.work.work import Work

_VECTOR_FORMATS = {"vector.fp32": "fp32", "vector.fp64": "fp64"}
_STORED = ("capacity", "ingress", "barrier")
"""Terms that rest on how much the chip can hold."""


def terms_of(work: Work, target: Target, policy: Policy, case_count: int = 1) -> tuple[TermColumn, ...]:
    """Return the terms of `work`, the sum of that many cases, on `target`; its counts may be integers or arrays."""
    return (
        dram_term(work, target, policy, case_count),
        *l2_terms(work, target),
        *_matrix(work, target, policy),
        *capacity_terms(work, target, policy),
        *barrier_terms(work, target, policy),
        *link_terms(work, target, policy),
        *depth_terms(work, target),
        *_vector(work, target),
        *special_terms(work, target),
    )


def proved_s(work: Work, target: Target, policy: Policy) -> Any:
    """Return the bound alone: the largest proved term."""
    return reduce(larger, [term.time_s for term in terms_of(work, target, policy) if term.status == PROVED])


def roofline_s(work: Work, target: Target, policy: Policy) -> Any:
    """Return the plain roofline: documented rates, every byte charged."""
    memory_s = (work.read_bytes + work.write_bytes) / bandwidth_of(target)
    for term in link_terms(work, target, policy):
        memory_s = larger(memory_s, term.time_s)
    matrix = _matrix(work, target, policy, documented=True)
    return larger(memory_s, matrix[0].time_s) if matrix else memory_s


def assumptions_of(work: Work, target: Target, policy: Policy, terms: Iterable[Term] = ()) -> tuple[str, ...]:
    """Return the identifiers of what the proved ones of `terms`, which are those of `work`, rest on."""
    stored = any(term.name in _STORED and term.status == PROVED for term in terms)
    classical = policy.algorithm == "classical"
    names = ["A1", *(["A2"] if classical else []), "A3", *(["A4"] if policy.cold_inputs else [])]
    names += [*(["A5"] if policy.output_credit else []), "A6", "A7", "A9", "A11"]
    names += [*(["A12"] if target.measured else []), "A13", *(["A14"] if stored else [])]
    return (*names, *link_assumptions(work, target, policy), *([] if classical else ["A19"]))


def _matrix(work: Work, target: Target, policy: Policy, *, documented: bool = False) -> Sequence[TermColumn]:
    """Charge all products, formats one after the other as they share the units."""
    total = None
    parts: list[str] = []
    quantities: dict[str, Any] = {}
    for kind, flop in work.flop.items():
        family, _, dtype = kind.partition(".")
        if family == "matrix":
            rate = matrix_rate(target, dtype, policy.dtype, documented=documented)[1]
            total = flop / rate if total is None else total + flop / rate
            count, speed = f"matrix_{dtype}_flop", f"matrix_{dtype}_flop_per_s"
            parts.append(f"{count} / {speed}")
            quantities |= {count: flop, speed: rate}
    if total is None:
        return ()
    formula = "sum of FLOP / rate over formats"
    return (
        TermColumn(
            name="matrix", time_s=total, status=PROVED, formula=formula,
            expression=" + ".join(parts), quantities=quantities,
        ),
    )  # fmt: skip


def _vector(work: Work, target: Target) -> Sequence[TermColumn]:
    """Charge element-wise arithmetic; a model, as linear parts may also run on matrix units."""
    total = None
    parts: list[str] = []
    quantities: dict[str, Any] = {}
    for kind, flop in work.flop.items():
        if kind in _VECTOR_FORMATS and kind in target.peaks:
            rate = vector_rate(target, _VECTOR_FORMATS[kind])[1]
            total = flop / rate if total is None else total + flop / rate
            name = kind.replace(".", "_")
            parts.append(f"{name}_flop / {name}_flop_per_s")
            quantities |= {f"{name}_flop": flop, f"{name}_flop_per_s": rate}
    if total is None:
        return ()
    return (
        TermColumn(
            name="vector", time_s=total, status=MODEL, formula="vector FLOP / vector rate",
            expression=" + ".join(parts), quantities=quantities,
        ),
    )  # fmt: skip
