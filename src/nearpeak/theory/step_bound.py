"""The bound of a whole step: any number of kernels, fused or not."""

import dataclasses
from functools import lru_cache

from nearpeak.core.bound import Bound, Policy
from nearpeak.core.case import Case
from nearpeak.core.target import Target
from nearpeak.core.work import NO_WORK, Work
from nearpeak.core.workload import Workload
from nearpeak.ops import work_of
from nearpeak.theory.case_bound import work_bound
from nearpeak.theory.compulsory import compulsory
from nearpeak.theory.interval import interval_of_step


def step_bound(workload: Workload, target: Target, policy: Policy) -> Bound:
    """Return the least time of the step on `target`, with the calls that no rule covers.

    For a list of unrelated cases that is the time of all of them one after the other, each from cold inputs.
    """
    works, step = _least_work(_Same(workload))
    return bound_of_step(workload, works, step, target, policy)


def bound_of_step(workload: Workload, works: dict[Case, Work], step: Work, target: Target, policy: Policy) -> Bound:
    """Return the bound of the step whose least work is `step` and whose cases have the given works."""
    found = work_bound(step, target, policy)
    if not workload.buffers:
        found = _one_after_the_other(workload, works, target, policy, found)
    interval = interval_of_step(workload, works, step, found, target, policy)
    return dataclasses.replace(found, uncovered=workload.uncovered_counts(), interval=interval)


class _Same:
    """A workload as the key of a cache: the same object only, as a workload holds mappings."""

    __slots__ = ("workload",)

    def __init__(self, workload: Workload) -> None:
        self.workload = workload

    def __hash__(self) -> int:
        return id(self.workload)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.workload is self.workload


@lru_cache(maxsize=2)  # one step is bounded on many targets in a row
def _least_work(same: _Same) -> tuple[dict[Case, Work], Work]:
    works = {case: work_of(case) for case in same.workload.case_counts()}
    return works, step_work(same.workload, works)


def step_work(workload: Workload, works: dict[Case, Work]) -> Work:
    """Return the least work of the step; of unrelated cases, that of all of them."""
    if workload.buffers:
        return compulsory(workload, [None if call.case is None else works[call.case] for call in workload.calls])
    return sum((works[case] * count for case, count in workload.case_counts().items()), NO_WORK)


def _one_after_the_other(
    workload: Workload, works: dict[Case, Work], target: Target, policy: Policy, whole: Bound
) -> Bound:
    """Return `whole` with the sum of the single bounds as its time."""
    times: dict[str, float] = {}
    for case, count in workload.case_counts().items():
        one = work_bound(works[case], target, policy)
        times[one.limiter] = times.get(one.limiter, 0.0) + one.time_s * count
    limiter = max(times, key=lambda name: times[name], default=whole.limiter)
    return dataclasses.replace(whole, time_s=sum(times.values()), limiter=limiter, summed=True)
