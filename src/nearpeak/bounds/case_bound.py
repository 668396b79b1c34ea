"""Bound of one case: its terms, limiter, roofline, assumptions and interval."""

import dataclasses
from collections.abc import Iterable

from nearpeak.bounds.terms.bound_terms import assumptions_of, roofline_s, terms_of
from nearpeak.core.answers.bound import PROVED, Bound, Interval, Policy, Term
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.core.work.work import Work
from nearpeak.ops import OPS, work_of
from nearpeak.ops.shared.definition.data_dependence import highest_case

STRICT = Policy()
"""The default policy."""


def case_bound(case: Case, target: Target, policy: Policy = STRICT) -> Bound:
    """Return the bound of `case` on `target`.

    >>> from nearpeak.ops import case
    >>> from nearpeak.targets import target_of
    >>> bound = case_bound(case("gemm", m=4096, n=4096, k=4096, dtype="bf16"), target_of("h100_sxm"))
    >>> round(bound.time_s * 1e6, 1), bound.limiter
    (128.4, 'matrix')
    """
    bound = work_bound(work_of(case, policy.algorithm), target, policy)
    rests_on = merged(bound.assumptions, OPS[case.op].assumptions)
    return dataclasses.replace(bound, interval=interval_of(case, bound, target, policy), assumptions=rests_on)


def merged(names: Iterable[str], more: Iterable[str]) -> tuple[str, ...]:
    """Return identifiers of assumptions, each once and in their order.

    >>> merged(("A1", "A10"), ("A9", "A1"))
    ('A1', 'A9', 'A10')
    """
    return tuple(sorted({*names, *more}, key=lambda name: int(name[1:])))


def interval_of(case: Case, low: Bound, target: Target, policy: Policy) -> Interval | None:
    """Return the ends of the bound of `case` where it depends on values that the case does not give."""
    highest = highest_case(case)
    if highest is None:
        return None
    high_s = work_bound(work_of(highest, policy.algorithm), target, policy).time_s
    return Interval(low_s=low.time_s, high_s=max(low.time_s, high_s), axes=tuple(OPS[case.op].data_axes))


def work_bound(work: Work, target: Target, policy: Policy = STRICT, case_count: int = 1) -> Bound:
    """Return the bound of `work` on `target`; of the sum of `case_count` unrelated cases, its terms."""
    terms = tuple(
        Term(
            name=column.name, time_s=column.time_s, status=column.status, formula=column.formula,
            expression=column.expression, quantities=column.quantities,
        )
        for column in terms_of(work, target, policy, case_count)
    )  # fmt: skip
    limiting = max((term for term in terms if term.status == PROVED), key=lambda term: term.time_s)
    floor_s = None if target.launch_floor_s is None else target.launch_floor_s * work.launch_count
    return Bound(
        time_s=limiting.time_s,
        limiter=limiting.name,
        terms=terms,
        roofline_s=roofline_s(work, target, policy),
        launch_floor_s=floor_s,
        assumptions=assumptions_of(work, target, policy, terms),
    )
