"""Changes grouped before anybody is told, declared and suppressed ones, and what a new verdict does to an alert."""

import fnmatch
import math
from collections.abc import Collection, Sequence

from nearpeak.core.alert import CLOSED, check_step
from nearpeak.core.alert_group import (
    DOWNSTREAM,
    PRIMARY,
    RELATED,
    Candidate,
    Expectation,
    Group,
    Suppression,
)
from nearpeak.core.paired import IMPROVEMENT, INVARIANT, REGRESSION

Step = tuple[str, str]
"""State that an alert goes to, and the note of the event."""


def grouped(candidates: Sequence[Candidate]) -> tuple[Group, ...]:
    """Return the changes in groups, the earliest first; their order on the way in does not matter.

    Two changes are one's where their ranges of commits overlap, they go the same way, and they share the value of an
    axis. The primary has the largest gap; what is built on a member is downstream, the rest is related.

    >>> grouped(())
    ()
    """
    ordered = sorted(candidates, key=lambda one: (one.point.low_index, one.point.high_index, one.series))
    parent = list(range(len(ordered)))

    def root(i: int) -> int:
        while parent[i] != i:
            i = parent[i]
        return i

    for i, left in enumerate(ordered):
        for j in range(i + 1, len(ordered)):
            if ordered[j].point.low_index > left.point.high_index:
                break
            if _alike(left, ordered[j]):
                parent[root(j)] = root(i)
    groups: dict[int, list[Candidate]] = {}
    for i, one in enumerate(ordered):
        groups.setdefault(root(i), []).append(one)
    return tuple(
        sorted((_group(part) for part in groups.values()), key=lambda one: (one.low_index, one.members[0][0].series))
    )


def _alike(left: Candidate, right: Candidate) -> bool:
    same_way = (left.point.time_ratio > 1) == (right.point.time_ratio > 1)
    return same_way and any(right.axes.get(axis) == value for axis, value in left.axes.items())


def _group(part: list[Candidate]) -> Group:
    ordered = sorted(part, key=lambda one: (-abs(one.gap_s), one.series))
    names = {one.series for one in part}
    members = [(ordered[0], PRIMARY)]
    members += [(one, DOWNSTREAM if names & set(one.upstream) else RELATED) for one in ordered[1:]]
    low, high = max(one.point.low_index for one in part), min(one.point.high_index for one in part)
    if low > high:  # a chain of overlaps without a commit that all share
        low, high = min(one.point.low_index for one in part), max(one.point.high_index for one in part)
    return Group(low_index=low, high_index=high, members=tuple(members))


def expected(candidate: Candidate, expectations: Sequence[Expectation]) -> Step | None:
    """Return the step to `expected` where somebody declared the change, by commit, selector and range of ratios."""
    point = candidate.point
    for one in expectations:
        inside = one.low_ratio <= point.time_ratio <= one.high_ratio
        if inside and point.low_index <= one.index <= point.high_index and _matches(one.select, candidate):
            return "expected", f"declared by {one.actor}: {one.low_ratio:g} to {one.high_ratio:g} times"
    return None


def suppressed(candidate: Candidate, suppressions: Sequence[Suppression], now_ns: int) -> Suppression | None:
    """Return the suppression that holds for a change now; none where there is none or all have ended."""
    return next((one for one in suppressions if now_ns < one.until_ns and _matches(one.select, candidate)), None)


def _matches(select: object, candidate: Candidate) -> bool:
    values = {**candidate.axes, "series": candidate.series}
    return isinstance(select, dict) and all(
        axis in values and fnmatch.fnmatchcase(values[axis], pattern) for axis, pattern in select.items()
    )


def after_verdict(status: str, verdict: str, time_ratio: float) -> Step | None:
    """Return the step that a comparison asks of an alert; none where it asks for none.

    Verifying: the change is there (active) or is not (invalid-noise). Waiting for a fix to be verified: fixed only
    where the new level is the one before the change, or better; still slower is active again.

    Args:
        verdict: of bad against good while verifying; of now against before the change for a fix.

    >>> after_verdict("verifying", "invariant", 1.001)
    ('invalid-noise', 'measured again: invariant, +0.10 %')
    """
    said = f"measured again: {verdict}, {100 * math.expm1(math.log(time_ratio)):+.2f} %"
    table = {
        ("verifying", REGRESSION): "active", ("verifying", IMPROVEMENT): "active",
        ("verifying", INVARIANT): "invalid-noise",
        ("fix-pending-verification", REGRESSION): "active", ("fix-pending-verification", INVARIANT): "fixed",
        ("fix-pending-verification", IMPROVEMENT): "fixed",
    }  # fmt: skip
    after = table.get((status, verdict))
    if after is None:
        return None
    check_step(status, after)
    return after, said


def orphaned(status: str, series: str, known_series: Collection[str], *, has_policy: bool) -> Step | None:
    """Return the step that closes an open alert whose series or policy is gone; none where both are there.

    >>> orphaned("active", "gemm on h100", (), has_policy=True)
    ('invalid-noise', 'the series gemm on h100 is gone')
    """
    if status in CLOSED or (series in known_series and has_policy):
        return None
    gone = f"the series {series} is gone" if series not in known_series else f"the policy of {series} is gone"
    return "invalid-noise", gone
