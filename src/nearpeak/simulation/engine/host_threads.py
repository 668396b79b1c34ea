"""Host threads that submit work, call by call or as a graph, into a finite queue."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from nearpeak.errors import SpecError
from nearpeak.simulation.engine.work_nodes import Running
from nearpeak.simulation.machine import Machine

HOST = -1
"""What work waits for that no thread has submitted."""


class Launch(NamedTuple):
    """What a thread submits at once: a kernel, a copy, or all nodes of a graph."""

    orders: tuple[int, ...]
    host_ps: int
    after: frozenset[int]
    not_before_ps: int


class Hosts:
    """All threads: what each submits next, and what of it has not started yet.

    A thread submits one launch after the other: the next is done at max(end of the last, start of the one that stands
    as many before as the queue is deep, end of what it synchronises with) + its cost.
    """

    def __init__(self, nodes: Sequence[Running], machine: Machine) -> None:
        self.nodes, self.depth = nodes, machine.pending_count
        self.launches = [
            list(_launches(thread, nodes, machine))
            for thread in list(dict.fromkeys(work.node.thread for work in nodes if work.node.thread))
        ]
        self.at = [0] * len(self.launches)
        self.busy = [False] * len(self.launches)
        self.waiting: list[set[int]] = [set() for _ in self.launches]
        self.of = {
            order: (thread, place)
            for thread, each in enumerate(self.launches) for place, launch in enumerate(each) for order in launch.orders
        }  # fmt: skip
        for order in self.of:
            nodes[order].waits_for.add(HOST)

    def begin(self, now_ps: int) -> Iterator[tuple[int, int]]:
        """Yield threads that begin to submit now, with when they will be done."""
        for thread, launches in enumerate(self.launches):
            if self.busy[thread] or self.at[thread] == len(launches) or len(self.waiting[thread]) >= self.depth:
                continue
            launch = launches[self.at[thread]]
            if all(self.nodes[order].end_ps >= 0 for order in launch.after):
                self.busy[thread] = True
                yield thread, max(now_ps, launch.not_before_ps) + launch.host_ps

    def submit(self, thread: int) -> tuple[int, ...]:
        """Return the work of a thread that is on the device from now on."""
        launch = self.launches[thread][self.at[thread]]
        self.waiting[thread].add(self.at[thread])
        self.at[thread] += 1
        self.busy[thread] = False
        return launch.orders

    def start(self, order: int) -> None:
        """Give the place in the queue back of what has started."""
        if order in self.of:
            thread, place = self.of[order]
            self.waiting[thread].discard(place)


def _launches(thread: str, nodes: Sequence[Running], machine: Machine) -> Iterator[Launch]:
    """Yield a thread's submissions in order; a graph takes the place of its first node."""
    places = {work.node.name: work.order for work in nodes}
    together: dict[str, list[Running]] = {}
    for work in nodes:
        if work.node.thread == thread:
            together.setdefault(f"graph {work.node.graph}" if work.node.graph else f"node {work.order}", []).append(
                work
            )
    for members in together.values():
        unknown = [name for work in members for name in work.node.host_after if name not in places]
        if unknown:
            raise SpecError(f"{members[0].node.name}: its thread waits for {unknown[0]}, and nothing is called so")
        yield Launch(
            orders=tuple(work.order for work in members), host_ps=_host_ps(members, machine),
            after=frozenset(places[name] for work in members for name in work.node.host_after),
            not_before_ps=max(work.node.not_before_ps for work in members),
        )  # fmt: skip


def _host_ps(members: Sequence[Running], machine: Machine) -> int:
    first = members[0].node
    if first.graph:
        return machine.costs.graph_ps + len(members) * machine.costs.graph_node_ps
    return machine.costs.launch_ps if first.host_ps is None else first.host_ps
