"""Branches of a captured step's graph that do not depend on each other, on ranks of their own."""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from nearpeak.base.identity_key import Same
from nearpeak.core.work.workload import Call, Workload
from nearpeak.errors import SpecError
from nearpeak.systems.training.branch_placement import Branch, place_branches
from nearpeak.systems.training.programs.captured_step import CapturedStep


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBranches:
    """Where the branches of a step run: the home rank runs all that is none, and the longest branch of each fork."""

    moved: "frozenset[Same[Call]]"
    """Calls that run on other ranks."""
    serial_s: float
    """Both passes of a micro-batch on one rank."""
    time_s: float
    """Both passes with the branches on ranks of their own, transfers included."""
    wait_s: float
    """Time of it in which the home rank waits for the others."""
    is_exact: bool
    """Whether every fork's placement is proved to be the fastest."""

    def own(self, calls: Iterable[Call]) -> tuple[Call, ...]:
        """Return the calls of the home rank."""
        return tuple(call for call in calls if Same(call) not in self.moved)

    def others(self, calls: Iterable[Call]) -> tuple[Call, ...]:
        """Return the calls of the other ranks."""
        return tuple(call for call in calls if Same(call) in self.moved)


_PRODUCTS = ("gemm", "grouped_gemm", "scaled_gemm", "conv", "attention", "varlen_attention")
"""Operators with which the work of a path begins."""
_Fork = tuple[tuple[int, ...], ...]
"""Forward calls, by position, of each branch between two calls that all paths pass."""


def step_branches(
    step: CapturedStep, workload: Workload, rank_count: int, *, call_s: Callable[[Call], float],
    send_s: Callable[[int], float],
) -> StepBranches:  # fmt: skip
    """Return the branches of a step placed on ranks, fork by fork, where that is faster than one after the other.

    A branch that leaves the home rank gets its inputs from there and sends its results back, in both passes. A backward
    call runs where the forward calls of its module run.

    Args:
        call_s: time of a call.
        send_s: time of a message of so many bytes.

    Raises:
        SpecError: the graph has no branches, fewer than the ranks, or none that gains from a rank of its own.
    """
    forks = [fork for fork in _forks(step, workload) if len(fork) > 1]
    most = max((len(fork) for fork in forks), default=1)
    if most < rank_count:
        near = f"branches={most} may" if most > 1 else "its graph is a chain: pp, dp or spatial would"
        raise SpecError(f"{step.name}: branches={rank_count}: at most {most} run beside each other; {near} work")
    backward = _backward_of(step)
    serial_s = sum(call_s(call) for call in (*step.forward, *step.backward))
    moved: set[Same[Call]] = set()
    saved_s, wait_s, is_exact = 0.0, 0.0, True
    for fork in forks:
        calls = [_calls_of(branch, step, backward) for branch in fork]
        alone_s = [sum(call_s(call) for call in branch) for branch in calls]
        crossing = [2 * sum(send_s(size) for size in _crossing(branch, step, workload)) for branch in fork]
        home = max(range(len(alone_s)), key=alone_s.__getitem__)
        placed = place_branches(
            [Branch(name=str(place), time_s={1: own_s + (place != home) * crossing[place]})
             for place, own_s in enumerate(alone_s)], rank_count,
        )  # fmt: skip
        if placed.time_s >= sum(alone_s):
            continue
        at_home = _same_rank(placed.start_s, alone_s, crossing, home)
        moved |= {Same(call) for place, branch in enumerate(calls) if place not in at_home for call in branch}
        saved_s += sum(alone_s) - placed.time_s
        wait_s += placed.time_s - sum(alone_s[place] for place in at_home)
        is_exact = is_exact and placed.is_exact
    if not moved:
        raise SpecError(
            f"{step.name}: branches={rank_count}: of {len(forks)} forks of its graph none is faster on ranks of its "
            "own, transfers included; dp or pp would use them"
        )
    return StepBranches(
        moved=frozenset(moved), serial_s=serial_s, time_s=serial_s - saved_s, wait_s=max(wait_s, 0.0), is_exact=is_exact
    )


def _same_rank(starts: Mapping[str, float], alone_s: Sequence[float], crossing: Sequence[float], home: int) -> set[int]:
    """Return the branches that run on the rank of the longest one, by their starts."""
    free: list[tuple[float, set[int]]] = []
    for place in sorted(range(len(alone_s)), key=lambda branch: (starts[str(branch)], branch != home)):
        start_s = starts[str(place)]
        stop_s = start_s + alone_s[place] + (place != home) * crossing[place]
        for index, (until_s, held) in enumerate(free):
            if until_s <= start_s * (1 + 1e-12):
                free[index] = (stop_s, held | {place})
                break
        else:
            free.append((stop_s, {place}))
    return next(held for _, held in free if home in held)


def _forks(step: CapturedStep, workload: Workload) -> list[_Fork]:
    """Return what lies between calls that every path passes, as parts that are joined by nothing else.

    What comes before the first product of a path (masks, casts of weights, embedded tokens) is taken to be there from
    the start, and runs with the branch that alone needs it.
    """
    edges = _edges(step.forward, workload)
    prepared = _prepared(step.forward, edges)
    inner = [(first, last) for first, last in edges if first not in prepared]
    begun = {last for _, last in inner}
    sources = [place for place in range(len(step.forward)) if place not in prepared and place not in begun]
    cuts = _passed_by_all(len(step.forward), [*inner, *((-1, place) for place in sources)])
    bounds = [-1, *(place for place in cuts if place not in prepared), len(step.forward)]
    parts: dict[int, int] = {}  # first call of the branch of each call
    for left, right in pairwise(bounds):
        group = {place: place for place in range(left + 1, right) if place not in prepared}
        for first, last in inner:
            if first in group and last in group:
                root, other = _root(group, first), _root(group, last)
                group[max(root, other)] = min(root, other)
        parts |= {place: _root(group, place) for place in group}
    readers: dict[int, list[int]] = {}
    for first, last in edges:
        readers.setdefault(first, []).append(last)
    for place in sorted(prepared, reverse=True):
        needing = {parts.get(reader, -1) for reader in readers.get(place, ())}
        if len(needing) == 1:
            parts[place] = needing.pop()
    forks: dict[int, dict[int, list[int]]] = {}
    for place, part in sorted(parts.items()):
        if part >= 0:
            forks.setdefault(bisect_left(bounds, part), {}).setdefault(part, []).append(place)
    return [tuple(tuple(branch) for branch in fork.values()) for fork in forks.values()]


def _prepared(calls: Sequence[Call], edges: Iterable[tuple[int, int]]) -> set[int]:
    """Return the calls that no product precedes, and that are none."""
    after: set[int] = set()
    needs: dict[int, list[int]] = {}
    for first, last in edges:
        needs.setdefault(last, []).append(first)
    for place, call in enumerate(calls):
        is_product = call.case is not None and call.case.op in _PRODUCTS
        if is_product or any(first in after for first in needs.get(place, ())):
            after.add(place)
    return {place for place in range(len(calls)) if place not in after}


def _passed_by_all(count: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """Return the calls that no edge passes by.

    >>> _passed_by_all(5, [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4)])
    [0, 3, 4]
    """
    changes = [0] * (count + 1)
    for first, last in edges:
        if last > first + 1:
            changes[first + 1] += 1
            changes[last] -= 1
    return [place for place, around in enumerate(accumulate(changes[:-1])) if not around]


def _root(group: dict[int, int], place: int) -> int:
    while group[place] != place:
        place = group[place]
    return place


def _edges(calls: Sequence[Call], workload: Workload) -> list[tuple[int, int]]:
    """Return the pairs of calls of which the second reads what the first has written."""
    writers: dict[int, int] = {}
    edges: set[tuple[int, int]] = set()
    for place, call in enumerate(calls):
        for use in call.reads:
            if use.buffer in writers and workload.buffers[use.buffer].kind != "weight":
                edges.add((writers[use.buffer], place))
        for use in call.writes:
            writers[use.buffer] = place
    return sorted(edges)


def _backward_of(step: CapturedStep) -> dict[str, list[Call]]:
    """Return the calls of the backward pass by module."""
    of_module: dict[str, list[Call]] = {}
    for call in step.backward:
        of_module.setdefault(call.module, []).append(call)
    return of_module


def _calls_of(branch: Iterable[int], step: CapturedStep, backward: dict[str, list[Call]]) -> list[Call]:
    """Return the calls of a branch in both passes; modules with calls elsewhere keep their gradients there."""
    places = set(branch)
    forward = [step.forward[place] for place in sorted(places)]
    elsewhere = {call.module for place, call in enumerate(step.forward) if place not in places}
    modules = dict.fromkeys(call.module for call in forward if call.module and call.module not in elsewhere)
    return [*forward, *(call for module in modules for call in backward.get(module, ()))]


def _crossing(branch: Iterable[int], step: CapturedStep, workload: Workload) -> tuple[int, int]:
    """Return the bytes that a branch reads from others' results, and those of its results that others read."""
    places = set(branch)
    written = {use.buffer for place in places for use in step.forward[place].writes}
    taken: set[int] = set()
    sent_buffers: set[int] = set()
    for place, call in enumerate(step.forward):
        for use in call.reads:
            if workload.buffers[use.buffer].kind in ("weight", "input", "constant"):
                continue
            if place in places and use.buffer not in written:
                taken.add(use.buffer)
            if place not in places and use.buffer in written:
                sent_buffers.add(use.buffer)
    received, sent = (sum(workload.buffers[buffer].bytes for buffer in side) for side in (taken, sent_buffers))
    return received, sent
