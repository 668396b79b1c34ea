"""Several streams of work on one device: sensors that arrive at a rate, with deadlines and priorities."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from nearpeak.core.case import Case
from nearpeak.core.estimate import quantile
from nearpeak.core.simulation import Latency, Run, Sharing, Span
from nearpeak.core.target import Target
from nearpeak.errors import SpecError
from nearpeak.sim.device import machine_of
from nearpeak.sim.engine import simulate
from nearpeak.sim.lowering import kernels_of
from nearpeak.sim.machine import PS_PER_S, Machine
from nearpeak.sim.partition import Context
from nearpeak.sim.work import Copy, Node

POLICIES = ("streams", "priorities", "turns", "masks", "slices")
"""Ways to share a device: streams alike; streams with priorities; a context each, by turns; multiprocessors apart;
multiprocessors and memory apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Equal jobs that arrive one after the other."""

    name: str
    """How results call it."""
    cases: tuple[Case, ...]
    """What a job runs, in order."""
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

    def __post_init__(self) -> None:
        """Refuse a stream that brings nothing."""
        if self.count < 1 or not self.cases or self.period_s < 0 or self.start_s < 0:
            raise SpecError(f"stream {self.name}: needs a job, a case, and times that are not negative")


def share(
    streams: Sequence[Stream], target: Target, policy: str, machine: Machine | None = None, *, records: bool = False
) -> Sharing:
    """Return how streams fare when they share a device by a policy.

    Raises:
        SpecError: the policy is unknown, a name stands twice, or there are more streams than multiprocessors.
    """
    if policy not in POLICIES:
        raise SpecError(f"policy {policy!r}: is not one of {', '.join(POLICIES)}")
    if len({one.name for one in streams}) < len(streams):
        raise SpecError("streams: two have the same name")
    machine = machine or machine_of(target)
    kernels = {one.name: [kernel for case in one.cases for kernel in kernels_of(case, target)] for one in streams}
    contexts = _contexts(streams, machine, policy)
    slots = min((len(one.sms) for one in contexts if one.sms is not None), default=machine.sm_count)
    run = simulate(machine, _work(streams, kernels, policy, slots), contexts=contexts, records=records)
    return Sharing(
        policy=policy, end_s=run.end_ps / PS_PER_S, energy_j=run.energy_j, run=run if records else None,
        streams=tuple(_latency(one, kernels[one.name], run, machine, policy) for one in streams),
    )  # fmt: skip


def _work(streams: Sequence[Stream], kernels: Mapping[str, list[Node]], policy: str, slots: int) -> list[Node]:
    """Return all kernels in the order in which their jobs arrive."""
    jobs = [(round((one.start_s + place * one.period_s) * PS_PER_S), index, place)
            for index, one in enumerate(streams) for place in range(one.count)]  # fmt: skip
    apart = policy in ("turns", "masks", "slices")
    return [
        replace(
            _fitted(kernel, slots), name=f"{streams[index].name}/{place}/{step}", queue=streams[index].name,
            not_before_ps=arrival,
            priority=streams[index].priority if policy == "priorities" else 0,
            context=streams[index].name if apart else "0",
        )
        for arrival, index, place in sorted(jobs)
        for step, kernel in enumerate(kernels[streams[index].name])
    ]  # fmt: skip


def _fitted(kernel: Node, slots: int) -> Node:
    """Return a kernel whose blocks stay and work through their tiles with one block per multiprocessor it has."""
    if isinstance(kernel, Copy) or kernel.cta_count <= slots or len(kernel.phases) < 3:  # blocks of streams come and go
        return kernel
    more = kernel.cta_count / slots
    first, *rest = kernel.phases
    longer = tuple(
        replace(
            phase, fixed_ps=round(phase.fixed_ps * more), pipe_s={k: v * more for k, v in phase.pipe_s.items()},
            pool_bytes={k: v * more for k, v in phase.pool_bytes.items()},
        )
        for phase in rest
    )  # fmt: skip
    return replace(kernel, cta_count=slots, phases=(first, *longer))


def _contexts(streams: Sequence[Stream], machine: Machine, policy: str) -> list[Context]:
    if policy in ("streams", "priorities"):
        return [Context()]
    if policy == "turns":
        return [Context(name=one.name, priority=0) for one in streams]
    each = machine.sm_count // len(streams)
    each -= each % 8 if each >= 8 else 0  # multiprocessors go to contexts by eight, see partition.green
    if each < 1:
        raise SpecError(f"{len(streams)} streams on {machine.sm_count} multiprocessors: each needs one at least")
    own = {pool: rate / len(streams) for pool, rate in machine.pool_bytes_per_s.items() if pool in ("dram", "l2")}
    return [
        Context(
            name=one.name, sms=tuple(range(place * each, (place + 1) * each)),
            pool_bytes_per_s=own if policy == "slices" else {},
        )
        for place, one in enumerate(streams)
    ]  # fmt: skip


def _latency(stream: Stream, kernels: list[Node], run: Run, machine: Machine, policy: str) -> Latency:
    ends = {span.name: span.end_ps for span in run.spans}
    last = len(kernels) - 1
    jobs = tuple(
        ends[f"{stream.name}/{place}/{last}"] / PS_PER_S - stream.start_s - place * stream.period_s
        for place in range(stream.count)
    )
    alone = sum(simulate(machine, [kernel]).end_ps for kernel in kernels) / PS_PER_S
    ordered = sorted(jobs)
    return Latency(
        name=stream.name, job_s=jobs, median_s=quantile(ordered, 0.5), p99_s=quantile(ordered, 0.99), alone_s=alone,
        missed_count=0 if stream.deadline_s is None else sum(job > stream.deadline_s for job in jobs),
        reasons=_reasons(stream, run, policy),
    )  # fmt: skip


def _reasons(stream: Stream, run: Run, policy: str) -> tuple[str, ...]:
    """Return why kernels of a stream started later than they could, with the time lost, the longest first."""
    own = [span for span in run.spans if span.queue == stream.name]
    waited: dict[str, int] = {}
    for span in own:
        lost = span.start_ps - span.ready_ps
        if lost > 0:
            reason = _reason(span, run, policy)
            waited[reason] = waited.get(reason, 0) + lost
    order = sorted(waited, key=lambda reason: -waited[reason])
    return tuple(f"{reason} ({waited[reason] / PS_PER_S * 1e6:.1f} us)" for reason in order)


def _reason(span: Span, run: Run, policy: str) -> str:
    if policy == "turns":
        return "another context had the turn"
    names = sorted({
        one.queue for one in run.spans
        if one.queue != span.queue and one.start_ps < span.start_ps and one.end_ps > span.ready_ps
    })  # fmt: skip
    return f"blocks of {', '.join(names)} held every slot" if names else "its own stream was behind"
