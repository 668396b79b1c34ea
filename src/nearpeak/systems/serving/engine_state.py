"""State of simulated engines as arrays: requests, ranks, queues, prefix caches and the log of steps."""

from typing import Any, NamedTuple

(
    OUTPUT, INPUT, GENERATED, COMPUTED, PRIVATE, HELD, HASHES, HASH_START, NEXT, CLASS, ADAPTER, PREEMPTED, REUSED,
    RANK, IS_READY, REQUEST_ROWS,
) = range(16)  # fmt: skip
"""Rows of `requests`: tokens to generate, tokens of the prompt, tokens generated and computed; blocks of its own; hash
blocks that it references, hash blocks of its prompt and the place of the first; the next of its queue; class, adapter;
times preempted, tokens taken from the prefix cache, rank, whether its prompt's cache comes with it."""
ARRIVED, QUEUED, SCHEDULED, FIRST, LAST, TIME_ROWS = range(6)
"""Rows of `times`."""
(
    FREE, EVICTABLE, RUNNING, WAITING, OLDEST, NEWEST, PROMPT, PAIRS, CHUNKS, TOKENS, SEQUENCES, GROWING, KV, LONGEST,
    EVICTED, DISTINCT, QUEUED_BLOCKS, NEXT_COMER, LAST_COMER, RANK_ROWS,
) = range(20)  # fmt: skip
"""Rows of `ranks`: free and evictable blocks, running and waiting requests, ends of the list of evictable hash blocks;
of the current step the new tokens of prompts, pairs, chunks, tokens and number of decoding sequences, those that still
generate, their cache and the longest; hash blocks evicted so far; adapters of running requests; blocks that the prompts
of waiting requests will take; the first and the last request on its way to the queue."""
RATIO, LOADING = range(2)
"""Rows of `rank_values`: share of outputs that the admission of SGLang expects to be used; time of adapters to load."""
CLOCK, BUSY, STATUS, STEPS, READY_AT, STARTED_AT, DRAINED_AT, RENTED, WAITED, GATHERED, UNIT_ROWS = range(11)
"""Rows of `units`: clock, time in steps, status of the replica, its steps, when it is ready, since when it is paid for,
when it was drained, the time that it was paid for until its last start, and steps counted while some rank, or while no
rank, had no prompt to start."""
ABSENT, ACTIVE, DRAINED = range(3)
"""Status of a replica."""
PLACED, PLANNED = range(2)
"""Parts of `slots`: running requests in order of admission, and their new tokens in the current step."""
HEAD, TAIL = range(2)
"""Parts of `queues`: first and last waiting request of a class."""
USES, BEFORE, AFTER = range(3)
"""Parts of `cache`: requests that use a hash block (−1: it is absent), neighbours in the list of evictable ones."""
IN_USE, AGE = range(2)
"""Parts of `adapters`: running requests that use one, and the step of its last admission (−1 where it is absent)."""
CURSOR, POOL, ROWS, TURN, DRAW, GROWTH = range(6)
"""Places in `marks`: next arrival, next request of a closed loop, rows of the log, next replica, next draw, and the
sequences that need a new block by the repeat of a step in which they do."""
(
    STEP_TOKENS, SEQUENCE_LIMIT, BLOCK, HASH_BLOCKS, HASH_TOKENS, PROMPTS_FIRST, MIXES, CUTS, RESERVES, VICTIM,
    WHOLE_BATCH, SKIPS, RANKS, DRAFTED, ADAPTERS, ROUTER, SCALES, LEAST, LOGS, OPEN, BLOCKS, DELAYS,
    RANK_WAIT, RANK_GATHER, RULES,
) = range(25)  # fmt: skip
"""Places in `rules`: limits of a step; block sizes; rules of the policy; switches and limits of the run."""
(
    ACCEPTED, DRAFT_S, LOAD_S, RATIO_START, RATIO_LEAST, RATIO_DECAY, START_S, HOLD_S, PER_REPLICA, REQUEST_S,
    TURNAROUND_S, RATES,
) = range(12)  # fmt: skip
"""Places in `rates`: speculation, adapters, SGLang's admission, autoscaling, ways to the queue and back."""
LOG_COLUMNS = 9
"""Columns of `log`: start, duration, new tokens of prompts, decoding sequences, their cache, blocks in use, running and
waiting requests, replica."""
NONE = -1
NEVER = 1e300
"""A time after all others."""
DONE, FULL, STUCK = range(3)
"""How a call of the loop ends: nothing left, no room in the log, a request that can never run."""


class GridArrays(NamedTuple):
    """Time of a step by tokens, sequences and cache; knots rise, times are in seconds."""

    decode_knots: Any
    """Decoding sequences of the time table."""
    cache_knots: Any
    """Mean cache per sequence of the time table."""
    decode_s: Any
    """Time of a step of decoding sequences, [decode, cache]."""
    beside_s: Any
    """Time that decoding sequences add to a step with prompts, [decode, cache]."""
    token_knots: Any
    """Tokens of a step."""
    token_s: Any
    """Time by tokens."""
    head_knots: Any
    """Sequences of a step."""
    head_s: Any
    """Time added by sequences."""
    prompt_knots: Any
    """New tokens of prompts."""
    prefix_knots: Any
    """Mean tokens that a new token attends to."""
    prompt_s: Any
    """Time added by the attention of prompts, [prompt, prefix]."""
    shared_s: Any
    """Part of `token_s` that follows the tokens of all ranks together: that of experts, which serve all of them."""


class State(NamedTuple):
    """Everything that the loops read and write; few arrays, because each costs time in every call and compilation."""

    rules: Any
    """int64, by place."""
    rates: Any
    """float64, by place."""
    draws: Any
    """Uniform random numbers, taken in a circle."""
    hashes: Any
    """Hash blocks of all prompts, by number."""
    requests: Any
    """int64 [row, request]."""
    times: Any
    """float64 [row, request]."""
    ranks: Any
    """int64 [row, rank]."""
    rank_values: Any
    """float64 [row, rank]."""
    units: Any
    """float64 [row, replica]."""
    slots: Any
    """int64 [part, rank, place]."""
    queues: Any
    """int64 [part, rank, class]."""
    cache: Any
    """int64 [part, rank, hash block]."""
    adapters: Any
    """int64 [part, rank, adapter]."""
    log: Any
    """float64 [row, column]."""
    marks: Any
    """int64, by place."""
