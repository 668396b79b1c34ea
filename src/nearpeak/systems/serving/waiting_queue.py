"""Waiting requests of a rank, first come first served within a class, and the adapters that they need."""

from nearpeak.base.compilation import compiled_exactly
from nearpeak.systems.serving.block_cache import PLAIN_REQUESTS
from nearpeak.systems.serving.engine_state import (
    ADAPTER,
    ADAPTERS,
    AGE,
    BLOCK,
    CLASS,
    DISTINCT,
    HEAD,
    IN_USE,
    INPUT,
    LOAD_S,
    LOADING,
    NEXT,
    NONE,
    QUEUED_BLOCKS,
    RANK,
    TAIL,
    WAITING,
    State,
)


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def append(state: State, rank: int, request: int) -> None:
    """Put a request that arrives at the end of its class."""
    level = state.requests[CLASS][request]
    state.requests[RANK][request] = rank
    state.requests[NEXT][request] = NONE
    if state.queues[HEAD][rank][level] == NONE:
        state.queues[HEAD][rank][level] = request
    else:
        state.requests[NEXT][state.queues[TAIL][rank][level]] = request
    state.queues[TAIL][rank][level] = request
    count(state, rank, request, 1)


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def prepend(state: State, rank: int, request: int) -> None:
    """Put a request that was preempted in front of its class."""
    level = state.requests[CLASS][request]
    state.requests[NEXT][request] = state.queues[HEAD][rank][level]
    if state.queues[HEAD][rank][level] == NONE:
        state.queues[TAIL][rank][level] = request
    state.queues[HEAD][rank][level] = request
    count(state, rank, request, 1)


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def count(state: State, rank: int, request: int, sign: int) -> None:
    """Count a request that begins or ends to wait."""
    state.ranks[WAITING][rank] += sign
    state.ranks[QUEUED_BLOCKS][rank] += sign * (state.requests[INPUT][request] // state.rules[BLOCK] + 1)


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def remove(state: State, rank: int, request: int, previous: int) -> None:
    """Take a request out of its class, given the one before it (−1 for none)."""
    level, following = state.requests[CLASS][request], state.requests[NEXT][request]
    if previous == NONE:
        state.queues[HEAD][rank][level] = following
    else:
        state.requests[NEXT][previous] = following
    if following == NONE:
        state.queues[TAIL][rank][level] = previous
    count(state, rank, request, -1)


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def first_waiting(state: State, rank: int) -> tuple[int, int]:
    """Return the first request of the first class whose adapter may run, and the one before it; −1 for none."""
    for level in range(len(state.queues[HEAD][rank])):
        request, previous = state.queues[HEAD][rank][level], NONE
        while request != NONE and not has_adapter_slot(state, rank, request):
            previous, request = request, state.requests[NEXT][request]
        if request != NONE:
            return request, previous
    return NONE, NONE


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def has_adapter_slot(state: State, rank: int, request: int) -> bool:
    """Return whether the adapter of a request runs already, or may run beside those that do."""
    limit, adapter = state.rules[ADAPTERS], state.requests[ADAPTER][request]
    if limit == 0 or adapter == NONE or state.adapters[IN_USE][rank][adapter] > 0:
        return True
    return bool(state.ranks[DISTINCT][rank] < limit)


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def take_adapter(state: State, rank: int, request: int, age: int) -> None:
    """Count the adapter of an admitted request; an absent one is loaded in place of the longest unused."""
    adapter, limit = state.requests[ADAPTER][request], state.rules[ADAPTERS]
    if limit == 0 or adapter == NONE:
        return
    uses, ages = state.adapters[IN_USE][rank], state.adapters[AGE][rank]
    if uses[adapter] == 0:
        state.ranks[DISTINCT][rank] += 1
    uses[adapter] += 1
    if ages[adapter] == NONE:
        state.rank_values[LOADING][rank] += state.rates[LOAD_S]
        loaded, oldest = 0, NONE
        for other in range(len(ages)):
            if ages[other] != NONE:
                loaded += 1
                if uses[other] == 0 and (oldest == NONE or ages[other] < ages[oldest]):
                    oldest = other
        if loaded >= limit and oldest != NONE:
            ages[oldest] = NONE
    ages[adapter] = age


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def leave_adapter(state: State, rank: int, request: int) -> None:
    """Count the adapter of a request that no longer runs."""
    adapter = state.requests[ADAPTER][request]
    if state.rules[ADAPTERS] == 0 or adapter == NONE:
        return
    state.adapters[IN_USE][rank][adapter] -= 1
    if state.adapters[IN_USE][rank][adapter] == 0:
        state.ranks[DISTINCT][rank] -= 1
