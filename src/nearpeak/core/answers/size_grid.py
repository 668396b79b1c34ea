"""Limits and expected times of a step at other batch sizes, lengths and formats, for a reader to choose among."""

from dataclasses import dataclass
from typing import NamedTuple


class GridAnswer(NamedTuple):
    """Answer of one size in one format on one target; times are of an item, such as a token."""

    limit_s: float
    """Least time."""
    expected_s: float | None
    """Expected time; none where nothing is predicted."""
    low_s: float | None
    """Low end of its 90 % interval."""
    high_s: float | None
    """High end of its 90 % interval."""
    items_per_s: float
    """Items per second at the expected time, else at the least."""
    fits: bool | None
    """Whether the step fits into the memory; none where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeGrid:
    """Answers over batch sizes, lengths and formats."""

    noun: str
    """What the times are of: `token`, `image`, `sample`."""
    length_name: str
    """What a length is: `Cached positions`, `Tokens per sequence`; empty where the step has none."""
    batches: tuple[int, ...]
    """Batch sizes."""
    lengths: tuple[int, ...]
    """Lengths; one zero where the step has none."""
    formats: tuple[str, ...]
    """Formats of weights and caches, in words."""
    own: tuple[int, int, int]
    """Places of the batch size, the length and the format that the report is about."""
    answers: tuple[tuple[GridAnswer | None, ...], ...]
    """For each target the answer of each format, length and batch, the batch fastest; none where the step is not
    shipped at that size or the target does not take the format."""
