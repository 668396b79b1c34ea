"""Plan of a step: which running and waiting requests compute how many tokens, by the rules of a policy."""

from nearpeak.base.compilation import compiled_exactly
from nearpeak.systems.serving.block_cache import (
    PLAIN_REQUESTS,
    cached_blocks,
    idle_blocks,
    refer,
    release,
    reserve,
    share,
)
from nearpeak.systems.serving.engine_state import (
    BLOCK,
    CHUNKS,
    CLASS,
    COMPUTED,
    CUTS,
    DRAFTED,
    EVICTABLE,
    FREE,
    GENERATED,
    GROWING,
    HASH_BLOCKS,
    HASH_TOKENS,
    INPUT,
    IS_READY,
    KV,
    LOADING,
    LONGEST,
    MIXES,
    NONE,
    OUTPUT,
    PAIRS,
    PLACED,
    PLANNED,
    PREEMPTED,
    PROMPT,
    PROMPTS_FIRST,
    RATIO,
    RATIO_START,
    RESERVES,
    REUSED,
    RUNNING,
    SCHEDULED,
    SEQUENCE_LIMIT,
    SEQUENCES,
    STEP_TOKENS,
    TOKENS,
    VICTIM,
    WAITING,
    WHOLE_BATCH,
    State,
)
from nearpeak.systems.serving.waiting_queue import first_waiting, leave_adapter, prepend, remove, take_adapter

FOR_STEP, FOR_OUTPUT, FOR_RATIO = range(3)
"""What admission reserves: blocks of the step, of the whole output, or a share of all outputs."""
OUTPUT_CLIP = 4096
"""Most output tokens that SGLang's admission counts for a new request (CLIP_MAX_NEW_TOKENS_ESTIMATION)."""
UNLIMITED = 1 << 40


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def is_decoding(state: State, request: int) -> bool:
    """Return whether a request has all of its cache but that of its last token."""
    requests = state.requests
    missing = requests[INPUT][request] + requests[GENERATED][request] - requests[COMPUTED][request]
    return bool(requests[GENERATED][request] > 0 and missing == 1)


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def count_tokens(state: State, rank: int, request: int, new: int) -> None:
    """Add the new tokens of a request to the step of its rank."""
    ranks, computed = state.ranks, state.requests[COMPUTED][request]
    if is_decoding(state, request):
        ranks[TOKENS][rank] += new
        ranks[SEQUENCES][rank] += 1
        ranks[GROWING][rank] += 1
        ranks[KV][rank] += computed + new
        ranks[LONGEST][rank] = max(ranks[LONGEST][rank], computed + new)
    else:
        ranks[PROMPT][rank] += new
        ranks[PAIRS][rank] += new * computed + new * (new + 1) // 2
        ranks[CHUNKS][rank] += 1


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def preempt(state: State, rank: int, place: int) -> None:
    """Take the cache of a running request away and let it wait in front; its tokens are computed again later."""
    running, count = state.slots[PLACED][rank], state.ranks[RUNNING][rank]
    request = running[place]
    release(state, rank, request)
    leave_adapter(state, rank, request)
    state.requests[COMPUTED][request] = 0
    state.requests[IS_READY][request] = 0
    state.requests[PREEMPTED][request] += 1
    for later in range(place, count - 1):
        running[later] = running[later + 1]
        state.slots[PLANNED][rank][later] = state.slots[PLANNED][rank][later + 1]
    state.ranks[RUNNING][rank] = count - 1
    prepend(state, rank, request)


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def victim_place(state: State, rank: int, place: int) -> int:
    """Return which running request gives way to the one at `place`: of the last class the last, or the least served.

    Requests before it and those whose prompts are in the step already keep their blocks.
    """
    running, requests, chosen = state.slots[PLACED][rank], state.requests, place
    for other in range(place + 1, state.ranks[RUNNING][rank]):
        if state.slots[PLANNED][rank][other] > 0:
            continue
        if requests[CLASS][running[other]] > requests[CLASS][running[chosen]]:
            chosen = other
        elif requests[CLASS][running[other]] == requests[CLASS][running[chosen]]:
            fewer = requests[GENERATED][running[other]] <= requests[GENERATED][running[chosen]]
            if state.rules[VICTIM] == 0 or fewer:
                chosen = other
    return chosen


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def new_tokens(state: State, request: int, budget: int) -> int:
    """Return how many tokens a running request computes next within a budget; 0 if it must wait or has finished."""
    requests, rules = state.requests, state.rules
    if requests[GENERATED][request] >= requests[OUTPUT][request]:
        return 0
    new = requests[INPUT][request] + requests[GENERATED][request] - requests[COMPUTED][request]
    if is_decoding(state, request):
        new = 1 + rules[DRAFTED]
    if new > budget:
        new = budget if rules[CUTS] and not is_decoding(state, request) else 0
    return int(new)


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def plan_running(state: State, rank: int, budget: int, decodes: bool, prompts: bool) -> tuple[int, bool]:
    """Plan running requests in order; return the tokens left and whether one was preempted.

    Args:
        decodes: whether decoding sequences take part.
        prompts: whether unfinished prompts do.
    """
    running, chunks, ranks, place, preempted = (
        state.slots[PLACED][rank],
        state.slots[PLANNED][rank],
        state.ranks,
        0,
        False,
    )
    while place < ranks[RUNNING][rank]:
        request = running[place]
        takes_part = decodes if is_decoding(state, request) else prompts
        new = new_tokens(state, request, budget) if takes_part and chunks[place] == 0 else 0
        while new > 0 and not reserve(state, rank, request, state.requests[COMPUTED][request] + new):
            victim = victim_place(state, rank, place)
            preempt(state, rank, victim)
            preempted = True
            if victim == place:
                new = NONE
        if new == NONE:
            continue
        if new > 0:
            share(state, rank, request, state.requests[COMPUTED][request] + new)
            count_tokens(state, rank, request, new)
            chunks[place] = new
            budget -= new
        elif state.rules[WHOLE_BATCH] and decodes:
            pad(state, rank, request)
        place += 1
    return budget, preempted


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def pad(state: State, rank: int, request: int) -> None:
    """Count a finished sequence that stays in its batch until all of them have finished."""
    computed = state.requests[COMPUTED][request]
    state.ranks[TOKENS][rank] += 1
    state.ranks[SEQUENCES][rank] += 1
    state.ranks[KV][rank] += computed
    state.ranks[LONGEST][rank] = max(state.ranks[LONGEST][rank], computed)


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def promised_tokens(state: State, rank: int) -> float:
    """Return the tokens that SGLang expects running requests to need still."""
    requests, promised = state.requests, 0.0
    for place in range(state.ranks[RUNNING][rank]):
        request = state.slots[PLACED][rank][place]
        left = requests[OUTPUT][request] - requests[GENERATED][request]
        promised += left * state.rank_values[RATIO][rank]
        if not is_decoding(state, request):
            missing = requests[INPUT][request] + requests[GENERATED][request] - requests[COMPUTED][request]
            promised += missing - state.slots[PLANNED][rank][place]
    return promised


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def startable(state: State, rank: int, budget: int, promised: float) -> tuple[int, int, int, int, int]:
    """Return the waiting request that may start now, the one before it, its cached blocks, missing and held tokens.

    The first one is NONE where tokens, sequences or blocks do not allow it.
    """
    rules, requests, ranks = state.rules, state.requests, state.ranks
    none = (NONE, NONE, 0, 0, 0)
    if budget <= 0 or ranks[WAITING][rank] == 0 or ranks[RUNNING][rank] >= rules[SEQUENCE_LIMIT]:
        return none
    request, previous = first_waiting(state, rank)
    if request == NONE:
        return none
    reused = cached_blocks(state, rank, request)
    computed = reused * rules[HASH_TOKENS]
    if requests[IS_READY][request]:
        computed = requests[INPUT][request]
    left = requests[INPUT][request] + requests[GENERATED][request] - computed
    if left > budget and not rules[CUTS]:
        return none
    extent = computed + min(left, budget)
    if rules[RESERVES] == FOR_OUTPUT:
        extent = requests[INPUT][request] + requests[OUTPUT][request] + rules[DRAFTED]
    available = ranks[FREE][rank] + ranks[EVICTABLE][rank]
    available -= idle_blocks(state, rank, request, reused) * rules[HASH_BLOCKS]
    need = (extent + rules[BLOCK] - 1) // rules[BLOCK] - reused * rules[HASH_BLOCKS]
    output = min(requests[OUTPUT][request] - requests[GENERATED][request], OUTPUT_CLIP)
    is_alone = ranks[RUNNING][rank] == 0
    if need > available or (
        promised + left + output > available * rules[BLOCK] and not is_alone and rules[RESERVES] == FOR_RATIO
    ):
        return none
    return request, previous, reused, int(left), int(extent)


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def admit(state: State, rank: int, budget: int, clock: float, step: int) -> int:
    """Admit waiting requests in order while tokens, sequences and blocks allow it; return the tokens left."""
    rules, requests, ranks = state.rules, state.requests, state.ranks
    promised = promised_tokens(state, rank) if rules[RESERVES] == FOR_RATIO and ranks[WAITING][rank] > 0 else 0.0
    while True:
        request, previous, reused, left, extent = startable(state, rank, budget, promised)
        if request == NONE:
            break
        new = min(left, budget)
        computed = requests[INPUT][request] + requests[GENERATED][request] - left
        output = min(requests[OUTPUT][request] - requests[GENERATED][request], OUTPUT_CLIP)
        remove(state, rank, request, previous)
        for _ in range(reused):
            refer(state, rank, request)
        place = ranks[RUNNING][rank]
        enter(state, rank, request, extent, clock)
        requests[COMPUTED][request] = computed
        if requests[PREEMPTED][request] == 0:
            requests[REUSED][request] = reused * rules[HASH_TOKENS]
        take_adapter(state, rank, request, step)
        share(state, rank, request, computed + new)
        count_tokens(state, rank, request, new)
        state.slots[PLANNED][rank][place] = new
        promised += output + left - new
        budget -= new
    return int(budget)


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def enter(state: State, rank: int, request: int, extent: int, clock: float) -> None:
    """Put a request behind the running ones, with blocks for `extent` tokens."""
    reserve(state, rank, request, extent)
    state.slots[PLACED][rank][state.ranks[RUNNING][rank]] = request
    state.ranks[RUNNING][rank] += 1
    if state.requests[PREEMPTED][request] == 0:
        state.times[SCHEDULED][request] = clock


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def plan_step(state: State, rank: int, clock: float, step: int, starts: bool) -> bool:
    """Plan the next step of a rank; return whether a request was preempted.

    Args:
        starts: whether prompts take part, or wait for those of other ranks.
    """
    rules, ranks = state.rules, state.ranks
    for row in range(PROMPT, LONGEST + 1):
        ranks[row][rank] = 0
    state.rank_values[LOADING][rank] = 0.0
    for place in range(ranks[RUNNING][rank]):
        state.slots[PLANNED][rank][place] = 0
    if ranks[RUNNING][rank] == 0:
        state.rank_values[RATIO][rank] = state.rates[RATIO_START]
    budget, is_whole = rules[STEP_TOKENS], rules[WHOLE_BATCH] > 0
    together = is_whole or rules[PROMPTS_FIRST] == 0
    left, preempted = plan_running(state, rank, budget, together, starts and (together or not is_whole))
    if starts and not preempted and not (is_whole and ranks[RUNNING][rank] > 0):
        admit(state, rank, left, clock, step)
    if not together and (ranks[PROMPT][rank] == 0 or rules[MIXES]):
        decodes = max(budget, rules[SEQUENCE_LIMIT] * (1 + rules[DRAFTED]))
        preempted = plan_running(state, rank, decodes, not together, starts and together)[1] or preempted
    return bool(preempted)
