"""Step times as a table, made from any time source, so that compiled loops can look them up."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from nearpeak.core.systems.step_batch import StepBatch, TimeSource
from nearpeak.errors import SpecError
from nearpeak.systems.serving.engine_state import GridArrays
from nearpeak.systems.serving.step_lookup import step_seconds

RATIO = 1.15
"""Distance of knots; steps of prediction by tile and wave lie closer, and are smoothed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepGrid:
    """Time of steps between knots; a time source itself.

    Steps of decoding sequences stand as they were asked for, by number and mean cache. Steps with prompts are a sum: of
    all tokens through the products, of the sequences through the head, of the attention of prompts and of that of
    decoding sequences, each found as a difference of two answers of the source.
    """

    arrays: GridArrays
    """Knots and times."""

    def __call__(self, batch: StepBatch, /) -> float:
        """Return the time of a step in seconds."""
        return float(step_seconds.plain(self.arrays, *batch))


def linear_grid(
    *, fixed_s: float, token_s: float = 0.0, sequence_s: float = 0.0, kv_s: float = 0.0, pair_s: float = 0.0
) -> StepGrid:
    """Return the table of a step that takes a fixed time and so much per token, sequence, cached token and pair.

    >>> table = linear_grid(fixed_s=0.01, token_s=1e-5, kv_s=1e-8, pair_s=1e-9)
    >>> round(table(StepBatch.of_decode(8, kv_count=8000)), 9), round(table(StepBatch.of_prompt(100)), 9)
    (0.01016, 0.01100505)
    """

    def source(batch: StepBatch, /) -> float:
        tokens, sequences = batch.prompt_tokens + batch.decode_tokens, batch.prompt_sequences + batch.decode_sequences
        time = fixed_s + token_s * tokens + sequence_s * sequences
        return time + kv_s * batch.decode_kv + pair_s * batch.prompt_pairs

    ends = np.array([1.0, 1024.0])
    return _table(source, ends, ends, ends, ends, ends)


def tabulate(
    source: TimeSource, *, step_token_count: int, sequence_count: int, context_token_count: int,
    sizes: Sequence[int] = (), caches: Sequence[int] = (), prefixes: Sequence[int] = (),
    prepare: Callable[[Sequence[StepBatch]], None] | None = None, rank_count: int = 1,
    shared_s: Callable[[int], float] | None = None,
) -> StepGrid:  # fmt: skip
    """Return the table of a time source within limits of tokens per step, sequences and context.

    The table answers for the batch of one attention data-parallel rank, as if all had the same; the source is asked for
    the batches of all of them together.

    Args:
        step_token_count: most tokens of a step of one rank; limits and knots below are those of one rank as well.
        sizes: batch sizes of decode steps that must be met exactly, such as the captured sizes of device graphs; the
            size behind each becomes a knot as well.
        caches: cached tokens of a decoding sequence that are knots, for loads that know them; spread over the context
            otherwise.
        prefixes: mean keys of new tokens of prompts likewise.
        prepare: is told all batches that the source will be asked about, so that it can predict them together.
        rank_count: attention data-parallel ranks that step together.
        shared_s: part of the source's time that follows the tokens of all ranks, however they are spread; none for 0.

    Raises:
        SpecError: the source answers with a time that is not above 0 and finite.
    """
    for name, value in (("step_token_count", step_token_count), ("sequence_count", sequence_count)):
        if value < 1:
            raise SpecError(f"table of step times: {name}={value} must be at least 1")
    decodes = _knots(sequence_count, [*sizes, *(size + 1 for size in sizes)])
    context = max(context_token_count, 32)
    spread = np.geomspace(16, context, 2 + 2 * int(np.log2(context / 16)))
    cache_knots = np.unique(np.round([*caches] if caches else [1.0, *spread]).astype(np.float64))
    tokens = _knots(max(step_token_count, sequence_count, 2))
    prompts = _knots(max(step_token_count, 2))[::2]
    prompts = np.append(prompts[prompts < step_token_count], max(step_token_count, 2))
    keys = np.unique(np.round([*prefixes] if prefixes else [1.0, *np.geomspace(16, max(context, 128), 24)]))
    knots = (decodes, cache_knots, tokens, prompts, keys.astype(np.float64))

    def of_all(batch: StepBatch, /) -> StepBatch:
        return StepBatch(*(value * rank_count for value in batch))._replace(longest_kv=batch.longest_kv)

    if prepare is not None:
        batches: list[StepBatch] = []

        def foresee(batch: StepBatch, /) -> float:
            batches.append(of_all(batch))
            return 1.0

        _table(foresee, *knots)
        prepare(batches)
    grid = _table(lambda batch: source(of_all(batch)), *knots)
    if shared_s is not None and rank_count > 1:
        grid.arrays.shared_s[:] = [shared_s(int(count) * rank_count) for count in tokens]
    return grid


def _knots(last: int, extra: Sequence[int] = ()) -> np.ndarray:
    places = np.geomspace(1, last, 2 + int(np.log(max(last, 2)) / np.log(RATIO)))
    numbers = {round(place) for place in places} | {size for size in extra if 1 <= size <= last} | {1, max(last, 2)}
    return np.array(sorted(numbers), np.float64)


def _table(
    source: TimeSource, decodes: np.ndarray, caches: np.ndarray, tokens: np.ndarray, prompts: np.ndarray,
    prefixes: np.ndarray,
) -> StepGrid:  # fmt: skip
    """Ask the source at all knots; parts of mixed steps are differences of two answers."""
    ask = _checked(source)
    token_s = np.array([ask(_scattered(int(count), 1)) for count in tokens])
    head_s = np.array([ask(_scattered(int(count), int(count))) - ask(_scattered(int(count), 1)) for count in tokens])

    def part(count: float, sequences: float) -> float:
        return float(np.interp(count, tokens, token_s) + np.interp(sequences, tokens, head_s))

    decode_s, beside_s = np.empty((len(decodes), len(caches))), np.empty((len(decodes), len(caches)))
    for row, count in enumerate(decodes.astype(int).tolist()):
        for column, cache in enumerate(caches.astype(int).tolist()):
            batch = StepBatch.of_decode(count, kv_count=count * cache)
            decode_s[row, column] = ask(batch)
            mixed = batch._replace(prompt_tokens=1, prompt_pairs=1, prompt_sequences=1)
            beside_s[row, column] = ask(mixed) - part(count + 1, count + 1)
    prompt_s = np.array([
        [ask(StepBatch(prompt_tokens=int(count), prompt_pairs=int(count * mean), prompt_sequences=1)) - part(count, 1)
         for mean in prefixes] for count in prompts
    ])  # fmt: skip
    arrays = GridArrays(
        decode_knots=decodes, cache_knots=caches, decode_s=decode_s, beside_s=beside_s, token_knots=tokens,
        token_s=token_s, head_knots=tokens, head_s=head_s, prompt_knots=prompts, prefix_knots=prefixes,
        prompt_s=prompt_s, shared_s=np.zeros(len(tokens)),
    )  # fmt: skip
    return StepGrid(arrays=arrays)


def _scattered(token_count: int, sequence_count: int) -> StepBatch:
    """Return a step of prompts whose tokens attend to themselves alone."""
    return StepBatch(prompt_tokens=token_count, prompt_pairs=token_count, prompt_sequences=sequence_count)


def _checked(source: TimeSource) -> TimeSource:
    def ask(batch: StepBatch, /) -> float:
        time = float(source(batch))
        if not 0 < time < float("inf"):
            raise SpecError(f"time source: {time!r} s for {batch}; a step's time must be above 0 and finite")
        return time

    return ask
