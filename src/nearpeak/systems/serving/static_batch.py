"""Service of one batch of equal requests that arrive at once, as offline benchmarks run it."""

from dataclasses import dataclass
from typing import NamedTuple

from nearpeak.core.systems.step_batch import StepBatch, TimeSource
from nearpeak.errors import SpecError

SEGMENTS = 8
"""Pieces of the decode phase; within one, the step time is linear in the cached tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBatch:
    """Equal requests that arrive at once."""

    sequences: int
    """Requests."""
    input_tokens: int
    """Prompt tokens of each."""
    output_tokens: int
    """Generated tokens of each."""
    token_budget: int = 8192
    """Most prompt tokens of a step; a longer prompt runs alone."""
    sequence_limit: int = 256
    """Most sequences that run at once."""
    kv_tokens: float = float("inf")
    """Tokens that the cache holds; requests beyond it wait for a whole round."""


class BatchTimes(NamedTuple):
    """Times of a batch."""

    prefill_s: float
    """Arrival to the first token of the last request of the first round."""
    decode_step_s: float
    """Mean time of a decode step of the first round."""
    latency_s: float
    """Arrival to the last token of all requests."""
    round_count: int
    """Rounds in which requests run because the cache or the limit of sequences holds no more."""


def batch_times(batch: RequestBatch, step_s: TimeSource) -> BatchTimes:
    """Return the times of a batch.

    Raises:
        SpecError: the cache does not hold one request.

    >>> batch = RequestBatch(sequences=2, input_tokens=10, output_tokens=5)
    >>> batch_times(batch, lambda step: 1.0 if step.decode_sequences else 2.0)
    BatchTimes(prefill_s=2.0, decode_step_s=1.0, latency_s=6.0, round_count=1)
    """
    each = batch.input_tokens + batch.output_tokens
    room = int(min(batch.sequence_limit, batch.kv_tokens // each))
    if room < 1:
        raise SpecError(f"batch: the cache holds {batch.kv_tokens:.0f} tokens; one request needs {each}")
    whole, rest = divmod(batch.sequences, room)
    first = min(room, batch.sequences)
    prefill_s = _prefill_s(batch, first, step_s)
    decode_s = _decode_s(batch, first, step_s)
    latency_s = max(1, whole) * (prefill_s + decode_s)
    if whole and rest:
        latency_s += _prefill_s(batch, rest, step_s) + _decode_s(batch, rest, step_s)
    steps = max(1, batch.output_tokens - 1)
    return BatchTimes(prefill_s, decode_s / steps, latency_s, -(-batch.sequences // room))


def _prefill_s(batch: RequestBatch, sequences: int, step_s: TimeSource) -> float:
    """Return the time of the prompts of some requests, as many of them in a step as its budget takes."""
    together = min(sequences, max(1, batch.token_budget // batch.input_tokens))
    whole, rest = divmod(sequences, together)
    pairs = batch.input_tokens * (batch.input_tokens + 1) // 2

    def step(count: int) -> float:
        return step_s(StepBatch(prompt_tokens=count * batch.input_tokens, prompt_pairs=count * pairs,
                                prompt_sequences=count))  # fmt: skip

    return whole * step(together) + (step(rest) if rest else 0.0)


def _decode_s(batch: RequestBatch, sequences: int, step_s: TimeSource) -> float:
    """Return the time of all decode steps, whose caches grow by one token each."""
    steps = batch.output_tokens - 1
    if steps < 1:
        return 0.0
    pieces = min(SEGMENTS, steps)
    total_s = 0.0
    for piece in range(pieces):
        start, stop = steps * piece // pieces, steps * (piece + 1) // pieces
        cached = batch.input_tokens + 1 + round((start + stop - 1) / 2)
        total_s += (stop - start) * step_s(StepBatch.of_decode(sequences, kv_count=sequences * cached))
    return total_s
