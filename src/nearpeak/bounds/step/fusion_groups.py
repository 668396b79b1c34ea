"""Bounds of a step whose calls run in stated fusion groups, each as one kernel."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nearpeak.bounds.case_bound import work_bound
from nearpeak.bounds.step.compulsory_work import compulsory
from nearpeak.core.answers.bound import Policy
from nearpeak.core.work.case import Case
from nearpeak.core.work.distinct_calls import module_pattern
from nearpeak.core.work.target import Target
from nearpeak.core.work.work import Work
from nearpeak.core.work.workload import Call, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """Groups of calls that are alike, each run as one kernel."""

    ops: tuple[str, ...]
    """Operators of its calls."""
    module: str
    """Pattern of the module of its last call, layer numbers as `*`."""
    phase: str
    """Step phase in which it runs."""
    dtype: str
    """Format of its first operand."""
    work: Work
    """Least work of one of them."""
    count: int
    """How many there are."""


def kernels_work(workload: Workload, works: Mapping[Case, Work]) -> tuple[Kernel, ...]:
    """Return the workload's groups with their least work, those that are alike once.

    A kernel reads what it needs and others made, and writes what others need; what its own calls hand to each other
    never leaves the chip.
    """
    kernels: dict[str, Kernel] = {}
    for part in kernels_of(workload) if workload.groups else ():
        cases = [call.case for call in part.calls if call.case is not None]
        least = compulsory(part, [None if call.case is None else works[call.case] for call in part.calls])
        kernel = Kernel(
            ops=tuple(dict.fromkeys(case.op for case in cases)), module=module_pattern(part.calls[-1].module),
            phase=part.calls[-1].phase, dtype=next((dict(case.dtypes).get("dtype", "") for case in cases), ""),
            work=least, count=1,
        )  # fmt: skip
        known = kernels.setdefault(repr(kernel), replace(kernel, count=0))
        kernels[repr(kernel)] = replace(known, count=known.count + 1)
    return tuple(kernels.values())


def groups_bound_s(kernels: Sequence[Kernel], target: Target, policy: Policy) -> float:
    """Return the least time in which the kernels run one after the other: no less than that under any fusion."""
    return sum(work_bound(kernel.work, target, policy).time_s * kernel.count for kernel in kernels)


def kernels_of(workload: Workload) -> list[Workload]:
    """Return each group as a workload of its own, whose storages that others write or read are its in- and outputs."""
    home = {call: number for number, members in enumerate(workload.groups) for call in members}
    written: dict[int, set[int]] = {}
    needed: dict[int, set[int]] = {}
    for position, call in enumerate(workload.calls):
        for uses, groups_by_buffer in ((call.writes, written), (call.reads, needed)):
            for use in uses:
                groups_by_buffer.setdefault(use.buffer, set()).add(home[position])
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
