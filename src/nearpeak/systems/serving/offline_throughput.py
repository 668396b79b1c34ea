"""Offline throughput of an engine: most tokens per second when requests always wait."""

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


def steady_steps(sequences: int, input_tokens: int, output_tokens: int) -> tuple[tuple[float, StepBatch], ...]:
    """Return the steps of a steady state with their shares: with prompts, which come at random, and without.

    As many prompts enter as requests end.

    >>> [(round(share, 5), step.prompt_tokens) for share, step in steady_steps(10, 100, 1000)]
    [(0.00995, 101), (0.99005, 0)]
    >>> [(share, step.prompt_tokens) for share, step in steady_steps(640, 128, 128)]
    [(1.0, 644)]
    """
    prompts = sequences / output_tokens
    share = -expm1(-prompts)
    prompt_tokens, cached = max(1, round(prompts / share * input_tokens)), input_tokens + (output_tokens + 1) // 2
    decodes = StepBatch.of_decode(sequences, kv_count=sequences * cached)
    decodes = decodes._replace(longest_kv=input_tokens + output_tokens)
    mixed = decodes._replace(
        prompt_tokens=prompt_tokens, prompt_pairs=prompt_tokens * (input_tokens + 1) // 2,
        prompt_sequences=max(1, round(prompts / share)),
    )  # fmt: skip
    return ((1.0, mixed),) if share > 0.99 else ((share, mixed), (1 - share, decodes))


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
    rates = []
    for count in sizes:
        mean_s = sum(share * step_s(step) for share, step in steady_steps(count, input_tokens, output_tokens))
        rates.append((count / mean_s, count))
    rate, count = max(rates)
    return Throughput(rate, count, count / rate, most == room and count == most)
