"""A two-level machine and an exhaustive search over all its schedules: order, recomputation, eviction, stores.

It knows nothing of nearpeak. A program is a set of scalar values; a value that is no input has ways to compute it,
each from other values that must be in fast storage. Loading and storing move one word; computing, overwriting an
operand and forgetting move none. At the end every output stands in slow storage, or among the few that may stay fast.
"""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to compute a value."""

    target: int
    operands: int
    """Bits of the values that must be in fast storage."""
    products: int = 0
    """Bits of the multiplications that it performs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """Scalar values as bits, and the ways to compute them."""

    inputs: int
    outputs: int
    ways: tuple[Way, ...]
    required: int = 0
    """Values that must have been computed at some time, although no output needs them."""


class TooLargeError(Exception):
    """More states than the search was allowed."""


def least_moves(program: Program, storage: int, credit: int, *, below: float = inf, limit: int = 8_000) -> float:
    """Return the least number of loads and stores of any schedule, infinity when it is not below `below`.

    A best-first search over all states that some schedule of fewer moves could pass.

    Args:
        storage: words of fast storage.
        credit: outputs that may be in fast storage alone at the end.
        limit: states after which the search gives up.
    """
    search = _Search(program, storage, credit)
    start = search.settled((0, program.inputs, program.required))
    best, heap = {start: 0}, [(search.missing_stores(start), 0, start)]
    while heap:
        _, moves, state = heapq.heappop(heap)
        if -moves > best[state]:
            continue
        if search.finished(state):
            return -moves
        for cost, found in search.successors(state):
            after, total = search.settled(found), cost - moves
            if total >= best.get(after, inf):  # most states are met again and again
                continue
            if (least := total + search.missing_stores(after)) < below:
                best[after] = total
                heapq.heappush(heap, (least, -total, after))
        if len(best) > limit:
            raise TooLargeError
    return inf


def least_products(program: Program) -> int:
    """Return the least multiplications that any schedule performs, storage unlimited.

    Whatever way a sum is split, the same products stand in it, so that one way for each value tells them all.
    """
    first = {way.target: way for way in reversed(program.ways)}
    needed, products = program.outputs | program.required, 0
    for target in sorted(first, reverse=True):  # operands come before what is computed from them
        if needed >> target & 1:
            needed |= first[target].operands
            products |= first[target].products
    return products.bit_count()


def depth(program: Program) -> int:
    """Return the least length of the longest chain of computations that some output needs."""
    known: dict[int, int] = dict.fromkeys(bits(program.inputs), 0)
    for _ in program.ways:
        for way in program.ways:
            if all(bit in known for bit in bits(way.operands)):
                steps = 1 + max((known[bit] for bit in bits(way.operands)), default=0)
                known[1 << way.target] = min(steps, known.get(1 << way.target, steps))
    return max(known[bit] for bit in bits(program.outputs))


def bits(values: int) -> Iterator[int]:
    """Give each value of a set as a set of its own."""
    while values:
        bit = values & -values
        yield bit
        values ^= bit


_State = tuple[int, int, int]
"""Values in fast storage, values in slow storage, values still to be computed once."""


class _Search:
    """The steps of one search. Steps that cannot help are left out, each for a reason that its method states."""

    def __init__(self, program: Program, storage: int, credit: int) -> None:
        self.program, self.storage, self.credit = program, storage, credit
        self._steps = [(way.operands, 1 << way.target) for way in program.ways]
        self._wanted: dict[tuple[int, int], int] = {}

    def finished(self, state: _State) -> bool:
        """Say whether every output is in slow storage, or among the few in fast storage."""
        fast, slow, missing = state
        left = self.program.outputs & ~slow
        return not missing and left & ~fast == 0 and left.bit_count() <= self.credit

    def missing_stores(self, state: _State) -> int:
        """Return how many stores are still to come: a lower limit, so that the first end found is the best."""
        return max(0, (self.program.outputs & ~state[1]).bit_count() - self.credit)

    def settled(self, state: _State) -> _State:
        """Return the state without what nothing unfinished depends on: forgetting is free."""
        fast, slow, missing = state
        outputs = self.program.outputs
        wanted = self._needed(slow & outputs, missing)
        return fast & wanted, slow & (wanted | outputs), missing

    def _needed(self, stored: int, missing: int) -> int:
        """Return all values from which something is still to be computed or stored."""
        if (known := self._wanted.get((stored, missing))) is not None:
            return known
        needed = self.program.outputs & ~stored | missing
        for way in sorted(self.program.ways, key=lambda way: -way.target):
            if needed >> way.target & 1:  # operands come before what is computed from them
                needed |= way.operands
        self._wanted[stored, missing] = needed
        return needed

    def successors(self, state: _State) -> Iterator[tuple[int, _State]]:
        """Give the states after one step. Storage is only emptied to make room: holding more never hurts."""
        fast, slow, missing = state
        needed = self._needed(slow & self.program.outputs, missing)
        open_bits = needed & ~fast
        ready = [bit for operands, bit in self._steps if bit & open_bits and not operands & ~fast]
        room = fast.bit_count() < self.storage
        if ready and room:  # computing is free, so that what is at hand is computed at once
            yield 0, (fast | ready[0], slow, missing & ~ready[0])
            return
        for bit in dict.fromkeys(ready):
            for victim in bits(fast):  # an operand may be overwritten by the result
                yield 0, (fast & ~victim | bit, slow, missing & ~bit)
        for bit in bits(slow & needed & ~fast):
            for victim in (0,) if room else bits(fast):
                yield 1, (fast & ~victim | bit, slow, missing)
        for bit in bits(fast & ~slow):
            yield 1, (fast, slow | bit, missing)
