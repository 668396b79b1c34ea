"""Paged KV cache of one rank: blocks of requests, shared blocks of prompts, eviction of the least recently used."""

from nearpeak.base.compilation import compiled_exactly
from nearpeak.systems.serving.engine_state import (
    AFTER,
    BEFORE,
    BLOCK,
    EVICTABLE,
    EVICTED,
    FREE,
    GENERATED,
    HASH_BLOCKS,
    HASH_START,
    HASH_TOKENS,
    HASHES,
    HELD,
    INPUT,
    NEWEST,
    NONE,
    OLDEST,
    PRIVATE,
    USES,
    State,
)

PLAIN_REQUESTS = 8_000
"""Requests that plain Python serves before the loops are compiled, once for a machine: about 2 s, and 20 s."""


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def unlist(state: State, rank: int, block: int) -> None:
    """Take a hash block out of the list of evictable ones."""
    before, after = state.cache[BEFORE][rank][block], state.cache[AFTER][rank][block]
    if before == NONE:
        state.ranks[OLDEST][rank] = after
    else:
        state.cache[AFTER][rank][before] = after
    if after == NONE:
        state.ranks[NEWEST][rank] = before
    else:
        state.cache[BEFORE][rank][after] = before
    state.ranks[EVICTABLE][rank] -= state.rules[HASH_BLOCKS]


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def enlist(state: State, rank: int, block: int) -> None:
    """Put a hash block that no request uses at the end of the list of evictable ones."""
    newest = state.ranks[NEWEST][rank]
    state.cache[BEFORE][rank][block] = newest
    state.cache[AFTER][rank][block] = NONE
    if newest == NONE:
        state.ranks[OLDEST][rank] = block
    else:
        state.cache[AFTER][rank][newest] = block
    state.ranks[NEWEST][rank] = block
    state.ranks[EVICTABLE][rank] += state.rules[HASH_BLOCKS]


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def reserve(state: State, rank: int, request: int, token_count: int) -> bool:
    """Give a request the blocks that hold `token_count` tokens, evicting what no request uses; False if too few."""
    rules, ranks = state.rules, state.ranks
    total = (token_count + rules[BLOCK] - 1) // rules[BLOCK]
    need = total - state.requests[HELD][request] * rules[HASH_BLOCKS] - state.requests[PRIVATE][request]
    if need <= 0:
        return True
    if need > ranks[FREE][rank] + ranks[EVICTABLE][rank]:
        return False
    while ranks[FREE][rank] < need:
        oldest = ranks[OLDEST][rank]
        unlist(state, rank, oldest)
        state.cache[USES][rank][oldest] = NONE
        ranks[FREE][rank] += rules[HASH_BLOCKS]
        ranks[EVICTED][rank] += 1
    ranks[FREE][rank] -= need
    state.requests[PRIVATE][request] += need
    return True


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def refer(state: State, rank: int, request: int) -> None:
    """Let a request use the next hash block of its prompt, which is in the cache."""
    place = state.requests[HASH_START][request] + state.requests[HELD][request]
    block = state.hashes[place]
    if state.cache[USES][rank][block] == 0:
        unlist(state, rank, block)
    state.cache[USES][rank][block] += 1
    state.requests[HELD][request] += 1


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def share(state: State, rank: int, request: int, token_count: int) -> None:
    """Enter the hash blocks of a prompt that are full after `token_count` tokens; a second copy is freed."""
    rules, requests = state.rules, state.requests
    while (
        requests[HELD][request] < requests[HASHES][request]
        and (requests[HELD][request] + 1) * rules[HASH_TOKENS] <= token_count
    ):
        block = state.hashes[requests[HASH_START][request] + requests[HELD][request]]
        requests[PRIVATE][request] -= rules[HASH_BLOCKS]
        if state.cache[USES][rank][block] == NONE:
            state.cache[USES][rank][block] = 1
            requests[HELD][request] += 1
        else:
            refer(state, rank, request)
            state.ranks[FREE][rank] += rules[HASH_BLOCKS]


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def release(state: State, rank: int, request: int) -> None:
    """Free the blocks of a request; shared ones stay until they are evicted, the end of the prompt first."""
    requests = state.requests
    start = requests[HASH_START][request]
    for place in range(requests[HELD][request] - 1, -1, -1):
        block = state.hashes[start + place]
        state.cache[USES][rank][block] -= 1
        if state.cache[USES][rank][block] == 0:
            enlist(state, rank, block)
    state.ranks[FREE][rank] += requests[PRIVATE][request]
    requests[PRIVATE][request] = 0
    requests[HELD][request] = 0


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def cached_blocks(state: State, rank: int, request: int) -> int:
    """Return the leading hash blocks of a request that are in the cache; one token at least is left to compute."""
    requests = state.requests
    start, count = requests[HASH_START][request], 0
    while count < requests[HASHES][request] and state.cache[USES][rank][state.hashes[start + count]] != NONE:
        count += 1
    total = requests[INPUT][request] + requests[GENERATED][request]
    if count * state.rules[HASH_TOKENS] >= total:
        count -= 1
    return count


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def idle_blocks(state: State, rank: int, request: int, count: int) -> int:
    """Return how many of the leading hash blocks of a request no other request uses."""
    start, idle = state.requests[HASH_START][request], 0
    for place in range(count):
        if state.cache[USES][rank][state.hashes[start + place]] == 0:
            idle += 1
    return idle
