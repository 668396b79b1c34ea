"""The bound of one case, with its proof in terms."""

from nearpeak.core.bound import PROVED, Bound, Policy, Term
from nearpeak.core.case import Case
from nearpeak.core.target import Target
from nearpeak.core.work import Work
from nearpeak.ops import work_of
from nearpeak.theory.terms import assumptions_of, roofline_s, terms_of

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
    return work_bound(work_of(case), target, policy)


def work_bound(work: Work, target: Target, policy: Policy = STRICT) -> Bound:
    """Return the bound of `work` on `target`."""
    terms = tuple(
        Term(name=column.name, time_s=column.time_s, status=column.status, formula=column.formula)
        for column in terms_of(work, target, policy)
    )
    limiting = max((term for term in terms if term.status == PROVED), key=lambda term: term.time_s)
    floor_s = None if target.launch_floor_s is None else target.launch_floor_s * work.launch_count
    return Bound(
        time_s=limiting.time_s,
        limiter=limiting.name,
        terms=terms,
        roofline_s=roofline_s(work, target, policy),
        launch_floor_s=floor_s,
        assumptions=assumptions_of(work, target, policy),
    )
