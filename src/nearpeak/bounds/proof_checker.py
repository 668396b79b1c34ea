"""Proofs of bounds: every quantity of a term with its source, and a checker that recomputes the terms."""

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from nearpeak.bounds.terms.link_traffic import HOST, links_of
from nearpeak.bounds.terms.unit_rates import matrix_rate, vector_rate
from nearpeak.core.answers.bound import PROVED, Bound, Policy
from nearpeak.core.answers.proof import Proof, ProvedTerm, Quantity
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError, SpecError

AGREEMENT_RATIO = 1e-12
"""Largest difference between a recorded time and the one worked out again, over the latter: rounding alone."""

_BINARY: Mapping[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip
_FUNCTIONS: Mapping[str, Callable[..., Any]] = {"max": max, "sqrt": math.sqrt, "log2": math.log2}
_LINK_RATES = {"link_bytes_per_s": "link", "host_bytes_per_s": HOST}
"""Rates of links with the term that they belong to."""
_REWRITTEN = ("A8", "A18")
"""Assumptions of every rewrite."""
_CONSTANTS = {
    "polynomial_count": "instructions of one polynomial, nearpeak.bounds.terms.special_function_term",
    "latency_clocks": "Jia et al. 2018, arXiv:1804.06826",
}


def proof_of(subject: str, bound: Bound, target: Target, policy: Policy, engine: str = "") -> Proof:
    """Return the proof of `bound`, each figure with its origin.

    >>> from nearpeak.ops import case
    >>> from nearpeak.targets import target_of
    >>> from nearpeak.bounds.case_bound import case_bound
    >>> gemm, device = case("gemm", m=64, n=64, k=64, dtype="bf16"), target_of("h100_sxm")
    >>> proof = proof_of(gemm.digest, case_bound(gemm, device), device, Policy())
    >>> verify(proof), [quantity.origin for quantity in proof.terms[0].quantities]
    (None, ['rule', 'rule', 'datasheet', 'datasheet'])
    """
    return Proof(
        subject=subject, target=target.name, bound_s=bound.time_s, limiter=bound.limiter, summed=bound.summed,
        terms=tuple(
            ProvedTerm(
                name=term.name, status=term.status, time_s=term.time_s, formula=term.formula,
                expression=term.expression,
                quantities=tuple(_quantity(name, value, target, policy) for name, value in term.quantities.items()),
            )
            for term in bound.terms
        ),
        policy=policy,
        assumptions=bound.assumptions, uncovered=bound.uncovered, interval=bound.interval, engine=engine,
        as_written_s=bound.as_written_s, rewrites=bound.rewrites,
    )  # fmt: skip


def verify(proof: Proof) -> None:
    """Work out every term of `proof` again from its own figures, and the bound from the proved terms.

    Raises:
        SpecError: a time does not follow from the figures, or the bound is not the largest proved term; both are named.
    """
    where = f"proof of {proof.subject} on {proof.target}"
    for term in proof.terms:
        recomputed_s = evaluated(
            term.expression, {quantity.name: quantity.value for quantity in term.quantities}, f"{where}: {term.name}"
        )
        _agree(f"{where}: {term.name}", term.time_s, recomputed_s)
    proved = {term.name: term.time_s for term in proof.terms if term.status == PROVED}
    if not proved:
        raise SpecError(f"{where}: has no proved term; a bound is the largest of them")
    if proof.interval is not None and proof.interval.low_s > proof.interval.high_s:
        raise SpecError(f"{where}: its interval ends at {proof.interval.high_s} s, below its start")
    _check_rewrites(proof, where)
    if proof.summed:
        if proof.bound_s < max(proved.values()) * (1 - AGREEMENT_RATIO):
            raise SpecError(f"{where}: bound_s is {proof.bound_s}, below the proved term {max(proved.values())}")
        return
    if proof.limiter not in proved:
        raise SpecError(f"{where}: limiter {proof.limiter!r} is no proved term; there are {', '.join(proved)}")
    _agree(f"{where}: bound_s", proof.bound_s, max(proved.values()))
    _agree(f"{where}: limiter {proof.limiter}", proved[proof.limiter], max(proved.values()))


def _check_rewrites(proof: Proof, where: str) -> None:
    """Refuse a simplified step that names no rewrite, does not rest on them, or beats no step as written."""
    if proof.as_written_s is None and not proof.rewrites:
        return
    if proof.as_written_s is None or not proof.rewrites:
        raise SpecError(f"{where}: a simplified step states as_written_s and its rewrites, or neither")
    if proof.as_written_s <= proof.bound_s:
        raise SpecError(f"{where}: as_written_s is {proof.as_written_s}, not above the simplified bound_s")
    if missing := [name for name in _REWRITTEN if name not in proof.assumptions]:
        raise SpecError(f"{where}: was rewritten, which rests on {', '.join(missing)} too")


def evaluated(expression: str, quantities: Mapping[str, float], where: str = "expression") -> float:
    """Return the value of `expression`: numbers, the names in `quantities`, + - * / and max, sqrt, log2.

    >>> evaluated("max(read_bytes - l2_bytes, 0) / 2", {"read_bytes": 10, "l2_bytes": 4})
    3.0
    """
    try:
        return float(_value(ast.parse(expression, mode="eval").body, quantities))
    except (SyntaxError, ValueError, ZeroDivisionError, LookupError, TypeError, RecursionError, OverflowError) as error:
        raise SpecError(f"{where}: {expression!r} cannot be evaluated: {error}") from None


def _value(node: ast.expr, quantities: Mapping[str, float]) -> Any:
    match node:
        case ast.Constant(value=int() | float() as value):
            return value
        case ast.Name(id=name) if name in quantities:
            return quantities[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](_value(left, quantities), _value(right, quantities))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*(_value(argument, quantities) for argument in args))
    raise ValueError(f"{ast.unparse(node)!r} is neither a number, a stated quantity, + - * / nor max, sqrt, log2")


def _agree(where: str, stated_s: float, found_s: float) -> None:
    if not math.isclose(stated_s, found_s, rel_tol=AGREEMENT_RATIO, abs_tol=0.0):
        raise SpecError(f"{where}: states {stated_s!r} s, but its quantities give {found_s!r} s")


def _quantity(name: str, value: float, target: Target, policy: Policy) -> Quantity:
    origin, source = _origin(name, target, policy)
    return Quantity(name=name, value=value, origin=origin, source=source)


def _origin(name: str, target: Target, policy: Policy) -> tuple[str, str]:
    """Return where a figure comes from and the document behind it."""
    if name in _CONSTANTS:
        return "definition", _CONSTANTS[name]
    if name.endswith("_flop_per_s"):
        return _rate_origin(name.removesuffix("_flop_per_s"), target, policy)
    if name in _LINK_RATES:
        links = links_of(target, _LINK_RATES[name])
        return _kind(target, verified=all(link.verified for link in links)), "; ".join(link.source for link in links)
    if name == "network_bytes_per_s":
        return "datasheet", "all links of a node by the tiers of its fabric, each with its source in the fabric's file"
    stated = {
        "dram_bytes_per_s": ("dram", target.dram.source),
        "l2_bytes_per_s": ("l2", target.l2.source),
        "l2_bytes": ("l2", target.l2.source),
        "storage_bytes": ("on_chip", f"{target.on_chip_source}; {target.l2.source}"),
        "multiprocessors_bytes": ("on_chip", target.on_chip_source),
        "special_per_s": ("special", target.special_source),
        "clock_hz": ("clock", target.clock_source),
    }
    if name in stated:
        entry, source = stated[name]
        return _kind(target, verified=entry not in target.unverified), source
    return "rule", "counted from the case by its operator's rule"


def _rate_origin(name: str, target: Target, policy: Policy) -> tuple[str, str]:
    family, _, dtype = name.partition("_")
    try:
        unit = (matrix_rate(target, dtype, policy.dtype) if family == "matrix" else vector_rate(target, dtype))[0]
    except NotModelledError:
        return "rule", name
    peak = target.peaks[unit.split(" in ")[0]]
    return _kind(target, verified=peak.verified), f"{unit} at the highest permitted clock: {peak.source}"


def _kind(target: Target, *, verified: bool) -> str:
    if target.measured:
        return "measured"
    return "datasheet" if verified else "derived"
