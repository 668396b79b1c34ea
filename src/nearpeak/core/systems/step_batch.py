"""The work of one step of a serving engine, and the protocol of functions that give its time."""

from typing import NamedTuple, Protocol


class StepBatch(NamedTuple):
    """Tokens, sequences and cache of one step: chunks of prompts and decoding sequences side by side.

    >>> StepBatch.of_prompt(512, prefix_count=1024).prompt_pairs
    655616
    >>> StepBatch.of_decode(8, kv_count=8192).longest_kv
    1024
    """

    prompt_tokens: int = 0
    """New tokens of all chunks of prompts; cached prefixes are not computed and not counted."""
    prompt_pairs: int = 0
    """Pairs of a new token and a token that it attends to: Σ n·prefix + n(n + 1)/2 over the chunks."""
    prompt_sequences: int = 0
    """Chunks of prompts."""
    decode_tokens: int = 0
    """New tokens of decoding sequences: their number, times 1 + drafted tokens under speculation."""
    decode_sequences: int = 0
    """Decoding sequences."""
    decode_kv: int = 0
    """Tokens in the caches of all decoding sequences, those of this step included."""
    longest_kv: int = 0
    """Tokens in the longest of these caches."""

    @classmethod
    def of_prompt(cls, token_count: int, *, prefix_count: int = 0) -> "StepBatch":
        """Return the step of one chunk of a prompt behind a prefix."""
        pairs = token_count * prefix_count + token_count * (token_count + 1) // 2
        return cls(prompt_tokens=token_count, prompt_pairs=pairs, prompt_sequences=1)

    @classmethod
    def of_decode(cls, sequence_count: int, *, kv_count: int) -> "StepBatch":
        """Return the step of decoding sequences whose caches are equally long."""
        return cls(
            decode_tokens=sequence_count, decode_sequences=sequence_count, decode_kv=kv_count,
            longest_kv=-(-kv_count // sequence_count),
        )  # fmt: skip


class TimeSource(Protocol):
    """Anything that gives the time of a step; a predictor, a table, a measured profile or another simulator.

    It is called in process with a StepBatch, must be free of side effects, and returns seconds from the start of the
    scheduler's decision to the moment when the step's tokens are known to the scheduler.
    """

    def __call__(self, batch: StepBatch, /) -> float:
        """Return the time of a step in seconds."""
        ...
