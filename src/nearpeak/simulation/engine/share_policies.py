"""Device-sharing policies: context, priority, multiprocessors and memory of each stream."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from nearpeak.core.work.target import Target
from nearpeak.errors import SpecError
from nearpeak.simulation.engine.device_work import Copy, Node
from nearpeak.simulation.engine.partition import Context, green
from nearpeak.simulation.machine import Machine
from nearpeak.targets import target_of


class Streamed(Protocol):
    """What a policy needs to know of a stream."""

    @property
    def name(self) -> str:
        """How results call it."""

    @property
    def priority(self) -> int:
        """Larger goes first."""

    @property
    def share_ratio(self) -> float | None:
        """Most of the multiprocessors of an MPS client."""

    @property
    def sm_count(self) -> int | None:
        """Multiprocessors of a green context."""

    @property
    def slice(self) -> str:
        """MIG profile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a stream has of the device."""

    context: Context
    """Context that its work belongs to."""
    target: Target
    """Device, or part of it, that its kernels are built for."""
    slot_count: int
    """Multiprocessors that it may use."""
    priority: int = 0
    """Of its kernels."""
    sms: tuple[int, ...] | None = None
    """Multiprocessors that its kernels are kept to inside the context."""
    own: str = ""
    """Name of the part whose copy engines are its own."""

    def fitted(self, kernel: Node) -> Node:
        """Return a kernel whose blocks stay and work through their tiles with one block per multiprocessor it has.

        Blocks of a kernel that has more of them than the device multiprocessors come and go.
        """
        if isinstance(kernel, Copy):
            return kernel
        stays = self.slot_count < kernel.cta_count <= self.target.sm_count
        if not stays or len(kernel.phases) < 3:
            return replace(kernel, sms=self.sms)
        more = kernel.cta_count / self.slot_count
        first, *rest = kernel.phases
        longer = tuple(
            replace(
                phase, fixed_ps=round(phase.fixed_ps * more), pipe_s={k: v * more for k, v in phase.pipe_s.items()},
                pool_bytes={k: v * more for k, v in phase.pool_bytes.items()},
            )
            for phase in rest
        )  # fmt: skip
        return replace(kernel, cta_count=self.slot_count, phases=(first, *longer), sms=self.sms)


Streams = Sequence[Streamed]


def places_of(streams: Streams, target: Target, machine: Machine, policy: str) -> dict[str, Place]:
    """Return the resources of each stream under a policy, by name."""
    return POLICIES[policy](streams, target, machine)


def _together(streams: Streams, target: Target, machine: Machine) -> dict[str, Place]:
    """Streams of one context, alike."""
    return {stream.name: Place(context=Context(), target=target, slot_count=machine.sm_count) for stream in streams}


def _priorities(streams: Streams, target: Target, machine: Machine) -> dict[str, Place]:
    """Streams of one context with priorities: the higher takes the slots that fall free first, and evicts nobody."""
    alike = _together(streams, target, machine)
    return {stream.name: replace(alike[stream.name], priority=stream.priority) for stream in streams}


def _contexts(streams: Streams, target: Target, machine: Machine, *, ranked: bool, drains: bool) -> dict[str, Place]:
    """Return one context per stream, in time slices of 2 ms or, if `ranked`, by priority.

    A context of higher priority preempts others in the middle of blocks, whose state is saved, or once they drain.
    """
    return {
        stream.name: Place(
            context=Context(name=stream.name, priority=stream.priority if ranked else 0, drains=drains), target=target,
            slot_count=machine.sm_count,
        )
        for stream in streams
    }  # fmt: skip


def _mps(streams: Streams, target: Target, machine: Machine) -> dict[str, Place]:
    """One context with caps: a client has pairs of multiprocessors up to its share; shares may overlap."""
    places, first = {}, 0
    for stream in streams:
        share = 1 / len(streams) if stream.share_ratio is None else stream.share_ratio
        count = min(2 * -(-round(share * machine.sm_count) // 2), machine.sm_count)
        sms = tuple((first + place) % machine.sm_count for place in range(count))
        places[stream.name] = Place(context=Context(), target=target, slot_count=count, sms=sms, priority=0)
        first += count
    return places


def _masks(streams: Streams, target: Target, machine: Machine) -> dict[str, Place]:
    """Green contexts: multiprocessors apart, in multiples of eight; caches and memory shared."""
    each = machine.sm_count // len(streams)
    equal = each - each % 8 if each >= 8 else each
    counts = {stream.name: green(machine.sm_count, stream.sm_count) if stream.sm_count else equal for stream in streams}
    return _apart(counts, target, machine, {})


def _apart(
    counts: Mapping[str, int], target: Target, machine: Machine, memory: Mapping[str, Mapping[str, float]]
) -> dict[str, Place]:
    """Return contexts on disjoint multiprocessors, with private pools where `memory` states them."""
    if min(counts.values()) < 1 or sum(counts.values()) > machine.sm_count:
        requested = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise SpecError(f"{machine.name} has {machine.sm_count} multiprocessors, got requests for {requested}")
    places, first = {}, 0
    for name, count in counts.items():
        sms = tuple(range(first, first + count))
        context = Context(name=name, sms=sms, pool_bytes_per_s=memory.get(name, {}))
        places[name] = Place(context=context, target=target, slot_count=count, own=name if memory else "")
        first += count
    return places


def _slices(streams: Streams, target: Target, machine: Machine) -> dict[str, Place]:
    """MIG: multiprocessors, cache and memory apart, by documented profiles; equal parts where there are none."""
    if not target.partitions or any("g." not in name for name in target.partitions):
        if any(stream.slice for stream in streams):
            raise SpecError(f"{target.name}: documents no MIG profiles; leave slice out for equal parts")
        share = {p: r / len(streams) for p, r in machine.pool_bytes_per_s.items() if p in ("dram", "l2")}
        counts = {stream.name: machine.sm_count // len(streams) for stream in streams}
        return _apart(counts, target, machine, {stream.name: share for stream in streams})
    parts = {stream.name: _slice(target, stream.slice or _largest(target, len(streams))) for stream in streams}
    ratio = {name: _memory_ratio(part, target) for name, part in parts.items()}
    if sum(ratio.values()) > 1 + 1e-9:
        requested = ", ".join(f"{name} {ratio[name]:.3g}" for name in parts)
        raise SpecError(f"{target.name}: slices take more than the whole memory: {requested}")
    memory = {
        name: {p: r * ratio[name] for p, r in machine.pool_bytes_per_s.items() if p in ("dram", "l2")} for name in parts
    }
    places = _apart({name: part.sm_count for name, part in parts.items()}, target, machine, memory)
    return {name: replace(place, target=parts[name]) for name, place in places.items()}


def _slice(target: Target, name: str) -> Target:
    if name not in target.partitions:
        raise SpecError(f"{target.name}: no MIG profile {name!r}; there are {', '.join(target.partitions)}")
    return target_of(f"{target.name}:{name}")


def _memory_ratio(part: Target, whole: Target) -> float:
    return (part.dram.bandwidth_bytes_per_s or 0.0) / (whole.dram.bandwidth_bytes_per_s or 1.0)


def _largest(target: Target, count: int) -> str:
    """Return the largest profile of which `count` fit on the device."""
    fits = [
        name for name in target.partitions
        if count * _memory_ratio(part := _slice(target, name), target) <= 1 and count * part.sm_count <= target.sm_count
    ]  # fmt: skip
    if not fits:
        raise SpecError(f"{target.name}: no MIG profile of which {count} fit; there are {', '.join(target.partitions)}")
    return max(fits, key=lambda name: _slice(target, name).sm_count)


POLICIES: Mapping[str, Callable[[Streams, Target, Machine], dict[str, Place]]] = {
    "streams": _together, "priorities": _priorities, "turns": partial(_contexts, ranked=False, drains=False),
    "drains": partial(_contexts, ranked=True, drains=True), "preempts": partial(_contexts, ranked=True, drains=False),
    "mps": _mps, "masks": _masks, "slices": _slices,
}  # fmt: skip
"""All ways to share a device, by name."""
