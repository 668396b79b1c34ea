"""Alert rules: grouping of change points, declared and suppressed changes, state transitions after a verdict."""

import fnmatch
import math
from collections.abc import Mapping, Sequence

from nearpeak.core.history.alert import check_step
from nearpeak.core.history.alert_group import DOWNSTREAM, PRIMARY, RELATED, Candidate, Expectation, Group
from nearpeak.core.runs.paired_rounds import IMPROVEMENT, INVARIANT, REGRESSION

NEAR_COMMITS = 2
"""Ranges of commits that lie at most so far apart may have one cause: where a change lies is not known exactly."""
Step = tuple[str, str]
"""State that an alert goes to, and the note of the event."""


def grouped(candidates: Sequence[Candidate]) -> tuple[Group, ...]:
    """Return the changes in groups, the earliest first, independent of their input order.

    Two changes are one's where their ranges of commits overlap or nearly do, they go the same way, and they share the
    value of an axis. The primary has the largest gap; what is built on a member is downstream, the rest is related.

    >>> grouped(())
    ()
    """
    ordered = sorted(candidates, key=lambda item: (item.point.low_index, item.point.high_index, item.series))
    parent = list(range(len(ordered)))

    def root(i: int) -> int:
        while parent[i] != i:
            i = parent[i]
        return i

    for i, left in enumerate(ordered):
        for j in range(i + 1, len(ordered)):
            if ordered[j].point.low_index > left.point.high_index + NEAR_COMMITS:
                break
            same_way = (left.point.time_ratio > 1) == (ordered[j].point.time_ratio > 1)
            alike = same_way and any(ordered[j].axes.get(axis) == value for axis, value in left.axes.items())
            if alike:
                parent[root(j)] = root(i)
    groups: dict[int, list[Candidate]] = {}
    for i, item in enumerate(ordered):
        groups.setdefault(root(i), []).append(item)
    return tuple(
        sorted((_group(part) for part in groups.values()), key=lambda item: (item.low_index, item.members[0][0].series))
    )


def _group(part: list[Candidate]) -> Group:
    ordered = sorted(part, key=lambda candidate: (-abs(candidate.gap_s), candidate.series))
    names = {candidate.series for candidate in part}
    members = [(ordered[0], PRIMARY)]
    members += [(candidate, DOWNSTREAM if names & set(candidate.upstream) else RELATED) for candidate in ordered[1:]]
    low, high = (
        max(candidate.point.low_index for candidate in part),
        min(candidate.point.high_index for candidate in part),
    )
    if low > high:  # a chain of overlaps without a commit that all share
        low, high = (
            min(candidate.point.low_index for candidate in part),
            max(candidate.point.high_index for candidate in part),
        )
    return Group(low_index=low, high_index=high, members=tuple(members))


def declared(axes: Mapping[str, str], sha: str, time_ratio: float, expectations: Sequence[Expectation]) -> bool:
    """Say whether somebody declared the change of a series at a commit, by selector and range.

    Args:
        axes: axis values of the series, by name.
        time_ratio: new over old.
    """
    return any(
        expectation.sha == sha
        and expectation.low_ratio <= time_ratio - 1 <= expectation.high_ratio
        and matches(expectation.selector, axes)
        for expectation in expectations
    )


def matches(selector: Mapping[str, object], axes: Mapping[str, str]) -> bool:
    """Say whether a series matches all patterns of a selector.

    >>> matches({"operator": "ge*"}, {"operator": "gemm"}), matches({"owner": "a"}, {"operator": "gemm"})
    (True, False)
    """
    return all(name in axes and fnmatch.fnmatchcase(axes[name], str(pattern)) for name, pattern in selector.items())


def after_verdict(status: str, verdict: str, time_ratio: float) -> Step | None:
    """Return the state transition that follows from a comparison; none where there is none.

    Verifying: the change is there (active) or is not (invalid-noise). Waiting for a fix to be verified: fixed only
    where the new level is the one before the change, or better; still slower is active again.

    Args:
        verdict: of bad against good while verifying; of now against before the change for a fix.

    >>> after_verdict("verifying", "invariant", 1.001)
    ('invalid-noise', 'measured again: invariant, +0.10 %')
    """
    note = f"measured again: {verdict}, {100 * math.expm1(math.log(time_ratio)):+.2f} %"
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
    return after, note
