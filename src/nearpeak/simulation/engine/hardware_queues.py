"""Hardware queues: streams that share one go through it in the order in which they were submitted."""

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
        for one in nodes:
            if isinstance(one.node, Kernel):
                known = streams.setdefault(one.node.context, {})
                place = known.setdefault(one.node.queue, len(known))
                self.of[one.order] = (one.node.context, place % machine.queue_count)
        for one in nodes:
            if not one.node.thread:
                self.enter(one.order, one.node.not_before_ps)

    def enter(self, order: int, now_ps: int) -> None:
        """Put work at the end of its queue."""
        if order in self.of:
            bisect.insort(self.lines.setdefault(self.of[order], []), (now_ps, order))

    def leave(self, node: Running, now_ps: int) -> Iterator[Running]:
        """Yield what may start now that a kernel has everything it waits for: perhaps not it, perhaps others behind."""
        node.due_ps = now_ps
        if node.order not in self.of:
            yield node
            return
        line = self.lines[self.of[node.order]]
        while line and self.nodes[line[0][1]].due_ps >= 0:
            first = self.nodes[line.pop(0)[1]]
            first.lose("queue", now_ps - first.due_ps)
            yield first
