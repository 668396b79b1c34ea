"""Tokens that one pass of a transformer takes: training sequences, or prefills and decodes of a serving step."""

from dataclasses import dataclass

from nearpeak.errors import SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingBatch:
    """Equal whole sequences; every token has its gradient."""

    sequences: int
    """Sequences of a micro-batch."""
    length: int
    """Tokens of a sequence, before context parallelism splits it."""

    @property
    def tokens(self) -> int:
        """Tokens of all sequences."""
        return self.sequences * self.length

    @property
    def logit_rows(self) -> int:
        """Rows that the output head sees."""
        return self.tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingBatch:
    """One step of a serving engine: prefills, each with a cached prefix, beside decodes.

    >>> step = ServingBatch(prefills=((512, 0), (256, 1024)), decode_count=2, decode_cached_tokens=1600)
    >>> step.tokens, step.logit_rows, step.page_count
    (770, 4, 100)
    """

    prefills: tuple[tuple[int, int], ...] = ()
    """New tokens and cached prefix tokens of each prefill."""
    decode_count: int = 0
    """Decoding sequences."""
    decode_cached_tokens: int = 0
    """Tokens of all decoding sequences together, those of this step included."""
    queries: int = 1
    """Tokens that a decoding sequence takes at once (drafts to verify, and one)."""
    page: int = 16
    """Tokens of one page of the cache."""

    def __post_init__(self) -> None:
        """Refuse sequences that hold fewer tokens than they take."""
        if self.queries < 1 or self.page < 1 or any(new < 1 or prefix < 0 for new, prefix in self.prefills):
            raise SpecError("serving batch: queries, page and new tokens must be at least 1, prefixes at least 0")
        if self.decode_cached_tokens < self.decode_tokens:
            raise SpecError(
                f"serving batch: {self.decode_count} decodes of {self.queries} tokens each hold at least "
                f"{self.decode_tokens} tokens, their own included; got {self.decode_cached_tokens}"
            )

    @property
    def prefill_tokens(self) -> int:
        """New tokens of all prefills."""
        return sum(new for new, _ in self.prefills)

    @property
    def decode_tokens(self) -> int:
        """New tokens of all decodes."""
        return self.decode_count * self.queries

    @property
    def page_count(self) -> int:
        """Pages of the decoding sequences, as if these were equally long."""
        longer = self.decode_cached_tokens % self.decode_count if self.decode_count else 0
        length = self.decode_cached_tokens // self.decode_count if self.decode_count else 0
        pages = longer * -(-(length + 1) // self.page)
        return pages + (self.decode_count - longer) * -(-length // self.page)

    @property
    def tokens(self) -> int:
        """New tokens of the step."""
        return self.prefill_tokens + self.decode_tokens

    @property
    def logit_rows(self) -> int:
        """Rows that the output head sees: the last token of a prefill, all tokens of a decode."""
        return len(self.prefills) + self.decode_tokens


Batch = TrainingBatch | ServingBatch


def row_count(batch: Batch, cp: int) -> int:
    """Return the tokens of one context-parallel rank.

    Raises:
        SpecError: the sequence is no multiple of twice the degree, as its zig-zag halves need.
    """
    if cp == 1:
        return batch.tokens
    if isinstance(batch, ServingBatch):
        return -(-batch.tokens // cp)
    if batch.length % (2 * cp):
        near = max(batch.length // (2 * cp), 1) * 2 * cp
        raise SpecError(f"sequence {batch.length} is no multiple of 2 × cp {cp}; {near} would be")
    return batch.sequences * (batch.length // cp)
