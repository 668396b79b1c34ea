"""Time slicing of contexts that share multiprocessors."""

from collections.abc import Iterator, Sequence

from nearpeak.core.answers.simulation import Switch
from nearpeak.errors import SpecError
from nearpeak.simulation.engine.partition import Context
from nearpeak.simulation.engine.resident_blocks import Group, Residents
from nearpeak.simulation.engine.work_nodes import gpc_masks
from nearpeak.simulation.machine import Machine
from nearpeak.simulation.machine_units import PS_PER_S


class State:
    """One context: its own view of the multiprocessors, which is saved when another's turn comes."""

    __slots__ = ("context", "residents")

    def __init__(self, context: Context, residents: Residents) -> None:
        """Keep both."""
        self.context, self.residents = context, residents

    def busy(self) -> bool:
        """Return whether any of its blocks is resident."""
        return any(group.flows for group in self.residents.groups)

    def state_bytes(self, limits: tuple[int, ...]) -> int:
        """Return the registers and shared memory that its resident blocks hold."""
        return sum(
            group.mask.bit_count() * (4 * (limits[2] - group.free[2]) + limits[3] - group.free[3])
            for group in self.residents.groups
        )


class Circle:
    """Contexts of which one runs at a time."""

    __slots__ = ("at", "blocked_ps", "leaving", "states", "until_ps")

    def __init__(self, states: list[State]) -> None:
        """Give the first the turn; no slice runs out before another waits, no switch is going on."""
        self.states, self.at, self.leaving = states, 0, False
        self.until_ps: int | None = None
        self.blocked_ps = -1


class Turns:
    """Who may run now."""

    def __init__(self, machine: Machine, contexts: Sequence[Context], packs: bool) -> None:
        self.costs, self.limits = machine.costs, machine.limits.vector()
        self.switches: list[Switch] = []
        self.passed: list[tuple[State, State, int]] = []
        gpcs = gpc_masks(machine)
        self.masks: dict[str, int] = {}
        for context in contexts:
            if context.name in self.masks:
                raise SpecError(f"two contexts are called {context.name}")
            self.masks[context.name] = _mask(context, machine)
        states = [State(c, Residents([Group(self.masks[c.name], self.limits)], gpcs, packs)) for c in contexts]
        self.circles = [Circle(states=circle) for circle in _circles(states, self.masks)]
        self.of = {state.context.name: circle for circle in self.circles for state in circle.states}

    def active(self, name: str) -> State | None:
        """Return a context that may start blocks now; none while another has the turn."""
        circle = self.of[name]
        state = circle.states[circle.at]
        return state if state.context.name == name and circle.blocked_ps < 0 and not circle.leaving else None

    def running(self) -> Iterator[State]:
        """Go through the contexts whose blocks go on."""
        for circle in self.circles:
            if circle.blocked_ps < 0:
                yield circle.states[circle.at]

    def evicted(self) -> Iterator[State]:
        """Go through the contexts whose blocks wait for their turn."""
        for circle in self.circles:
            for place, state in enumerate(circle.states):
                if place != circle.at or circle.blocked_ps >= 0:
                    yield state

    def advance(self, now_ps: int, pending: set[str]) -> tuple[bool, int | None]:
        """Pass turns on; return whether one passed, and when to look again."""
        changed, again = False, []
        for circle in self.circles:
            if len(circle.states) > 1:
                changed |= self._advance(circle, now_ps, pending)
                again += [t for t in (circle.until_ps, circle.blocked_ps) if t is not None and t > now_ps]
        return changed, min(again, default=None)

    def _advance(self, circle: Circle, now_ps: int, pending: set[str]) -> bool:
        if circle.blocked_ps > now_ps:
            return False
        circle.blocked_ps = -1
        state = circle.states[circle.at]
        works = [s.busy() or s.context.name in pending for s in circle.states]
        rank = state.context.priority if works[circle.at] else min(s.context.priority for s in circle.states)
        others = [i for i, s in enumerate(circle.states) if i != circle.at and works[i] and s.context.priority >= rank]
        if not others:
            circle.until_ps, circle.leaving = None, False
            return False
        if circle.until_ps is None:
            circle.until_ps = now_ps + state.context.slice_ps
        urgent = any(circle.states[i].context.priority > state.context.priority for i in others)
        if works[circle.at] and now_ps < circle.until_ps and not urgent:
            return False
        if state.context.drains and state.busy():
            circle.leaving = True
            return False
        return self._pass(circle, others, works[circle.at], now_ps)

    def _pass(self, circle: Circle, others: list[int], saves: bool, now_ps: int) -> bool:
        """Give the turn to the next that has work, the most urgent first."""
        count, leaving = len(circle.states), circle.states[circle.at]
        circle.at = min(others, key=lambda i: (-circle.states[i].context.priority, (i - circle.at - 1) % count))
        circle.leaving = False
        entering = circle.states[circle.at]
        cost = self._cost_ps(leaving, entering, now_ps, saves=saves)
        circle.blocked_ps = now_ps + cost if cost else -1
        circle.until_ps = now_ps + cost + entering.context.slice_ps
        self.passed.append((leaving, entering, now_ps + cost))
        return True

    def _cost_ps(self, leaving: State, entering: State, now_ps: int, *, saves: bool) -> int:
        """Return the time of a context switch: resident state of one is saved, that of the other restored."""
        cost, saved, restored = self.costs.switch_ps if saves else 0, 0, 0
        if self.costs.state_bytes_per_s is not None:
            saved, restored = leaving.state_bytes(self.limits), entering.state_bytes(self.limits)
            cost += round((saved + restored) / self.costs.state_bytes_per_s * PS_PER_S)
        if cost:
            self.switches.append(Switch(
                start_ps=now_ps, end_ps=now_ps + cost, leaving=leaving.context.name, entering=entering.context.name,
                saved_bytes=saved, restored_bytes=restored,
            ))  # fmt: skip
        return cost


def _mask(context: Context, machine: Machine) -> int:
    """Return the multiprocessors of a context."""
    if context.sms is None:
        return (1 << machine.sm_count) - 1
    wrong = [sm for sm in context.sms if not 0 <= sm < machine.sm_count]
    if wrong or not context.sms:
        raise SpecError(
            f"context {context.name}: multiprocessors {wrong or 'none'}; there are 0 to {machine.sm_count - 1}"
        )
    return sum(1 << sm for sm in set(context.sms))


def _circles(states: list[State], masks: dict[str, int]) -> list[list[State]]:
    """Return contexts grouped by the multiprocessors that they have in common."""
    circles: list[tuple[int, list[State]]] = []
    for state in states:
        mask, together = masks[state.context.name], [state]
        apart = []
        for other, members in circles:
            if other & mask:
                mask, together = mask | other, members + together
            else:
                apart.append((other, members))
        circles = [*apart, (mask, together)]
    return [members for _, members in circles]
