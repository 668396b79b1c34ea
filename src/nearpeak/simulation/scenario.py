"""Several streams on one simulated device: their kernels, arrivals, deadlines and shares, and the run of them all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nearpeak.core.answers.simulation import Latency, Run, Sharing
from nearpeak.core.runs.estimate import quantile
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.errors import SpecError
from nearpeak.simulation.engine.device_work import Copy, Node
from nearpeak.simulation.engine.event_loop import simulate
from nearpeak.simulation.engine.share_policies import POLICIES, Place, places_of
from nearpeak.simulation.engine.wait_causes import overlaps, reasons
from nearpeak.simulation.frame_work import Frame, frame_kernels
from nearpeak.simulation.lowering import kernels_of
from nearpeak.simulation.machine import Machine
from nearpeak.simulation.machine_from_target import machine_of
from nearpeak.simulation.machine_units import PS_PER_S
from nearpeak.simulation.run_energy import power_of, run_j

__all__ = ["POLICIES", "Frame", "Scenario", "Stream", "share"]
LAUNCHES = ("", "eager", "graph")
"""How a stream's jobs get to the device: they are there when they arrive; a host thread submits kernel by kernel; or a
graph for each job."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Equal jobs that arrive periodically."""

    name: str
    """How results call it."""
    cases: tuple[Case, ...] = ()
    """What a job runs, in order."""
    frame: Frame | None = None
    """What a job draws, before its cases."""
    count: int = 1
    """Jobs."""
    period_s: float = 0.0
    """Time between arrivals; 0 submits all at once."""
    start_s: float = 0.0
    """Arrival of the first."""
    deadline_s: float | None = None
    """Time after its arrival by which a job must be done."""
    priority: int = 0
    """Larger goes first where the policy has priorities."""
    input_bytes: float = 0.0
    """What a copy engine brings from the host before a job's kernels."""
    output_bytes: float = 0.0
    """What one takes back after them."""
    launch: str = ""
    """One of `LAUNCHES`."""
    atoms_count: int = 1
    """Sequential kernels that each kernel is cut into, so that others wait for a part only."""
    share_ratio: float | None = None
    """Most of the multiprocessors that an MPS client may use; none for an equal share."""
    sm_count: int | None = None
    """Multiprocessors of a green context; none for an equal share."""
    slice: str = ""
    """MIG profile, such as 3g.40gb; the largest of which one for each stream fits where none is given."""

    def __post_init__(self) -> None:
        """Refuse a stream that brings nothing."""
        times = (self.period_s, self.start_s, self.input_bytes, self.output_bytes)
        if self.count < 1 or not (self.cases or self.frame) or min(times) < 0:
            raise SpecError(
                f"stream {self.name}: needs a job, a case or a frame, and times and bytes that are not negative"
            )
        if self.deadline_s is not None and not self.deadline_s > 0:
            raise SpecError(f"stream {self.name}: a deadline of {self.deadline_s:g} s; more than 0 is right")
        if self.launch not in LAUNCHES:
            raise SpecError(f"stream {self.name}: launch is {self.launch!r}; eager, graph or nothing is right")
        if self.atoms_count < 1 or not 0 < (self.share_ratio or 1.0) <= 1 or (self.sm_count or 1) < 1:
            raise SpecError(
                f"stream {self.name}: atoms and sms are at least 1, a share is more than 0 and at most 100 %"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Streams with their shared resources besides the multiprocessors."""

    streams: tuple[Stream, ...]
    """All of them."""
    copy_engine_count: int = 2
    """Engines for copies from and to the host: one for both directions, or one for each."""

    def __post_init__(self) -> None:
        """Refuse duplicate names and missing engines."""
        if len({stream.name for stream in self.streams}) < len(self.streams):
            raise SpecError("streams: two have the same name")
        if not 1 <= self.copy_engine_count <= 2:
            raise SpecError(f"copy_engines is {self.copy_engine_count}; 1 or 2 is right")


def share(
    scenario: Scenario | Sequence[Stream], target: Target, policy: str, *, records: bool = False, governed: bool = False
) -> Sharing:
    """Return latencies and overlaps of streams that share a device by a policy.

    Raises:
        SpecError: the policy is unknown, a name is used twice, or the device has too little for all streams.
    """
    if policy not in POLICIES:
        raise SpecError(f"policy {policy!r}: is not one of {', '.join(POLICIES)}")
    scenario = scenario if isinstance(scenario, Scenario) else Scenario(streams=tuple(scenario))
    first = next((case for stream in scenario.streams for case in stream.cases), None)
    power = power_of(target, "bf16" if first is None else dict(first.dtypes).get("dtype", "bf16"), governs=governed)
    machine = machine_of(target, power=power)
    places = places_of(scenario.streams, target, machine, policy)
    work = _work(scenario, places, machine)
    contexts = list({place.context.name: place.context for place in places.values()}.values())
    run = simulate(machine, work, contexts=contexts, records=records)
    by_turns = len(contexts) > 1 and any(context.sms is None for context in contexts)  # these run one at a time
    energy_j = run.energy_j if power is None or governed else run_j(work, run, power)
    return Sharing(
        policy=policy, end_s=run.end_ps / PS_PER_S, energy_j=energy_j, run=run if records else None,
        streams=tuple(_latency(stream, run, target, machine) for stream in scenario.streams),
        overlaps=overlaps(run, [stream.name for stream in scenario.streams], by_turns=by_turns),
    )  # fmt: skip


def _work(scenario: Scenario, places: Mapping[str, Place], machine: Machine) -> list[Node]:
    """Return all kernels and copies in the order in which their jobs arrive."""
    jobs = [(round((stream.start_s + place * stream.period_s) * PS_PER_S), index, place)
            for index, stream in enumerate(scenario.streams) for place in range(stream.count)]  # fmt: skip
    parts = {stream.name: _job(stream, places[stream.name], scenario, machine) for stream in scenario.streams}
    return [
        replace(
            part, name=f"{stream.name}/{place}/{step}", not_before_ps=arrival,
            thread=stream.name if stream.launch else part.thread,
            graph=f"{stream.name}/{place}" if stream.launch == "graph" else "" if stream.launch else part.graph,
        )
        for arrival, index, place in sorted(jobs)
        for stream in (scenario.streams[index],)
        for step, part in enumerate(parts[stream.name])
    ]  # fmt: skip


def _job(stream: Stream, place: Place, scenario: Scenario, machine: Machine) -> list[Node]:
    """Return the work of a stream's job under a policy: input, kernels, output."""
    kernels = [atom for kernel in kernels_of_job(stream, place.target) for atom in _atoms(kernel, stream.atoms_count)]
    context = place.context.name
    work: list[Node] = [
        place.fitted(replace(unplaced, queue=stream.name, priority=place.priority, context=context))
        for unplaced in kernels
    ]
    moved = (("host_in", stream.input_bytes, 0), ("host_out", stream.output_bytes, len(work) + 1))
    for pool, amount, at in moved:
        if amount:
            if pool not in machine.pool_bytes_per_s:
                raise SpecError(f"stream {stream.name}: {machine.name} states no link to its host")
            engine = pool if scenario.copy_engine_count == 2 else "host"
            work.insert(at, Copy(
                name=pool, engine=f"{engine} {place.own}".strip(), pool_bytes={pool: amount, "dram": amount},
                queue=stream.name, priority=place.priority, context=context,
            ))  # fmt: skip
    return work


def kernels_of_job(stream: Stream, target: Target) -> list[Node]:
    """Return the kernels of a job as they are on a device or a part of it."""
    drawn = [] if stream.frame is None else list(frame_kernels(stream.frame, target))
    return [*drawn, *(kernel for case in stream.cases for kernel in kernels_of(case, target))]


def _atoms(kernel: Node, count: int) -> list[Node]:
    """Return a kernel as several that follow each other, each with a part of its work and a separate launch."""
    if count == 1 or isinstance(kernel, Copy):
        return [kernel]
    first, *rest = kernel.phases
    parts = tuple(
        replace(
            phase, fixed_ps=-(-phase.fixed_ps // count), pipe_s={k: v / count for k, v in phase.pipe_s.items()},
            pool_bytes={k: v / count for k, v in phase.pool_bytes.items()},
        )
        for phase in rest
    )  # fmt: skip
    return [replace(kernel, phases=(first, *parts))] * count


def _latency(stream: Stream, run: Run, target: Target, machine: Machine) -> Latency:
    ends: dict[int, int] = {}
    for span in run.spans:
        if span.queue == stream.name:
            job = int(span.name.rsplit("/", 2)[1])
            ends[job] = max(ends.get(job, 0), span.end_ps)
    jobs = tuple(ends[place] / PS_PER_S - stream.start_s - place * stream.period_s for place in range(stream.count))
    ordered = sorted(jobs)
    copied = sum(
        amount / min(machine.pool_bytes_per_s[pool], machine.pool_bytes_per_s["dram"])
        for pool, amount in (("host_in", stream.input_bytes), ("host_out", stream.output_bytes)) if amount
    )  # fmt: skip
    kernels = kernels_of_job(stream, target)
    alone = sum(simulate(replace(machine, power=None), [kernel]).end_ps for kernel in kernels) / PS_PER_S
    return Latency(
        name=stream.name, job_s=jobs, median_s=quantile(ordered, 0.5), p99_s=quantile(ordered, 0.99),
        alone_s=alone + copied,
        missed_count=0 if stream.deadline_s is None else sum(job > stream.deadline_s for job in jobs),
        reasons=reasons(stream.name, run),
    )  # fmt: skip
