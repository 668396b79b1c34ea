"""Bound of a whole step for any number of kernels and any fusion, as written and simplified."""

import dataclasses
from dataclasses import dataclass
from functools import lru_cache

from nearpeak.base.identity_key import Same
from nearpeak.bounds.case_bound import merged, work_bound
from nearpeak.bounds.simplify import simplified_work
from nearpeak.bounds.simplify.rewrites import REWRITES
from nearpeak.bounds.step.compulsory_work import compulsory, live_calls
from nearpeak.bounds.step.data_interval import Worst, interval_of_step, worst_of_step
from nearpeak.bounds.value_facts.refined_step import refined, rewritten
from nearpeak.core.answers.bound import Bound, Policy, Rewritten
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.core.work.work import NO_WORK, Work
from nearpeak.core.work.workload import Workload
from nearpeak.ops import OPS, work_of


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """The least work of a step by both engines."""

    as_written: Work
    """Work of the operators as the source calls them."""
    simplified: Work
    """Work after algebraic rewrites; the same object where they gain nothing."""
    worst: Worst
    """What the worst values add where the step depends on values."""
    rewrites: tuple[Rewritten, ...] = ()
    """What was rewritten."""


def step_bound(workload: Workload, target: Target, policy: Policy) -> Bound:
    """Return the least time of the step on `target`, with the calls that no rule covers.

    For a list of unrelated cases that is the time of all of them one after the other, each from cold inputs.
    """
    works, step = least_work(workload, policy.algorithm)
    return bound_of_step(workload, works, step, target, policy)


def bound_of_step(workload: Workload, works: dict[Case, Work], step: StepWork, target: Target, policy: Policy) -> Bound:
    """Return the bound of the step with that least work, whose cases have the given works: the smaller of two.

    The simplified step holds fewer products or bytes; where that shortens no time, the step stands as written.
    """
    case_count = 1 if workload.buffers else max(1, sum(workload.case_counts().values()))
    bound = work_bound(step.as_written, target, policy, case_count)
    if step.rewrites:
        bound = _smaller(bound, work_bound(step.simplified, target, policy), step.rewrites)
    if not workload.buffers:
        bound = _one_after_the_other(workload, works, target, policy, bound)
    interval = interval_of_step(workload, works, step.worst, step.as_written, bound, target, policy)
    more = {name for case in works for name in OPS[case.op].assumptions}
    rests_on = merged(bound.assumptions, {*more, "A10"} if workload.guards else more)
    return dataclasses.replace(bound, uncovered=workload.uncovered_counts(), interval=interval, assumptions=rests_on)


def _smaller(written: Bound, simple: Bound, rewrites: tuple[Rewritten, ...]) -> Bound:
    """Return the bound of the simplified step where it is the smaller one."""
    if simple.time_s >= written.time_s:
        return written
    return dataclasses.replace(
        simple, as_written_s=written.time_s, rewrites=rewrites,
        assumptions=merged(simple.assumptions, ("A8", "A18")),
        roofline_s=written.roofline_s, launch_floor_s=written.launch_floor_s,
    )  # fmt: skip


def least_work(workload: Workload, algorithm: str = "classical") -> tuple[dict[Case, Work], StepWork]:
    """Return the work of each case of the step, and the least work of all of it; of the last steps it is kept."""
    return _least_work(Same(workload), algorithm)


@lru_cache(maxsize=2)  # one step is bounded on many targets in a row
def _least_work(same: "Same[Workload]", algorithm: str) -> tuple[dict[Case, Work], StepWork]:
    works = {case: work_of(case, algorithm) for case in same.held.case_counts()}
    return works, _step_work(same.held, works, algorithm)


def _step_work(workload: Workload, works: dict[Case, Work], algorithm: str) -> StepWork:
    """Return the least work of the step; of unrelated cases, that of all of them."""
    worst = worst_of_step(workload, works, algorithm)
    if not workload.buffers:
        total = sum((works[case] * count for case, count in workload.case_counts().items()), NO_WORK)
        return StepWork(as_written=total, simplified=total, worst=worst)
    live = live_calls(workload)
    every = [None if call.case is None else works[call.case] for call in workload.calls]
    written = compulsory(workload, every, live)
    known = refined(workload, works, algorithm)
    lines = rewritten(known, {name: REWRITES[name].text for name in REWRITES}, every)
    live = live_calls(known.workload) if lines else live
    least = compulsory(known.workload, known.works, live) if lines else written
    simple, rewrites = simplified_work(known.workload, known.works, least, algorithm, live, known.sites)
    return StepWork(as_written=written, simplified=simple, worst=worst, rewrites=(*lines, *rewrites))


def _one_after_the_other(
    workload: Workload, works: dict[Case, Work], target: Target, policy: Policy, whole: Bound
) -> Bound:
    """Return `whole` with the sum of the single bounds as its time."""
    times: dict[str, float] = {}
    for case, count in workload.case_counts().items():
        bound = work_bound(works[case], target, policy)
        times[bound.limiter] = times.get(bound.limiter, 0.0) + bound.time_s * count
    limiter = max(times, key=lambda name: times[name], default=whole.limiter)
    return dataclasses.replace(whole, time_s=sum(times.values()), limiter=limiter, summed=True)
