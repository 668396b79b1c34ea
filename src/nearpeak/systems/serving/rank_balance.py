"""Prompts of attention data-parallel ranks that wait for each other, so that all ranks compute them in one step."""

# Source: NVIDIA/TensorRT-LLM, tensorrt_llm/_torch/pyexecutor/scheduler/scheduler.py (_balance_adp_context_requests),
# and the documentation of AttentionDpConfig (enable_balance, timeout_iters, batching_wait_iters).

from nearpeak.base.compilation import compiled_exactly
from nearpeak.systems.serving.block_cache import PLAIN_REQUESTS
from nearpeak.systems.serving.engine_state import (
    DRAFTED,
    GATHERED,
    GENERATED,
    NONE,
    OUTPUT,
    PLACED,
    RANK_GATHER,
    RANK_WAIT,
    RANKS,
    RESERVES,
    RUNNING,
    SEQUENCE_LIMIT,
    STEP_TOKENS,
    WAITED,
    WAITING,
    State,
)
from nearpeak.systems.serving.step_plan import FOR_RATIO, UNLIMITED, is_decoding, promised_tokens, startable


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def decoding_count(state: State, rank: int) -> int:
    """Return the sequences of a rank that decode in the next step."""
    decoding = 0
    for place in range(state.ranks[RUNNING][rank]):
        request = state.slots[PLACED][rank][place]
        goes_on = state.requests[GENERATED][request] < state.requests[OUTPUT][request]
        decoding += 1 if goes_on and is_decoding(state, request) else 0
    return decoding


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def has_prompt(state: State, rank: int, decoding: int) -> bool:
    """Return whether a rank has a prompt that may start, or go on, beside its decoding sequences."""
    for place in range(state.ranks[RUNNING][rank]):
        request = state.slots[PLACED][rank][place]
        is_unfinished = state.requests[GENERATED][request] < state.requests[OUTPUT][request]
        if is_unfinished and not is_decoding(state, request):
            return True
    budget = state.rules[STEP_TOKENS] - decoding * (1 + state.rules[DRAFTED])
    waits = state.rules[RESERVES] == FOR_RATIO and state.ranks[WAITING][rank] > 0
    promised = promised_tokens(state, rank) if waits else 0.0
    return bool(startable(state, rank, budget, promised)[0] != NONE)


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def prompt_turn(state: State, unit: int) -> tuple[bool, int, bool]:
    """Return whether prompts may start, for how many equal steps that holds, and whether these count as waiting.

    Prompts start together when each rank has one; a rank that decodes nothing waits for none; otherwise every
    RANK_WAIT-th step starts those there are. Decode steps take blocks and free none, so that no rank has a prompt to
    start that had none before; one that had may lose it.
    """
    rules, first = state.rules, unit * state.rules[RANKS]
    if rules[RANK_WAIT] == 0 or rules[RANKS] == 1:
        return True, UNLIMITED, False
    ready, decoding, is_full = 0, 0, False
    for rank in range(first, first + rules[RANKS]):
        count = decoding_count(state, rank)
        decoding += 1 if count > 0 else 0
        is_full = is_full or count >= rules[SEQUENCE_LIMIT]
        ready += 1 if has_prompt(state, rank, count) else 0
    most = UNLIMITED if ready == 0 else 1
    if ready == rules[RANKS] and not is_full:
        waits = decoding == rules[RANKS] and state.units[GATHERED][unit] < rules[RANK_GATHER]
        state.units[GATHERED][unit] = state.units[GATHERED][unit] + 1 if waits else 0
        return not waits, most, False
    if decoding < rules[RANKS]:
        return True, most, False
    left = rules[RANK_WAIT] - 1 - int(state.units[WAITED][unit])
    if ready > 0 and left > 0:
        most = left
    return left == 0, most, True


@compiled_exactly(PLAIN_REQUESTS, owned=False)
def count_wait(state: State, unit: int, steps: int, counts: bool) -> None:
    """Count steps in which prompts waited for other ranks, in rounds of RANK_WAIT."""
    waited = state.units[WAITED][unit] + steps
    state.units[WAITED][unit] = waited % state.rules[RANK_WAIT] if counts else 0.0
