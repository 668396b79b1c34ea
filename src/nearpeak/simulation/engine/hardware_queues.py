"""Hardware queues: streams that share a queue run in submission order."""

import bisect
from collections.abc import Iterator, Sequence

from nearpeak.simulation.engine.device_work import Kernel
from nearpeak.simulation.engine.work_nodes import Running
from nearpeak.simulation.machine import Machine


class Channels:
    """Kernels by the hardware queue that their stream is mapped to, in turn, as streams of a context come up."""

    def __init__(self, nodes: Sequence[Running], machine: Machine) -> None:
        self.nodes, self.of = nodes, dict[int, tuple[str, int]]()
        self.lines: dict[tuple[str, int], list[tuple[int, int]]] = {}
        if machine.queue_count is None:
            return
        streams: dict[str, dict[str, int]] = {}
        for work in nodes:
            if isinstance(work.node, Kernel):
                known = streams.setdefault(work.node.context, {})
                place = known.setdefault(work.node.queue, len(known))
                self.of[work.order] = (work.node.context, place % machine.queue_count)
        for work in nodes:
            if not work.node.thread:
                self.enter(work.order, work.node.not_before_ps)

    def enter(self, order: int, now_ps: int) -> None:
        """Put work at the end of its queue."""
        if order in self.of:
            bisect.insort(self.lines.setdefault(self.of[order], []), (now_ps, order))

    def leave(self, node: Running, now_ps: int) -> Iterator[Running]:
        """Yield the work that may start once a kernel is ready: it and those behind it, or none."""
        node.due_ps = now_ps
        if node.order not in self.of:
            yield node
            return
        line = self.lines[self.of[node.order]]
        while line and self.nodes[line[0][1]].due_ps >= 0:
            first = self.nodes[line.pop(0)[1]]
            first.lose("queue", now_ps - first.due_ps)
            yield first
