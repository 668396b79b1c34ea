"""The event loop: places blocks, shares resources, and advances to the next state change."""

import heapq
import itertools
from collections.abc import Sequence
from typing import NamedTuple

from nearpeak.core.answers.simulation import Batch, Run
from nearpeak.errors import SpecError
from nearpeak.simulation.engine.device_work import Copy, Node
from nearpeak.simulation.engine.hardware_queues import Channels
from nearpeak.simulation.engine.host_threads import HOST, Hosts
from nearpeak.simulation.engine.partition import Context
from nearpeak.simulation.engine.phase_moments import NEAR_PS, point_of, span_of, whole
from nearpeak.simulation.engine.progress_rates import Rates
from nearpeak.simulation.engine.resident_blocks import Group
from nearpeak.simulation.engine.time_slices import State, Turns
from nearpeak.simulation.engine.work_nodes import Flow, Running, prepared
from nearpeak.simulation.machine import Machine
from nearpeak.simulation.power_governor import Governor


def simulate(
    machine: Machine, work: Sequence[Node], *, contexts: Sequence[Context] = (Context(),), records: bool = False,
    packs: bool = False, compresses: bool = True,
) -> Run:  # fmt: skip
    """Run work on a machine and return when everything happened.

    Args:
        machine: The device.
        work: Kernels and copies, in the order in which they are submitted.
        contexts: Who may use which multiprocessors; those with some in common take turns.
        records: Whether to keep where blocks were, for pictures.
        packs: Whether a first wave fills one multiprocessor after the other.
        compresses: Whether states that repeat are counted instead of simulated again; the result is the same.

    Raises:
        SpecError: The work can never run on this machine, or waits for itself.
    """
    return _Engine(machine, work, contexts, records, packs, compresses).run()


class _Seen(NamedTuple):
    """A state that may come again: when it was, and what each kernel had left then."""

    now_ps: int
    unplaced: dict[int, int]
    unfinished: dict[int, int]
    slot_ps: dict[int, int]
    batches: int
    energy_j: float


class _Engine:
    """One run."""

    def __init__(
        self, machine: Machine, work: Sequence[Node], contexts: Sequence[Context], records: bool, packs: bool,
        compresses: bool,
    ) -> None:  # fmt: skip
        self.machine, self.records, self.compresses = machine, records, compresses
        self.turns = Turns(machine, contexts, packs)
        self.nodes = prepared(work, machine, self.turns.masks)
        self.rates = Rates(machine, contexts)
        self.pending: list[Running] = []
        self.copies: dict[str, list[Running]] = {}
        self.moving: list[Flow] = []
        self.timed: list[tuple[int, int, str, int]] = []
        self.turn_of_event = itertools.count()
        self.now_ps = self.events = self.ctas = 0
        self.batches: list[Batch] = []
        self.seen: dict[object, _Seen] = {}
        self.left = len(self.nodes)
        self.governor = None if machine.power is None or not machine.power.governs else Governor(machine.power)
        self.decided_ps = self.resident = 0
        self.hosts, self.channels = Hosts(self.nodes, machine), Channels(self.nodes, machine)

    def run(self) -> Run:
        """Go from event to event until all work is complete."""
        for node in self.nodes:
            if not node.waits_for:
                self._at(node.node.not_before_ps, "ready", node.order)
        if self.governor is not None:
            self._at(self.governor.power.step_ps, "clock", 0)
        while self.left:
            self._deliver()
            self._place()
            self._begin_launches()
            if self.left:
                self._step()
        spans = tuple(span_of(node) for node in self.nodes)
        return Run(
            end_ps=max((span.end_ps for span in spans), default=0), spans=spans, batches=tuple(self.batches),
            event_count=self.events, cta_count=self.ctas,
            energy_j=None if self.governor is None else self.governor.energy_j,
            governed=() if self.governor is None else tuple(self.governor.samples),
            heat_celsius=() if self.governor is None else tuple(self.governor.temperatures),
            switches=tuple(self.turns.switches),
        )  # fmt: skip

    def _at(self, time_ps: int, kind: str, order: int) -> None:
        heapq.heappush(self.timed, (max(time_ps, self.now_ps), next(self.turn_of_event), kind, order))

    # What happens at a moment.

    def _deliver(self) -> None:
        """Let everything happen that is due now."""
        while self.timed and self.timed[0][0] <= self.now_ps:
            _, _, kind, order = heapq.heappop(self.timed)
            self.seen.clear()
            if kind == "ready":
                self._ready(self.nodes[order])
            elif kind == "submit":
                self._submit(order)
            elif kind == "complete":
                self._complete(self.nodes[order])
            elif kind == "clock":
                self._decide()
            self._begin_launches()
        self._turn()

    def _begin_launches(self) -> None:
        """Let host threads begin to submit what they can."""
        for thread, done_ps in self.hosts.begin(self.now_ps):
            self._at(done_ps, "submit", thread)

    def _submit(self, thread: int) -> None:
        """Let what a thread has submitted start once the device knows of it and what it waits for has ended."""
        due = self.now_ps + self.machine.costs.submit_ps
        for order in self.hosts.submit(thread):
            node = self.nodes[order]
            node.waits_for.discard(HOST)
            node.submitted_ps = due
            self.channels.enter(order, self.now_ps)
            if not node.waits_for:
                node.lose("host", due - max(node.free_ps, node.node.not_before_ps))
                self._at(max(due, node.node.not_before_ps), "ready", order)
            else:
                self._may_come_early(node)

    def _decide(self) -> None:
        """Let the governor set the clock, as long as there is work."""
        if self.governor is not None and self.left:
            self.governor.decide(self.now_ps, self.decided_ps)
            self.decided_ps = self.now_ps
            self._at(self.now_ps + self.governor.power.step_ps, "clock", 0)

    def _turn(self) -> None:
        """Let contexts take turns, and note when the next turn may come."""
        changed, again_ps = self.turns.advance(self.now_ps, {p.node.context for p in self.pending})
        if changed:
            self.seen.clear()
            self._evict()
        if again_ps is not None and all(t[0] != again_ps or t[2] != "turn" for t in self.timed):
            self._at(again_ps, "turn", 0)

    def _evict(self) -> None:
        """Record blocks up to where their context lost its turn; those of the other go on when it has been restored."""
        for leaving, entering, resumed_ps in self.turns.passed:
            for group, flow in leaving.residents.flows() if self.records else ():
                if flow.start_ps < self.now_ps:
                    self._record(group, flow)
            for _, flow in entering.residents.flows():
                flow.start_ps = resumed_ps
        self.turns.passed.clear()

    def _record(self, group: Group, flow: Flow) -> None:
        """Keep where blocks were, up to now."""
        self.batches.append(Batch(
            name=flow.running.node.name, start_ps=flow.start_ps, end_ps=self.now_ps, sms=group.mask,
            each_count=flow.count,
        ))  # fmt: skip

    def _ready(self, node: Running) -> None:
        """Let work start whose turn in its stream has come."""
        node.ready_ps = self.now_ps if node.ready_ps < 0 else node.ready_ps
        if isinstance(node.node, Copy):
            self.copies.setdefault(node.node.engine, []).append(node)
            node.hold("engine", self.now_ps)
            return
        self.pending.extend(self.channels.leave(node, self.now_ps))
        self.pending.sort(key=lambda piece: (-piece.node.priority, piece.order))

    def _complete(self, node: Running) -> None:
        """Tell those that wait."""
        node.end_ps = self.now_ps
        self.left -= 1
        for order in node.blocks:
            other = self.nodes[order]
            other.waits_for.discard(node.order)
            other.free_ps = self.now_ps
            if not other.waits_for and other.ready_ps < 0:
                due = max(self.now_ps + self._lag(node, other), other.node.not_before_ps, other.submitted_ps)
                self._at(due, "ready", order)
            if not other.waits_for:
                for behind in other.blocks:
                    self._may_come_early(self.nodes[behind])

    def _lag(self, node: Running, other: Running) -> int:
        """Return the delay between the end of one and the start of the next; early work waits on the device."""
        early = getattr(other.node, "early", False)
        return 0 if early or isinstance(node.node, Copy) else self.machine.costs.dependency_ps

    def _place(self) -> None:
        """Start blocks in order of rank: the later gets what the earlier leaves."""
        self._start_copies()
        if not self.pending:
            return
        full: set[int] = set()
        for node in tuple(self.pending):
            state = self.turns.active(node.node.context)
            why = self._refused(node, state, full)
            if why or state is None:
                if node.start_ps < 0:
                    node.hold(why, self.now_ps)
                continue
            placed = state.residents.place(node, self.now_ps)
            if placed:
                self.ctas += placed
                self._start(node)
            elif node.start_ps < 0:
                node.hold(state.residents.lack(node), self.now_ps)
            if node.unplaced:
                full.add(node.mask)
            else:
                self._all_placed(node)

    def _refused(self, node: Running, state: State | None, full: set[int]) -> str:
        """Return the reason for which a kernel may not place blocks."""
        if state is None:
            return "turn"
        if any(node.mask & mask for mask in full):
            return "rank"
        return "grids" if node.start_ps < 0 and self.resident >= self.machine.grid_count else ""

    def _start(self, node: Running) -> None:
        """Note that the first block of a kernel, or a copy, has started."""
        if node.start_ps < 0:
            node.start_ps = self.now_ps
            node.hold("", self.now_ps)
            self.hosts.start(node.order)
            self.resident += not isinstance(node.node, Copy)

    def _all_placed(self, node: Running) -> None:
        """Let kernels with an early start take free slots."""
        node.placed_ps = self.now_ps
        self.pending.remove(node)
        for order in node.blocks:
            self._may_come_early(self.nodes[order])

    def _may_come_early(self, other: Running) -> None:
        """Let a kernel come early where all blocks of those before it have started and wait for nobody themselves."""
        if not getattr(other.node, "early", False) or other.ready_ps >= 0 or HOST in other.waits_for:
            return
        rest = [self.nodes[place] for place in other.waits_for]
        if all(p.placed_ps >= 0 and not p.waits_for and not isinstance(p.node, Copy) for p in rest):
            other.ready_ps = max(self.now_ps, other.node.not_before_ps, other.submitted_ps)
            self._at(other.ready_ps, "ready", other.order)

    def _start_copies(self) -> None:
        busy = {flow.running.node.engine for flow in self.moving if isinstance(flow.running.node, Copy)}
        for engine, waiting in self.copies.items():
            if waiting and engine not in busy:
                node = waiting.pop(0)
                self._start(node)
                node.placed_ps = self.now_ps
                self.moving.append(node.started(1, self.now_ps))

    # From one moment to the next.

    def _step(self) -> None:
        """Go to the next moment at which something ends or is due."""
        self.events += 1
        running = [(group, flow) for state in self.turns.running() for group, flow in state.residents.flows()]
        speeds = self.rates.speeds(running, self.moving, 1.0 if self.governor is None else self.governor.clock_ratio)
        flows = [flow for _, flow in running] + self.moving
        ends = [flow.left_ps / speed for flow, speed in zip(flows, speeds, strict=True) if speed > 0]
        wait = whole(min(ends)) if ends else None
        due = self.timed[0][0] - self.now_ps if self.timed else None
        if wait is None and (due is None or self._only_clock()):
            self._refuse_standstill()
        if self.compresses and wait is not None and self._repeats(running, due):
            return
        step = min(value for value in (wait, due) if value is not None)
        if self.governor is not None:
            self.governor.draw(self.rates.watts(running, self.moving, speeds, self.governor.power), step)
        self._advance(running, flows, speeds, step)

    def _advance(
        self, running: list[tuple[Group, Flow]], flows: list[Flow], speeds: Sequence[float], step: int
    ) -> None:
        """Let time pass, and end what ends."""
        self.now_ps += step
        masks = [group.mask.bit_count() for group, _ in running]
        for flow, count in zip((flow for _, flow in running), masks, strict=True):
            flow.running.slot_ps += step * flow.count * count
        self._lose_turns(step)
        ended = []
        for index, (flow, speed) in enumerate(zip(flows, speeds, strict=True)):
            flow.left_ps -= step * speed
            if speed > 0 and flow.left_ps <= NEAR_PS:
                ended.append(index)
        for index in ended:
            self._end_phase(running[index][0] if index < len(running) else None, flows[index])
        if ended:
            for state in self.turns.running():
                state.residents.merge()

    def _lose_turns(self, time_ps: int) -> None:
        """Count the time of blocks that wait for the turn of their context."""
        for state in self.turns.evicted():
            for order in {flow.running.order for _, flow in state.residents.flows()}:
                self.nodes[order].lose("evicted", time_ps)

    def _end_phase(self, group: Group | None, flow: Flow) -> None:
        """Begin the next phase, or give back the room."""
        node = flow.running
        if flow.phase + 1 < len(node.paces):
            flow.phase += 1
            flow.left_ps = node.paces[flow.phase].alone_ps
            return
        count = flow.count
        if group is None:
            self.moving.remove(flow)
        else:
            count *= group.mask.bit_count()
            group.drop(flow, node.needs)
            if self.records:
                self._record(group, flow)
        node.unfinished -= count
        if not node.unfinished:
            self.seen.clear()
            self.resident -= group is not None
            least = node.start_ps + self.machine.costs.floor_ps
            self._at(self.now_ps if group is None else max(self.now_ps, least), "complete", node.order)

    # States that repeat.

    def _repeats(self, running: list[tuple[Group, Flow]], due_ps: int | None) -> bool:
        """Jump over whole periods where the state of the machine is one that was there before; say whether it did."""
        if not self.pending or self.moving:
            return False
        key = tuple((group.mask, *sorted(point_of(flow, self.now_ps) for flow in group.flows))
                    for state in self.turns.running() for group in state.residents.groups)  # fmt: skip
        seen = self.seen.get(key)
        touched = {flow.running.order: flow.running for _, flow in running} | {p.order: p for p in self.pending}
        if seen is None or set(seen.unplaced) != set(touched):
            self.seen[key] = self._remember(touched)
            return False
        return self._jump(seen, touched, due_ps)

    def _remember(self, touched: dict[int, Running]) -> _Seen:
        return _Seen(
            self.now_ps, {o: p.unplaced for o, p in touched.items()}, {o: p.unfinished for o, p in touched.items()},
            {o: p.slot_ps for o, p in touched.items()}, len(self.batches),
            0.0 if self.governor is None else self.governor.energy_j,
        )  # fmt: skip

    def _jump(self, seen: _Seen, touched: dict[int, Running], due_ps: int | None) -> bool:
        period = self.now_ps - seen.now_ps
        used = {order: seen.unplaced[order] - piece.unplaced for order, piece in touched.items()}
        times = min((touched[order].unplaced // count for order, count in used.items() if count), default=0)
        if due_ps is not None:
            times = min(times, (due_ps - 1) // period if period else 0)
        if times < 1 or period < 1:
            return False
        for order, piece in touched.items():
            piece.slot_ps += times * (piece.slot_ps - seen.slot_ps[order])
            piece.unfinished -= times * (seen.unfinished[order] - piece.unfinished)
            piece.unplaced -= times * used[order]
            self.ctas += times * used[order]
        self.now_ps += times * period
        self._lose_turns(times * period)
        if self.governor is not None:
            self.governor.repeat(times * (self.governor.energy_j - seen.energy_j))
        self._shift(times, period, seen.batches)
        self.seen.clear()
        return True

    def _shift(self, times: int, period: int, first: int) -> None:
        """Move blocks that run on over the jump, and record what was jumped over."""
        for state in self.turns.running():
            for _, flow in state.residents.flows():
                flow.start_ps += times * period
        for batch in self.batches[first:] if self.records else ():
            self.batches.append(Batch(
                name=batch.name, start_ps=batch.start_ps + period, end_ps=batch.end_ps + period, sms=batch.sms,
                each_count=batch.each_count, repeat_count=times, period_ps=period,
            ))  # fmt: skip

    def _only_clock(self) -> bool:
        """Return whether nothing is due but decisions of the governor."""
        return all(kind == "clock" for _, _, kind, _ in self.timed)

    def _refuse_standstill(self) -> None:
        names = ", ".join(node.node.name for node in self.nodes if node.end_ps < 0)
        raise SpecError(f"nothing runs and nothing is due, but these have not ended: {names[:200]}")
