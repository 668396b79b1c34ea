"""Kernel timeline of a simulated step, launched eagerly, as a graph, or with programmatic dependent launch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from nearpeak.core.answers.simulation import Run
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.core.work.workload import Workload
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.simulation.engine.device_work import Kernel, Node
from nearpeak.simulation.engine.event_loop import simulate
from nearpeak.simulation.lowering import kernels_of
from nearpeak.simulation.machine import Machine
from nearpeak.simulation.machine_from_target import FRAMEWORK_PS, machine_of
from nearpeak.simulation.run_energy import power_of, run_j

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
    """A step whose kernels ran in sequence."""

    run: Run
    """When each kernel ran, and where its blocks were."""
    launch: str
    """One of `LAUNCHES`."""
    host_s: float
    """What the host thread was busy with submitting."""
    unmodelled_count: Mapping[str, int] = field(default_factory=dict)
    """Calls without a time, by reason."""


def simulate_timeline(workload: Workload, target: Target, launch: str = "chain", *, governed: bool = False) -> Timeline:
    """Return a step run kernel by kernel in one stream.

    Raises:
        SpecError: the way of launching is unknown, nothing of the step is modelled, or it has too many kernels.
    """
    if launch not in LAUNCHES:
        raise SpecError(f"--launch {launch!r}: is not one of {', '.join(LAUNCHES)}")
    unmodelled_count: dict[str, int] = {}
    machine = machine_of(target)
    work = list(_work(workload, target, machine, launch, unmodelled_count))
    if not work:
        raise SpecError(f"{workload.name}: no call of it is modelled on {target.name}; 'nearpeak simulate' says why")
    main = max((call for call in workload.calls if call.case is not None), key=lambda call: call.call_count).case
    power = power_of(target, dict(main.dtypes).get("dtype", "bf16") if main else "bf16", governs=governed)
    run = simulate(replace(machine, power=power), work, records=True)
    if power is not None and not governed:
        run = replace(run, energy_j=run_j(work, run, power))
    costs = machine.costs
    host = {
        "chain": 0, "graph": costs.graph_ps + len(work) * costs.graph_node_ps,
        "early": costs.graph_ps + len(work) * costs.graph_node_ps,
        "eager": sum(costs.launch_ps if node.host_ps is None else node.host_ps for node in work),
    }[launch]  # fmt: skip
    return Timeline(run=run, launch=launch, host_s=host * 1e-12, unmodelled_count=unmodelled_count)


def _work(
    workload: Workload, target: Target, machine: Machine, launch: str, unmodelled_count: dict[str, int]
) -> Iterator[Node]:
    """Yield the kernels of all calls in order; note the calls without any."""
    known: dict[Case, tuple[Node, ...] | str] = {}
    made = 0
    for place, call in enumerate(workload.calls):
        kernels = "operator is not in the catalogue" if call.case is None else _kernels(call.case, target, known)
        if isinstance(kernels, str):
            unmodelled_count[kernels] = unmodelled_count.get(kernels, 0) + call.call_count
            continue
        made += len(kernels) * call.call_count
        if made > MOST_KERNELS:
            raise SpecError(
                f"{workload.name}: more than {MOST_KERNELS:,} kernels; 'nearpeak simulate' alone adds them up"
            )
        for turn in range(call.call_count):
            for part, kernel in enumerate(kernels):
                name = f"{place}.{turn}.{part} {kernel.name}"
                yield _submitted(replace(kernel, name=name), machine, launch, first=part == 0)


def _kernels(case: Case, target: Target, known: dict[Case, tuple[Node, ...] | str]) -> tuple[Node, ...] | str:
    if case not in known:
        try:
            known[case] = kernels_of(case, target)
        except NotModelledError as error:
            known[case] = str(error)
    return known[case]


def _submitted(kernel: Node, machine: Machine, launch: str, *, first: bool) -> Node:
    """Return a kernel as it is launched; the framework spends its time on the first of each call."""
    if launch == "chain":
        return kernel
    if launch == "eager":
        host_ps = machine.costs.launch_ps + (FRAMEWORK_PS if first else 0)
        return replace(kernel, thread="host", host_ps=host_ps)
    if launch == "early" and isinstance(kernel, Kernel):
        kernel = early(kernel)
    return replace(kernel, thread="host", graph="step")


def early(kernel: Kernel) -> Kernel:
    """Return a kernel that is launched while those before it end: it waits for them when its launch is over.

    Its blocks take half of what they would, so that those of the next find room while they run.
    """
    lead = 0 if kernel.phases[0].works() or len(kernel.phases) == 1 else 1
    phases = tuple(replace(phase, waits=True) if place == lead else phase for place, phase in enumerate(kernel.phases))
    needs = replace(
        kernel.needs, threads_count=max(1, kernel.needs.threads_count // 2),
        registers_count=max(1, kernel.needs.registers_count // 2), shared_bytes=max(1, kernel.needs.shared_bytes // 2),
    )  # fmt: skip
    return replace(kernel, early=True, needs=needs, phases=phases)
