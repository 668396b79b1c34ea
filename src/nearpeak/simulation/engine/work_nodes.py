"""Scheduled work inside the engine: dependencies, progress, and full-speed demand of its phases."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil
from typing import NamedTuple

from nearpeak.errors import SpecError
from nearpeak.simulation.engine.device_work import Copy, Kernel, Node, Phase
from nearpeak.simulation.machine import Machine
from nearpeak.simulation.machine_units import PIPES, PS_PER_S


class Pace(NamedTuple):
    """A phase at full speed on this machine."""

    alone_ps: float
    """How long it takes when nobody else is there."""
    pipes: tuple[float, ...]
    """Share of each unit of a multiprocessor that one block uses meanwhile."""
    pools: tuple[float, ...]
    """Bytes per picosecond that one block draws from each pool meanwhile."""
    waits: bool
    """Whether it starts only when what came before has ended."""


class Running:
    """One kernel or copy on its way: what it waits for, how many blocks are left, when everything happened."""

    __slots__ = (
        "blocks", "cluster", "due_ps", "end_ps", "free_ps", "held_ps", "mask", "needs", "node", "order", "paces",
        "placed_ps", "ready_ps", "since_ps", "slot_ps", "start_ps", "submitted_ps", "total", "unfinished", "unplaced",
        "waits_for", "why",
    )  # fmt: skip

    def __init__(
        self, node: Node, order: int, paces: tuple[Pace, ...], needs: tuple[int, ...], mask: int, cluster: int,
        total: int,
    ) -> None:  # fmt: skip
        """Keep what does not change; nothing has happened yet."""
        self.node, self.order, self.paces, self.needs, self.mask, self.cluster = (
            node,
            order,
            paces,
            needs,
            mask,
            cluster,
        )
        self.total = self.unplaced = self.unfinished = total
        self.waits_for: set[int] = set()
        self.blocks: list[int] = []
        self.ready_ps = self.start_ps = self.placed_ps = self.end_ps = self.due_ps = -1
        self.slot_ps = self.since_ps = self.submitted_ps = self.free_ps = 0
        self.held_ps: dict[str, int] = {}
        self.why = ""

    def hold(self, why: str, now_ps: int) -> None:
        """Note from when on what keeps it from starting; nothing where it starts."""
        if why != self.why:
            if self.why:
                self.lose(self.why, now_ps - self.since_ps)
            self.why, self.since_ps = why, now_ps

    def lose(self, why: str, time_ps: int) -> None:
        """Add to the time that something cost it."""
        if time_ps > 0:
            self.held_ps[why] = self.held_ps.get(why, 0) + time_ps

    def started(self, count: int, now_ps: int) -> "Flow":
        """Return blocks that begin their first phase."""
        return Flow(self, 0, self.paces[0].alone_ps, count, now_ps)


class Flow:
    """Equal blocks of one kernel on each multiprocessor of a group, at the same point of the same phase."""

    __slots__ = ("count", "left_ps", "phase", "running", "start_ps")

    def __init__(self, running: Running, phase: int, left_ps: float, count: int, start_ps: int) -> None:
        """Keep where they are: `left_ps` is what the phase still takes at full speed."""
        self.running, self.phase, self.left_ps = running, phase, left_ps
        self.count, self.start_ps = count, start_ps

    def key(self) -> tuple[int, int, float, int, int]:
        """Return the key by which two of them are equal."""
        return (self.running.order, self.phase, self.left_ps, self.count, self.start_ps)

    def copy(self) -> "Flow":
        """Return the same for a group that was split off."""
        return Flow(self.running, self.phase, self.left_ps, self.count, self.start_ps)


def prepared(nodes: Sequence[Node], machine: Machine, masks: Mapping[str, int]) -> list[Running]:
    """Return all work with what each piece waits for.

    Raises:
        SpecError: A name is used twice or unknown, or pieces wait for each other in a circle; a kernel needs more than
            an empty multiprocessor, or an empty cluster of them, holds.
    """
    places = {node.name: index for index, node in enumerate(nodes)}
    if len(places) < len(nodes):
        twice = next(n.name for i, n in enumerate(nodes) if places[n.name] != i)
        raise SpecError(f"two pieces of work are called {twice}: names tell what waits for what")
    running = [_running(node, index, machine, masks) for index, node in enumerate(nodes)]
    last: dict[tuple[str, str], int] = {}
    for index, node in enumerate(nodes):
        unknown = [name for name in node.after if name not in places]
        if unknown:
            raise SpecError(f"{node.name} waits for {unknown[0]}, and nothing is called so")
        before = {places[name] for name in node.after}
        if (node.context, node.queue) in last:
            before.add(last[node.context, node.queue])
        last[node.context, node.queue] = index
        running[index].waits_for = before
        for other in before:
            running[other].blocks.append(index)
    _refuse_circles(running)
    return running


def _refuse_circles(running: Sequence[Running]) -> None:
    """Raise where work waits for itself, directly or around corners."""
    left = [len(piece.waits_for) for piece in running]
    free = [index for index, count in enumerate(left) if count == 0]
    done = 0
    while free:
        done += 1
        for other in running[free.pop()].blocks:
            left[other] -= 1
            if left[other] == 0:
                free.append(other)
    if done < len(running):
        names = ", ".join(piece.node.name for piece, count in zip(running, left, strict=True) if count)
        raise SpecError(f"these wait for each other and never start: {names[:200]}")


def _running(node: Node, index: int, machine: Machine, masks: Mapping[str, int]) -> Running:
    if node.context not in masks:
        raise SpecError(f"{node.name}: no context {node.context}; there are {', '.join(masks)}")
    if isinstance(node, Copy):
        phase = Phase(fixed_ps=node.fixed_ps, pool_bytes=node.pool_bytes)
        return Running(node, index, (_pace(phase, machine, node.name),), (), 0, 1, 1)
    mask = masks[node.context]
    if node.sms is not None:
        mask &= sum(1 << sm for sm in set(node.sms))
    governed = machine.power is not None and machine.power.governs
    paces = tuple(_pace(phase, machine, node.name) for phase in _joined(node.phases, governed=governed))
    _check_fits(node, machine, mask)
    return Running(node, index, paces, node.needs.vector(), mask, node.cluster_count, node.cta_count)


def _joined(phases: Sequence[Phase], *, governed: bool) -> list[Phase]:
    """Return phases with those that only wait as one; without what a governor does instead."""
    joined: list[Phase] = []
    for phase in phases:
        if governed and phase.sags:
            continue
        if joined and not (phase.waits or phase.works() or joined[-1].works()):
            joined[-1] = replace(joined[-1], fixed_ps=joined[-1].fixed_ps + phase.fixed_ps)
        else:
            joined.append(phase)
    return joined or list(phases[:1])


def _check_fits(kernel: Kernel, machine: Machine, mask: int) -> None:
    """Raise where a block, or a cluster of them, can never start."""
    limits, needs = machine.limits.vector(), kernel.needs.vector()
    if not mask:
        raise SpecError(f"kernel {kernel.name}: none of the multiprocessors that it may use exists")
    fits = min(limit // need for limit, need in zip(limits, needs, strict=True) if need)
    if fits < 1:
        raise SpecError(f"kernel {kernel.name}: a block needs {kernel.needs}, a multiprocessor holds {machine.limits}")
    if kernel.cluster_count > 1:
        largest = max((mask & gpc).bit_count() for gpc in gpc_masks(machine)) * fits
        if kernel.cluster_count > largest:
            raise SpecError(
                f"kernel {kernel.name}: clusters of {kernel.cluster_count} blocks, at most {largest} start together"
            )


def gpc_masks(machine: Machine) -> tuple[int, ...]:
    """Return the bit mask of each cluster of multiprocessors."""
    masks = [0] * len(machine.gpc_sm_count)
    for place, gpc in enumerate(machine.spread()):
        masks[gpc] |= 1 << place
    return tuple(masks)


def _pace(phase: Phase, machine: Machine, name: str) -> Pace:
    """Return the time and demands of a phase at full speed."""
    unknown = [*(set(phase.pipe_s) - set(PIPES)), *(set(phase.pool_bytes) - set(machine.pool_bytes_per_s))]
    if unknown:
        raise SpecError(
            f"{name}: {machine.name} has no {unknown[0]}; it has {', '.join((*PIPES, *machine.pool_bytes_per_s))}"
        )
    least = max(
        phase.fixed_ps,
        *(ceil(seconds * PS_PER_S - 1e-6) for seconds in phase.pipe_s.values()), 0, 0,
        *(ceil(amount / machine.pool_bytes_per_s[pool] * PS_PER_S - 1e-6) for pool, amount in phase.pool_bytes.items()),
    )  # fmt: skip
    alone = max(least, 1)
    pipes = tuple(phase.pipe_s.get(pipe, 0.0) * PS_PER_S / alone for pipe in PIPES)
    pools = tuple(phase.pool_bytes.get(pool, 0.0) / alone for pool in machine.pool_bytes_per_s)
    return Pace(float(alone), pipes, pools, phase.waits)
