"""Simulation of request arrivals over replicas: routing, start-up and draining of replicas."""

from nearpeak.base.compilation import compiled_exactly
from nearpeak.systems.serving.block_cache import PLAIN_REQUESTS, cached_blocks
from nearpeak.systems.serving.engine_state import (
    ABSENT,
    ACTIVE,
    ARRIVED,
    BLOCK,
    BLOCKS,
    CLOCK,
    CURSOR,
    DONE,
    DRAINED,
    DRAINED_AT,
    EVICTABLE,
    FREE,
    HASH_BLOCKS,
    HOLD_S,
    INPUT,
    LEAST,
    NEVER,
    NEXT_COMER,
    NONE,
    OPEN,
    PER_REPLICA,
    PLACED,
    QUEUED,
    QUEUED_BLOCKS,
    RANKS,
    READY_AT,
    RENTED,
    REQUEST_S,
    ROUTER,
    RUNNING,
    SCALES,
    START_S,
    STARTED_AT,
    STATUS,
    TURN,
    WAITING,
    GridArrays,
    State,
)
from nearpeak.systems.serving.step_loop import advance
from nearpeak.systems.serving.waiting_queue import append

ROUND_ROBIN, LEAST_KV, PREFIX_AWARE = range(3)
"""Router policies."""
TICK_S = 1e-9
"""Time by which replicas of a closed loop may run ahead of each other, far below that of a step."""


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def rank_cost(state: State, rank: int, request: int) -> int:
    """Return the blocks in use and asked for on a rank; prefix-aware, with those that the request would compute."""
    ranks = state.ranks
    cost = state.rules[BLOCKS] - ranks[FREE][rank] - ranks[EVICTABLE][rank] + ranks[QUEUED_BLOCKS][rank]
    if state.rules[ROUTER] == PREFIX_AWARE:
        cost += state.requests[INPUT][request] // state.rules[BLOCK] + 1
        cost -= cached_blocks(state, rank, request) * state.rules[HASH_BLOCKS]
    return int(cost)


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def serves(state: State, rank: int, moment: float) -> bool:
    """Return whether the replica of a rank takes requests."""
    unit = rank // state.rules[RANKS]
    return bool(state.units[STATUS][unit] == ACTIVE and state.units[READY_AT][unit] <= moment)


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def chosen_rank(state: State, request: int, moment: float) -> int:
    """Return the rank that takes a request: the next in turn, or the first of least cost; −1 if none is ready."""
    count = len(state.slots[PLACED])
    best, least = NONE, 0
    for offset in range(count):
        rank = (state.marks[TURN] + offset) % count
        if serves(state, rank, moment):
            if state.rules[ROUTER] == ROUND_ROBIN:
                state.marks[TURN] = (rank + 1) % count
                return int(rank)
            cost = rank_cost(state, rank, request)
            if best == NONE or cost < least:
                best, least = rank, cost
    state.marks[TURN] = (state.marks[TURN] + 1) % count
    return int(best)


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def unit_load(state: State, unit: int) -> int:
    """Return the requests that run or wait on a replica."""
    load = 0
    for rank in range(unit * state.rules[RANKS], (unit + 1) * state.rules[RANKS]):
        load += state.ranks[RUNNING][rank] + state.ranks[WAITING][rank]
    return int(load)


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def scale(state: State, moment: float) -> None:
    """Start or drain replicas so that each has at most PER_REPLICA requests."""
    count, load, active = len(state.units[STATUS]), 1, 0
    for unit in range(count):
        load += unit_load(state, unit)
        active += 1 if state.units[STATUS][unit] == ACTIVE else 0
    for unit in range(count):
        if active * state.rates[PER_REPLICA] < load and state.units[STATUS][unit] != ACTIVE:
            start(state, unit, moment)
            active += 1
    for unit in range(count - 1, state.rules[LEAST] - 1, -1):
        fewer = active - 1
        may_end = moment - state.units[READY_AT][unit] >= state.rates[HOLD_S]
        suffices = fewer >= state.rules[LEAST] and fewer * state.rates[PER_REPLICA] >= load
        if state.units[STATUS][unit] == ACTIVE and may_end and suffices:
            state.units[STATUS][unit] = DRAINED
            state.units[DRAINED_AT][unit] = moment
            active = fewer


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def start(state: State, unit: int, moment: float) -> None:
    """Start a replica, or take one back that is still busy with what it had when it was drained."""
    units = state.units
    if state.units[STATUS][unit] == ABSENT or unit_load(state, unit) == 0:
        if state.units[STATUS][unit] == DRAINED:
            units[RENTED][unit] += max(units[DRAINED_AT][unit], units[CLOCK][unit]) - units[STARTED_AT][unit]
        units[STARTED_AT][unit] = moment
        units[READY_AT][unit] = moment + state.rates[START_S]
    state.units[STATUS][unit] = ACTIVE


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def next_clock(state: State, unit: int) -> float:
    """Return when a replica can begin its next step: now if it has requests, else when one comes; NEVER for none."""
    moment = NEVER
    for rank in range(unit * state.rules[RANKS], (unit + 1) * state.rules[RANKS]):
        if state.ranks[RUNNING][rank] + state.ranks[WAITING][rank] > 0:
            moment = min(moment, state.units[CLOCK][unit])
        if state.ranks[NEXT_COMER][rank] != NONE:
            moment = min(moment, max(state.times[QUEUED][state.ranks[NEXT_COMER][rank]], state.units[CLOCK][unit]))
    return float(moment)


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def serve_in_turn(state: State, table: GridArrays) -> int:
    """Run the replicas of a closed loop, each time the one whose next step begins first; return as `serve_arrivals`.

    What any of them finishes lets the next request of all arrive, on the same replica: clients stay at theirs.
    """
    units = len(state.units[STATUS])
    while True:
        unit, least, following = units, NEVER, NEVER  # no literal, for which all that `advance` calls compiles again
        for other in range(units):
            moment = next_clock(state, other)
            if moment < least:
                unit, least, following = other, moment, least
            else:
                following = min(following, moment)
        if unit == units:
            return DONE
        status = advance(state, table, unit, max(following, least + TICK_S))
        if status != DONE:
            return int(status)


@compiled_exactly(PLAIN_REQUESTS)
def serve_arrivals(arrivals: object, state: State, table: GridArrays) -> int:  # noqa: ARG001 — the call's size is that of its first argument
    """Serve all requests; return DONE, FULL (call again with an empty log) or STUCK."""
    units = len(state.units[STATUS])
    while state.marks[CURSOR] < state.rules[OPEN]:
        request = state.marks[CURSOR]
        moment = state.times[ARRIVED][request] + state.rates[REQUEST_S]
        for unit in range(units):
            if state.units[STATUS][unit] != ABSENT:
                status = advance(state, table, unit, moment)
                if status != DONE:
                    return int(status)
        if state.rules[SCALES]:
            scale(state, moment)
        rank = chosen_rank(state, request, moment)
        unit = rank // state.rules[RANKS]
        state.units[CLOCK][unit] = max(state.units[CLOCK][unit], moment)
        state.times[QUEUED][request] = moment
        append(state, rank, request)
        state.marks[CURSOR] += 1
    if state.rules[OPEN] < len(state.times[ARRIVED]):
        return int(serve_in_turn(state, table))
    for unit in range(units):
        if state.units[STATUS][unit] != ABSENT:
            status = advance(state, table, unit, NEVER)
            if status != DONE:
                return int(status)
    return DONE
