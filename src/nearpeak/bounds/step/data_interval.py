"""Interval of a step's bound where it depends on unknown values: indices, masks, router decisions."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from nearpeak.bounds.case_bound import work_bound
from nearpeak.bounds.step.compulsory_work import INITIAL_KINDS, PERSISTENT_KINDS
from nearpeak.core.answers.bound import Bound, Interval, Policy
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.core.work.work import NO_WORK, Work
from nearpeak.core.work.workload import Call, Workload
from nearpeak.ops import OPS, work_of
from nearpeak.ops.shared.definition.data_dependence import highest_case


@dataclass(frozen=True, slots=True, kw_only=True)
class Worst:
    """Work of a step for its worst values, on any target."""

    works: Mapping[Case, Work]
    """Work at the worst values of each case that depends on values."""
    more: Work
    """What these values add to the whole step."""


def worst_of_step(workload: Workload, works: Mapping[Case, Work], algorithm: str = "classical") -> Worst:
    """Return what the worst values make of the step whose cases have the given works.

    It adds what each call reads of given storages and leaves in kept ones at the worst values; storages that several
    calls share are added each time, so that no values can raise the bound beyond it.
    """
    worst = highest_works(workload, algorithm)
    more = NO_WORK
    if workload.buffers:
        for call in workload.calls:
            if call.case is not None and call.case in worst:
                more += _more(call, works[call.case], worst[call.case], workload) * call.call_count
    return Worst(works=worst, more=more)


def interval_of_step(
    workload: Workload,
    works: Mapping[Case, Work],
    worst_values: Worst,
    step: Work,
    low: Bound,
    target: Target,
    policy: Policy,
) -> Interval | None:
    """Return the ends of the step's bound; none where it does not depend on values."""
    worst = worst_values.works
    if not worst:
        return None
    axes = tuple(sorted({name for case in worst for name in OPS[case.op].data_axes}))
    if workload.buffers:
        high = dataclasses.replace(step + worst_values.more, barrier=step.barrier)
        high_s = work_bound(high, target, policy).time_s
    else:
        counts = workload.case_counts()
        extra = {case: work_bound(worst[case], target, policy).time_s for case in worst}
        high_s = low.time_s + sum(
            (extra[case] - work_bound(works[case], target, policy).time_s) * counts[case] for case in worst
        )
    return Interval(low_s=low.time_s, high_s=max(low.time_s, high_s), axes=axes)


def highest_works(workload: Workload, algorithm: str = "classical") -> dict[Case, Work]:
    """Return the work at the worst values of each case that depends on values; a captured step never knows them."""
    captured = bool(workload.buffers)
    highest_cases = {case: highest_case(case, captured=captured) for case in workload.case_counts()}
    return {case: work_of(highest, algorithm) for case, highest in highest_cases.items() if highest is not None}


def _more(call: Call, low: Work, high: Work, workload: Workload) -> Work:
    """Return what the worst values add to one call."""
    reads_inputs = any(workload.buffers[use.buffer].kind in INITIAL_KINDS for use in call.reads)
    writes_outputs = any(workload.buffers[use.buffer].kind in PERSISTENT_KINDS for use in call.writes)
    return dataclasses.replace(
        NO_WORK,
        flop={kind: max(0, count - low.flop.get(kind, 0)) for kind, count in high.flop.items()},
        read_bytes=max(0, high.read_bytes - low.read_bytes) if reads_inputs else 0,
        write_bytes=max(0, high.write_bytes - low.write_bytes) if writes_outputs else 0,
    )
