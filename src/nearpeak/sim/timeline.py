"""A whole step on the device, kernel by kernel, as a host submits it: eagerly, as a graph, or with early starts."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from nearpeak.core.case import Case
from nearpeak.core.simulation import Run
from nearpeak.core.target import Target
from nearpeak.core.workload import Workload
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.sim.device import FRAMEWORK_PS, machine_of
from nearpeak.sim.energy import power_of, run_j
from nearpeak.sim.engine import simulate
from nearpeak.sim.lowering import kernels_of
from nearpeak.sim.lowering._lowering import filling
from nearpeak.sim.work import Kernel, Phase

LAUNCHES = {
    "chain": "all kernels are on the device from the start",
    "eager": "a host thread submits call by call, as a framework does",
    "graph": "a host thread submits all kernels as one CUDA graph",
    "early": "one graph whose kernels start while those before them end (programmatic dependent launch)",
}
"""How a host submits a step."""
MOST_KERNELS = 50_000
"""Kernels of a step that are run one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """A step whose kernels were run one after the other."""

    run: Run
    """When each kernel ran, and where its blocks were."""
    launch: str
    """One of `LAUNCHES`."""
    host_s: float
    """What the host thread was busy with submitting."""
    unmodelled_count: Mapping[str, int] = field(default_factory=dict)
    """Calls without a time, by reason."""


def simulate_timeline(
    workload: Workload, target: Target, launch: str = "chain", *, records: bool = True, governed: bool = False
) -> Timeline:
    """Return a step run kernel by kernel in one stream.

    Raises:
        SpecError: the way of launching is unknown, nothing of the step is modelled, or it has too many kernels.
    """
    if launch not in LAUNCHES:
        raise SpecError(f"--launch {launch!r}: is not one of {', '.join(LAUNCHES)}")
    unmodelled_count: dict[str, int] = {}
    work = list(_work(workload, target, launch, unmodelled_count))
    if not work:
        raise SpecError(f"{workload.name}: no call of it is modelled on {target.name}; 'nearpeak simulate' says why")
    main = max((call for call in workload.calls if call.case is not None), key=lambda call: call.call_count).case
    power = power_of(target, dict(main.dtypes).get("dtype", "bf16") if main else "bf16", governs=governed)
    machine = machine_of(target, power=power)
    run = simulate(machine, work, records=records)
    if power is not None and not governed:
        run = replace(run, energy_j=run_j(work, run, power))
    costs = machine.costs
    host = {
        "chain": 0, "graph": costs.graph_ps + len(work) * costs.graph_node_ps,
        "early": costs.graph_ps + len(work) * costs.graph_node_ps,
        "eager": sum(costs.launch_ps if one.host_ps is None else one.host_ps for one in work),
    }[launch]  # fmt: skip
    return Timeline(run=run, launch=launch, host_s=host * 1e-12, unmodelled_count=unmodelled_count)


def _work(workload: Workload, target: Target, launch: str, unmodelled_count: dict[str, int]) -> Iterator[Kernel]:
    """Yield the kernels of all calls in order; note the calls without any."""
    known: dict[Case, tuple[Kernel, ...] | str] = {}
    made = 0
    for place, call in enumerate(workload.calls):
        found = "operator is not in the catalogue" if call.case is None else _kernels(call.case, target, known)
        if isinstance(found, str):
            unmodelled_count[found] = unmodelled_count.get(found, 0) + call.call_count
            continue
        made += len(found) * call.call_count
        if made > MOST_KERNELS:
            raise SpecError(f"{workload.name}: more than {MOST_KERNELS:,} kernels; 'nearpeak simulate' alone adds them up")
        for turn in range(call.call_count):
            for part, kernel in enumerate(found):
                name = f"{place}.{turn}.{part} {kernel.name}"
                yield _submitted(replace(kernel, name=name), target, launch, first=part == 0)


def _kernels(
    case: Case, target: Target, known: dict[Case, tuple[Kernel, ...] | str]
) -> tuple[Kernel, ...] | str:
    if case not in known:
        try:
            known[case] = kernels_of(case, target)
        except NotModelledError as error:
            known[case] = str(error)
    return known[case]


def _submitted(kernel: Kernel, target: Target, launch: str, *, first: bool) -> Kernel:
    """Return a kernel as it is launched; the framework spends its time on the first of each call."""
    if launch == "chain":
        return kernel
    if launch == "eager":
        costs = machine_costs(target)
        return replace(kernel, thread="host", host_ps=costs + (FRAMEWORK_PS if first else 0))
    if launch == "early":
        kernel = early(kernel, target)
    return replace(kernel, thread="host", graph="step")


def machine_costs(target: Target) -> int:
    """Return what the host spends on a launch."""
    return machine_of(target).costs.launch_ps


def early(kernel: Kernel, target: Target) -> Kernel:
    """Return a kernel that is launched while those before it end: it waits for them when its launch is over.

    Its blocks leave half of a multiprocessor free, so that those of the next find room while they run.
    """
    first, *rest = kernel.phases
    if not rest or first.works():
        return replace(kernel, early=True, phases=tuple(replace(one, waits=True) for one in kernel.phases[:1]) + tuple(rest))
    half = filling(target, 2)
    needs = replace(
        kernel.needs, registers_count=min(kernel.needs.registers_count, half.registers_count),
        shared_bytes=min(kernel.needs.shared_bytes, half.shared_bytes),
    )  # fmt: skip
    after: list[Phase] = [replace(rest[0], waits=True), *rest[1:]]
    return replace(kernel, early=True, needs=needs, phases=(first, *after))
