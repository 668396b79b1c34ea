"""Cases and whole steps on a machine: what each call takes, what is not modelled, and the time of all of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from nearpeak.core.case import Case
from nearpeak.core.simulation import Run
from nearpeak.core.target import Target
from nearpeak.core.workload import Workload
from nearpeak.errors import NotModelledError
from nearpeak.predict._form import USUAL, Setting
from nearpeak.sim.device import machine_of
from nearpeak.sim.engine import simulate
from nearpeak.sim.lowering import kernels_of
from nearpeak.sim.machine import PS_PER_S, Machine
from nearpeak.sim.work import Node


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRun:
    """A step whose kernels follow one another in one stream."""

    time_s: float
    """Time of all modelled calls."""
    call_s: tuple[float | None, ...]
    """Time of each call of the workload; none where it is not modelled or does no work."""
    kernel_count: int
    """Kernels that ran."""
    cta_count: int
    """Thread blocks that ran."""
    unmodelled_count: Mapping[str, int] = field(default_factory=dict)
    """Calls without a time, by reason."""


def simulate_case(case: Case, target: Target, setting: Setting = USUAL, *, records: bool = False) -> Run:
    """Return the run of one case, alone on the device.

    >>> from nearpeak.ops import case
    >>> from nearpeak.targets import target_of
    >>> run = simulate_case(case("gemm", m=4096, n=4096, k=4096, dtype="bf16"), target_of("h100_sxm"))
    >>> run.cta_count
    132
    """
    kernels = [replace(one, name=f"{place} {one.name}") for place, one in enumerate(kernels_of(case, target, setting))]
    return simulate(machine_of(target), kernels, records=records)


def simulate_step(workload: Workload, target: Target) -> StepRun:
    """Return the time of a step whose kernels wait for one another, as one stream or one chain of graph nodes does.

    In such a chain every kernel meets an empty machine, so that equal calls take equal times and are run once.
    """
    machine, known = machine_of(target), dict[Case, tuple[float, int, int] | str]()
    times: list[float | None] = []
    kernels = blocks = 0
    unmodelled_count: dict[str, int] = {}
    for call in workload.calls:
        found = "operator is not in the catalogue" if call.case is None else _known(call.case, target, machine, known)
        if isinstance(found, str):
            unmodelled_count[found] = unmodelled_count.get(found, 0) + call.call_count
            times.append(None)
            continue
        times.append(found[0] * call.call_count)
        kernels, blocks = kernels + found[1] * call.call_count, blocks + found[2] * call.call_count
    return StepRun(
        time_s=sum(time for time in times if time is not None), call_s=tuple(times), kernel_count=kernels,
        cta_count=blocks, unmodelled_count=unmodelled_count,
    )  # fmt: skip


def _known(
    case: Case, target: Target, machine: Machine, known: dict[Case, tuple[float, int, int] | str]
) -> tuple[float, int, int] | str:
    """Return seconds, kernels and thread blocks of a case; or why it is not modelled."""
    if case not in known:
        try:
            kernels = kernels_of(case, target)
        except NotModelledError as error:
            known[case] = str(error)
        else:
            known[case] = _alone(kernels, machine)
    return known[case]


def _alone(kernels: tuple[Node, ...], machine: Machine) -> tuple[float, int, int]:
    runs = [simulate(machine, [kernel]) for kernel in kernels]
    return (
        sum(run.end_ps for run in runs) / PS_PER_S, len(kernels), sum(run.cta_count for run in runs),
    )  # fmt: skip
