"""Most tokens per second of an engine that always has requests waiting."""

from math import expm1
from typing import NamedTuple

from nearpeak.core.systems.step_batch import StepBatch, TimeSource
from nearpeak.errors import SpecError

GROWTH = 1.25
"""Ratio of neighbouring batch sizes that are tried."""


class Throughput(NamedTuple):
    """The best steady state."""

    output_tokens_per_s: float
    """Generated tokens per second."""
    sequences: int
    """Sequences that decode together."""
    step_s: float
    """Time of a step."""
    is_memory_bound: bool
    """Whether the cache, not the engine's limits, ends the batch."""


def steady_step(sequences: int, input_tokens: int, output_tokens: int) -> StepBatch:
    """Return the mean step of a steady state: as many prompts enter as requests end.

    >>> steady_step(64, 128, 128).prompt_tokens
    64
    """
    return _step_with(sequences, sequences / output_tokens, input_tokens, output_tokens)


def steady_step_s(step_s: TimeSource, sequences: int, input_tokens: int, output_tokens: int) -> float:
    """Return the mean time of a step of a steady state: some with prompts, which come at random, and some without.

    >>> round(steady_step_s(lambda batch: 2.0 if batch.prompt_sequences else 1.0, 10, 100, 1000), 5)
    1.00995
    """
    prompts = sequences / output_tokens
    share = -expm1(-prompts)
    mixed_s = step_s(_step_with(sequences, prompts / share, input_tokens, output_tokens))
    if share > 0.99:
        return mixed_s
    cached = input_tokens + (output_tokens + 1) // 2
    decodes = StepBatch.of_decode(sequences, kv_count=sequences * cached)
    return share * mixed_s + (1 - share) * step_s(decodes._replace(longest_kv=input_tokens + output_tokens))


def _step_with(sequences: int, prompts: float, input_tokens: int, output_tokens: int) -> StepBatch:
    """Return a step of decoding sequences and of so many prompts."""
    prompt_tokens = max(1, round(prompts * input_tokens))
    cached = input_tokens + (output_tokens + 1) // 2
    return StepBatch(
        prompt_tokens=prompt_tokens, prompt_pairs=prompt_tokens * (input_tokens + 1) // 2,
        prompt_sequences=max(1, round(prompts)), decode_tokens=sequences, decode_sequences=sequences,
        decode_kv=sequences * cached, longest_kv=input_tokens + output_tokens,
    )  # fmt: skip


def best_throughput(
    step_s: TimeSource, *, input_tokens: int, output_tokens: int, kv_tokens: float, sequence_limit: int,
    token_budget: int, reserves_output: bool = False,
) -> Throughput:  # fmt: skip
    """Return the steady state with the most generated tokens per second.

    A batch is limited by the cache, by the engine's sequences, and by the tokens of a step, prompts included.

    Args:
        reserves_output: whether the cache keeps room for a request's whole output from its start; otherwise for half of
            it, which is what requests hold in the mean.

    Raises:
        SpecError: the cache does not hold one request.

    >>> best_throughput(lambda batch: 1e-3 * batch.decode_sequences, input_tokens=10, output_tokens=10,
    ...                 kv_tokens=100, sequence_limit=8, token_budget=100).output_tokens_per_s
    1000.0
    """
    if kv_tokens < input_tokens + output_tokens:
        raise SpecError(f"the cache holds {kv_tokens:.0f} tokens; one request needs {input_tokens + output_tokens}")
    room = int(kv_tokens // (input_tokens + output_tokens / (1 if reserves_output else 2)))
    most = max(1, min(room, sequence_limit, int(token_budget / (1 + input_tokens / output_tokens))))
    sizes: list[int] = []
    size = float(most)
    while size >= 1 and len(sizes) < 12:
        sizes.append(round(size))
        size /= GROWTH
    rates = [(count / steady_step_s(step_s, count, input_tokens, output_tokens), count) for count in sizes]
    rate, count = max(rates)
    return Throughput(rate, count, count / rate, most == room and count == most)
