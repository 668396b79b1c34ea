"""Work as the engine keeps it: what it waits for, how far it is, what its phases use at full speed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil

from nearpeak.errors import SpecError
from nearpeak.sim._residents import Flow
from nearpeak.sim.machine import PIPES, PS_PER_S, Machine
from nearpeak.sim.work import Copy, Kernel, Node, Phase


@dataclass(frozen=True, slots=True)
class Pace:
    """A phase at full speed on this machine."""

    alone_ps: float
    """How long it takes when nobody else is there."""
    pipes: tuple[float, ...]
    """Share of each unit of a multiprocessor that one block uses meanwhile."""
    pools: tuple[float, ...]
    """Bytes per picosecond that one block draws from each pool meanwhile."""
    waits: bool


@dataclass(slots=True, eq=False)
class Running:
    """One kernel or copy."""

    node: Node
    order: int
    rank: int
    """Place in the order given; says which of several equals is meant."""
    paces: tuple[Pace, ...]
    needs: tuple[int, ...]
    mask: int
    cluster: int
    total: int
    unplaced: int
    waits_for: set[int] = field(default_factory=set)
    blocks: list[int] = field(default_factory=list)
    unfinished: int = 0
    ready_ps: int = -1
    start_ps: int = -1
    placed_ps: int = -1
    end_ps: int = -1
    slot_ps: int = 0

    def started(self, count: int, now_ps: int) -> Flow:
        """Return blocks that begin their first phase."""
        return Flow(self, 0, self.paces[0].alone_ps, count, now_ps)


def prepared(nodes: Sequence[Node], machine: Machine, masks: Mapping[str, int]) -> list[Running]:
    """Return all work with what each piece waits for.

    Raises:
        SpecError: A name stands twice, is unknown, or pieces wait for each other in a circle; a kernel needs more than
            an empty multiprocessor, or an empty cluster of them, holds.
    """
    places = {node.name: index for index, node in enumerate(nodes)}
    if len(places) < len(nodes):
        twice = next(n.name for i, n in enumerate(nodes) if places[n.name] != i)
        raise SpecError(f"two pieces of work are called {twice}: names tell what waits for what")
    running = [_running(node, index, machine, masks) for index, node in enumerate(nodes)]
    last: dict[tuple[str, str], int] = {}
    for index, node in enumerate(nodes):
        before = {_place(places, name, node) for name in node.after}
        if (node.context, node.queue) in last:
            before.add(last[node.context, node.queue])
        last[node.context, node.queue] = index
        running[index].waits_for = before
        for other in before:
            running[other].blocks.append(index)
    _refuse_circles(running)
    return running


def _place(places: Mapping[str, int], name: str, node: Node) -> int:
    if name not in places:
        raise SpecError(f"{node.name} waits for {name}, and nothing is called so")
    return places[name]


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
        return Running(node, index, index, (_pace(phase, machine, node.name),), (), 0, 1, 1, 1)
    mask = masks[node.context]
    if node.sms is not None:
        mask &= sum(1 << sm for sm in set(node.sms))
    paces = tuple(_pace(phase, machine, node.name) for phase in node.phases)
    _check_fits(node, machine, mask)
    return Running(
        node, index, index, paces, node.needs.vector(), mask, node.cluster_count, node.cta_count, node.cta_count
    )


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
    masks = [0] * len(machine.gpcs)
    for place, gpc in enumerate(machine.spread()):
        masks[gpc] |= 1 << place
    return tuple(masks)


def _pace(phase: Phase, machine: Machine, name: str) -> Pace:
    """Return what a phase takes and uses at full speed."""
    unknown = [*(set(phase.pipe_s) - set(PIPES)), *(set(phase.pool_bytes) - set(machine.pools))]
    if unknown:
        raise SpecError(f"{name}: {machine.name} has no {unknown[0]}; it has {', '.join((*PIPES, *machine.pools))}")
    least = max(
        phase.fixed_ps,
        *(ceil(seconds * PS_PER_S - 1e-6) for seconds in phase.pipe_s.values()), 0, 0,
        *(ceil(amount / machine.pools[pool] * PS_PER_S - 1e-6) for pool, amount in phase.pool_bytes.items()),
    )  # fmt: skip
    alone = max(least, 1)
    pipes = tuple(phase.pipe_s.get(pipe, 0.0) * PS_PER_S / alone for pipe in PIPES)
    pools = tuple(phase.pool_bytes.get(pool, 0.0) / alone for pool in machine.pools)
    return Pace(float(alone), pipes, pools, phase.waits)
