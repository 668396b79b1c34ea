"""Special-function term: the best split of exp, log and roots between special units and polynomials."""

from collections.abc import Sequence
from typing import Any

from nearpeak.bounds.terms.term_column import TermColumn, is_zero, larger
from nearpeak.bounds.terms.unit_rates import vector_rate
from nearpeak.core.answers.bound import MODEL
from nearpeak.core.work.target import Target
from nearpeak.core.work.work import Work

# With N evaluations, F other instructions, rates R_m and R_f of special units and vector pipe, and k vector
# instructions per polynomial: n of N on the special units need n / R_m, the rest (k (N - n) + F) / R_f. The best n
# makes both equal. A model: tables in shared memory, and matrix units for linear parts, are further routes.

POLYNOMIAL_COUNT = 6
"""Vector instructions for one exponential: scale and round, two to split, and three for a polynomial of degree 3."""


def special_terms(work: Work, target: Target) -> Sequence[TermColumn]:
    """Charge special functions, split at best between their own units and polynomials on the vector pipe."""
    count: Any = work.special_count
    if target.special_per_clock is None or (isinstance(count, int) and count == 0):
        return ()
    rate = target.special_per_clock * target.sm_count * target.clock_hz
    quantities = {"special_count": count, "special_per_s": rate}
    if "vector.fp32" not in target.peaks:
        return (_column(count / rate, "special functions / special rate", "special_count / special_per_s", quantities),)
    k, flop, pipe = POLYNOMIAL_COUNT, work.flop.get("vector.fp32", 0), vector_rate(target, "fp32")[1]
    split_s = (k * count + flop / 2) / (pipe / 2 + k * rate)
    time_s = larger(flop / pipe, split_s) * (count > 0)
    if is_zero(time_s):
        return ()
    quantities |= {"polynomial_count": k, "vector_fp32_flop": flop, "vector_fp32_flop_per_s": pipe}
    split = "(polynomial_count * special_count + vector_fp32_flop / 2)"
    rates = "(vector_fp32_flop_per_s / 2 + polynomial_count * special_per_s)"
    expression = f"max(vector_fp32_flop / vector_fp32_flop_per_s, {split} / {rates})"
    return (_column(time_s, "best split: special units and polynomials", expression, quantities),)


def _column(time_s: Any, formula: str, expression: str, quantities: dict[str, Any]) -> TermColumn:
    return TermColumn(
        name="special", time_s=time_s, status=MODEL, formula=formula, expression=expression, quantities=quantities
    )
