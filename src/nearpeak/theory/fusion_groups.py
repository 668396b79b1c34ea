"""The bound of a step whose calls run in given groups, each as one kernel."""

from collections.abc import Mapping
from dataclasses import replace

from nearpeak.core.bound import Policy
from nearpeak.core.case import Case
from nearpeak.core.target import Target
from nearpeak.core.work import Work
from nearpeak.core.workload import Call, Workload
from nearpeak.theory.case_bound import work_bound
from nearpeak.theory.compulsory import compulsory


def groups_bound_s(workload: Workload, works: Mapping[Case, Work], target: Target, policy: Policy) -> float:
    """Return the least time in which the workload's groups run one after the other, each as one kernel.

    A kernel reads what it needs and others made, and writes what others need; what its own calls hand to each other
    never leaves the chip. The sum is no less than the bound of the step under any fusion.
    """
    return sum(_kernel_s(part, works, target, policy) for part in kernels_of(workload))


def kernels_of(workload: Workload) -> list[Workload]:
    """Return each group as a workload of its own, whose storages that others write or read are its in- and outputs."""
    home = {call: number for number, members in enumerate(workload.groups) for call in members}
    written: dict[int, set[int]] = {}
    needed: dict[int, set[int]] = {}
    for position, call in enumerate(workload.calls):
        for uses, found in ((call.writes, written), (call.reads, needed)):
            for use in uses:
                found.setdefault(use.buffer, set()).add(home[position])
    return [_kernel(workload, number, written, needed) for number in range(len(workload.groups))]


def _kernel(
    workload: Workload, number: int, written: Mapping[int, set[int]], needed: Mapping[int, set[int]]
) -> Workload:
    """Return one group as a workload; results of other groups are inputs, what others need is output."""
    buffers = list(workload.buffers)
    for index, buffer in enumerate(buffers):
        if buffer.kind != "activation":
            continue
        makers, readers = written.get(index, set()), needed.get(index, set())
        if number in makers and readers - {number}:
            buffers[index] = replace(buffer, kind="output")
        elif number not in makers:
            buffers[index] = replace(buffer, kind="input")
    calls: tuple[Call, ...] = tuple(workload.calls[position] for position in workload.groups[number])
    return replace(workload, calls=calls, buffers=tuple(buffers), groups=())


def _kernel_s(part: Workload, works: Mapping[Case, Work], target: Target, policy: Policy) -> float:
    least = compulsory(part, [None if call.case is None else works[call.case] for call in part.calls])
    return work_bound(least, target, policy).time_s
