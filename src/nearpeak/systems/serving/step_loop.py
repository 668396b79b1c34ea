"""The loop of an engine: plan a step, take its time, count its tokens; equal decode steps are counted in one go."""

import math

from nearpeak.base.compilation import compiled_exactly
from nearpeak.systems.serving.block_cache import PLAIN_REQUESTS, release, reserve
from nearpeak.systems.serving.engine_state import (
    ACCEPTED,
    ARRIVED,
    BLOCK,
    BLOCKS,
    BUSY,
    CHUNKS,
    CLOCK,
    COMPUTED,
    DELAYS,
    DONE,
    DRAFT_S,
    DRAFTED,
    DRAW,
    EVICTABLE,
    FIRST,
    FREE,
    FULL,
    GENERATED,
    GROWING,
    GROWTH,
    HASH_BLOCKS,
    HELD,
    INPUT,
    KV,
    LAST,
    LAST_COMER,
    LOADING,
    LOGS,
    LONGEST,
    NEVER,
    NEXT,
    NEXT_COMER,
    NONE,
    OUTPUT,
    PAIRS,
    PLACED,
    PLANNED,
    POOL,
    PRIVATE,
    PROMPT,
    QUEUED,
    RANK_WAIT,
    RANKS,
    RATIO,
    RATIO_DECAY,
    RATIO_LEAST,
    REQUEST_S,
    RESERVES,
    ROWS,
    RUNNING,
    SEQUENCES,
    SKIPS,
    STEPS,
    STUCK,
    TOKENS,
    TURNAROUND_S,
    WAITING,
    WHOLE_BATCH,
    GridArrays,
    State,
)
from nearpeak.systems.serving.rank_balance import count_wait, prompt_turn
from nearpeak.systems.serving.step_lookup import on_line, step_seconds
from nearpeak.systems.serving.step_plan import FOR_OUTPUT, FOR_RATIO, UNLIMITED, is_decoding, plan_step
from nearpeak.systems.serving.waiting_queue import append, leave_adapter


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def extra_blocks(state: State, rank: int, steps: int) -> int:
    """Return the blocks that the sequences of a planned decode step need for `steps` such steps, beyond the first."""
    requests, block, need = state.requests, state.rules[BLOCK], 0
    for place in range(state.ranks[RUNNING][rank]):
        request = state.slots[PLACED][rank][place]
        if state.slots[PLANNED][rank][place] > 0:
            total = (requests[COMPUTED][request] + steps + block - 1) // block
            held = requests[PRIVATE][request] + requests[HELD][request] * state.rules[HASH_BLOCKS]
            need += max(0, total - held)
    return int(need)


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def is_unsent(state: State, request: int) -> bool:
    """Return whether a first token is there that leaves the engine at the end of the next step."""
    first = state.times[FIRST][request]
    return bool(state.rules[DELAYS] > 0 and state.requests[GENERATED][request] > 0 and math.isnan(first))


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def equal_steps(state: State, rank: int) -> int:
    """Return how many steps like the planned one follow each other if nothing arrives.

    They end when a sequence finishes or blocks run out. Until then nothing can be admitted that could not be now:
    free blocks only become fewer, and sequences and tokens per step stay the same. Evicting a cached prefix may let a
    request in, though, because its first chunk then holds less; so none is evicted while requests wait.
    """
    ranks, rules, requests = state.ranks, state.rules, state.requests
    if ranks[PROMPT][rank] > 0 or rules[DRAFTED] > 0 or not rules[SKIPS]:
        return 1
    if rules[RESERVES] == FOR_RATIO and ranks[WAITING][rank] > 0:
        return 1
    most = UNLIMITED
    for place in range(ranks[RUNNING][rank]):
        request = state.slots[PLACED][rank][place]
        if is_unsent(state, request):
            return 1
        if state.slots[PLANNED][rank][place] > 0:
            most = min(most, requests[OUTPUT][request] - requests[GENERATED][request])
    available = ranks[FREE][rank]
    if ranks[WAITING][rank] == 0:
        available += ranks[EVICTABLE][rank]
    if most == UNLIMITED or extra_blocks(state, rank, most) <= available:
        return int(most)
    low = 1
    while most - low > 1:
        middle = (low + most) // 2
        if extra_blocks(state, rank, middle) <= available:
            low = middle
        else:
            most = middle
    return int(low)


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def step_time(state: State, table: GridArrays, unit: int, repeat: int) -> float:
    """Return the time of a planned step and of its repeats: that of the slowest rank.

    Beside prompts, ranks compute what they have; what they do for each other then follows the tokens of all of them.
    Decode steps are padded to the fullest rank.
    """
    ranks, slowest, first, count = state.ranks, 0.0, unit * state.rules[RANKS], state.rules[RANKS]
    tokens, prompts = 0, 0
    for rank in range(first, first + count):
        prompts += ranks[PROMPT][rank]
        tokens += ranks[PROMPT][rank] + ranks[TOKENS][rank]
    is_shared = count > 1 and prompts > 0
    for rank in range(first, first + count):
        if ranks[PROMPT][rank] + ranks[SEQUENCES][rank] > 0:
            time = step_seconds(
                table, ranks[PROMPT][rank], ranks[PAIRS][rank], ranks[CHUNKS][rank], ranks[TOKENS][rank],
                ranks[SEQUENCES][rank], ranks[KV][rank] + repeat * ranks[GROWING][rank], ranks[LONGEST][rank] + repeat,
            )  # fmt: skip
            if is_shared:
                time -= on_line(table.token_knots, table.shared_s, ranks[PROMPT][rank] + ranks[TOKENS][rank])
            if repeat == 0:
                time += state.rank_values[LOADING][rank]
            slowest = max(slowest, time)
    if is_shared:
        slowest = max(slowest + on_line(table.token_knots, table.shared_s, tokens / count), table.token_s[0])
    return float(slowest + state.rates[DRAFT_S] * state.rules[DRAFTED])


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def start_growth(state: State, unit: int) -> None:
    """Count the sequences of a planned decode step by the repeat in which they need a new block."""
    block = state.rules[BLOCK]
    for place in range(block):
        state.marks[GROWTH + place] = 0
    if state.rules[RESERVES] == FOR_OUTPUT:
        return
    for rank in range(unit * state.rules[RANKS], (unit + 1) * state.rules[RANKS]):
        for place in range(state.ranks[RUNNING][rank]):
            if state.slots[PLANNED][rank][place] > 0:
                computed = state.requests[COMPUTED][state.slots[PLACED][rank][place]]
                state.marks[GROWTH + (block - computed % block) % block] += 1


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def write_row(state: State, unit: int, duration: float, repeat: int, used: int) -> int:
    """Write a step into the log; return the blocks in use."""
    ranks, prompt, sequences, cache, running, waiting = state.ranks, 0, 0, 0, 0, 0
    blocks = used + state.marks[GROWTH + repeat % state.rules[BLOCK]] if repeat > 0 else 0
    for rank in range(unit * state.rules[RANKS], (unit + 1) * state.rules[RANKS]):
        prompt += ranks[PROMPT][rank]
        sequences += ranks[SEQUENCES][rank]
        cache += ranks[KV][rank] + repeat * ranks[GROWING][rank]
        running += ranks[RUNNING][rank]
        waiting += ranks[WAITING][rank]
        if repeat == 0:
            blocks += state.rules[BLOCKS] - ranks[FREE][rank] - ranks[EVICTABLE][rank]
    row = state.log[state.marks[ROWS]]
    row[0], row[1], row[2], row[3] = state.units[CLOCK][unit], duration, prompt, sequences
    row[4], row[5], row[6], row[7], row[8] = cache, blocks, running, waiting, unit
    state.marks[ROWS] += 1
    return int(blocks)


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def run_steps(state: State, table: GridArrays, unit: int, until: float, most: int) -> int:
    """Let the clock of a replica run over equal steps, until one ends after `until`; return their number."""
    units, steps, used, logs = state.units, 0, 0, state.rules[LOGS] > 0
    if logs and most > 1:
        start_growth(state, unit)
    while steps < most and (steps == 0 or units[CLOCK][unit] < until):
        duration = step_time(state, table, unit, steps)
        if logs:
            if state.marks[ROWS] == len(state.log):
                break
            used = write_row(state, unit, duration, steps, used)
        units[CLOCK][unit] += duration
        units[BUSY][unit] += duration
        steps += 1
    state.units[STEPS][unit] += steps
    return steps


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def decoded_tokens(state: State, request: int) -> int:
    """Return the tokens that a step of speculation gives a sequence: those accepted, and one."""
    tokens = 1
    for _ in range(state.rules[DRAFTED]):
        draw = state.draws[state.marks[DRAW]]
        state.marks[DRAW] = (state.marks[DRAW] + 1) % len(state.draws)
        if draw >= state.rates[ACCEPTED]:
            break
        tokens += 1
    return int(min(tokens, state.requests[OUTPUT][request] - state.requests[GENERATED][request]))


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def count_output(state: State, request: int, new: int, steps: int, clock: float) -> None:
    """Count what a request computed and generated in the steps that ended now."""
    requests = state.requests
    if is_decoding(state, request):
        tokens = decoded_tokens(state, request) if state.rules[DRAFTED] > 0 else steps
        requests[COMPUTED][request] += tokens
        requests[GENERATED][request] += tokens
    else:
        requests[COMPUTED][request] += new
        if requests[COMPUTED][request] == requests[INPUT][request] + requests[GENERATED][request]:
            requests[GENERATED][request] += 1
            if requests[GENERATED][request] == 1 and state.rules[DELAYS] == 0:
                state.times[FIRST][request] = clock
    if requests[GENERATED][request] == requests[OUTPUT][request]:
        state.times[LAST][request] = clock
        if requests[OUTPUT][request] == 1:
            state.times[FIRST][request] = clock


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def end_steps(state: State, rank: int, clock: float, steps: int) -> None:
    """Count the tokens of the steps that ended, and let go of finished requests."""
    requests, running, chunks, running_count, unfinished = (
        state.requests,
        state.slots[PLACED][rank],
        state.slots[PLANNED][rank],
        0,
        0,
    )
    for place in range(state.ranks[RUNNING][rank]):
        request = running[place]
        if is_unsent(state, request):
            state.times[FIRST][request] = clock
        if chunks[place] > 0:
            if steps > 1:
                reserve(state, rank, request, requests[COMPUTED][request] + steps)
            count_output(state, request, chunks[place], steps, clock)
        if requests[GENERATED][request] < requests[OUTPUT][request]:
            unfinished += 1
    for place in range(state.ranks[RUNNING][rank]):
        request = running[place]
        if requests[GENERATED][request] < requests[OUTPUT][request] or (state.rules[WHOLE_BATCH] and unfinished):
            running[running_count] = request
            running_count += 1
        else:
            release(state, rank, request)
            leave_adapter(state, rank, request)
            start_next(state, rank, clock)
    state.ranks[RUNNING][rank] = running_count
    if state.rules[RESERVES] == FOR_RATIO and state.ranks[PROMPT][rank] == 0:
        for _ in range(steps):
            lower = state.rank_values[RATIO][rank] - state.rates[RATIO_DECAY]
            state.rank_values[RATIO][rank] = max(lower, state.rates[RATIO_LEAST])


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def start_next(state: State, rank: int, clock: float) -> None:
    """Let the next request of a closed loop arrive when one has finished."""
    request = state.marks[POOL]
    if request < len(state.times[ARRIVED]):
        state.marks[POOL] += 1
        state.times[ARRIVED][request] = clock + state.rates[TURNAROUND_S]
        state.times[QUEUED][request] = state.times[ARRIVED][request] + state.rates[REQUEST_S]
        state.requests[NEXT][request] = NONE
        if state.ranks[NEXT_COMER][rank] == NONE:
            state.ranks[NEXT_COMER][rank] = request
        else:
            state.requests[NEXT][state.ranks[LAST_COMER][rank]] = request
        state.ranks[LAST_COMER][rank] = request


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def take_comers(state: State, unit: int) -> float:
    """Put the requests of a closed loop that have come into their queues; return when the next one comes."""
    clock, following = state.units[CLOCK][unit], NEVER
    for rank in range(unit * state.rules[RANKS], (unit + 1) * state.rules[RANKS]):
        request = state.ranks[NEXT_COMER][rank]
        while request != NONE and state.times[QUEUED][request] <= clock:
            state.ranks[NEXT_COMER][rank] = state.requests[NEXT][request]
            append(state, rank, request)
            request = state.ranks[NEXT_COMER][rank]
        if request != NONE:
            following = min(following, state.times[QUEUED][request])
    return float(following)


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def advance(state: State, table: GridArrays, unit: int, until: float) -> int:
    """Run the steps of a replica that begin before `until`; return DONE, FULL or STUCK."""
    first, ranks = unit * state.rules[RANKS], state.ranks
    while state.units[CLOCK][unit] < until:
        if state.rules[LOGS] and state.marks[ROWS] == len(state.log):
            return FULL
        following = take_comers(state, unit)
        starts, most, counts = prompt_turn(state, unit)
        waiting, works = 0, False
        for rank in range(first, first + state.rules[RANKS]):
            preempted = plan_step(state, rank, state.units[CLOCK][unit], state.units[STEPS][unit], starts)
            waiting += ranks[WAITING][rank]
            if ranks[PROMPT][rank] + ranks[SEQUENCES][rank] > 0:
                works = True
                most = min(most, 1 if preempted else equal_steps(state, rank))
        if not works:
            if waiting > 0 or following >= until:
                return STUCK if waiting > 0 else DONE
            state.units[CLOCK][unit] = following
            continue
        steps = run_steps(state, table, unit, min(until, following), most)
        for rank in range(first, first + state.rules[RANKS]):
            end_steps(state, rank, state.units[CLOCK][unit], steps)
        if state.rules[RANK_WAIT]:
            count_wait(state, unit, steps, counts)
    return DONE
