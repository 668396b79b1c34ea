"""Requests of a load as columns: arrivals, tokens, hash blocks of prompts, classes and adapters."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from nearpeak.errors import SpecError

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """Requests in order of arrival.

    >>> Requests(arrival_s=np.array([0.0, 2.0]), input_count=np.array([10, 20]), output_count=np.array([5, 5])).rate
    0.5
    """

    arrival_s: Floats
    """Time of arrival from the start of the load; those of a closed loop are found by the run."""
    input_count: Ints
    """Tokens of each prompt."""
    output_count: Ints
    """Tokens that each request generates."""
    concurrency_count: int = 0
    """Requests that a closed loop keeps in flight; 0 for an open loop."""
    hash_token_count: int = 0
    """Tokens of a hash block; 0 where prompts share nothing."""
    hash_ids: Ints | None = None
    """Hash blocks of all prompts, one after the other; equal numbers stand for equal prefixes."""
    hash_starts: Ints | None = None
    """Place of the first hash block of each request, and behind the last request the number of all."""
    classes: Ints | None = None
    """Priority class of each request; 0 goes first."""
    adapters: Ints | None = None
    """LoRA adapter of each request; −1 for none."""

    def __post_init__(self) -> None:
        """Refuse columns of unequal length, arrivals that go back and requests without tokens."""
        columns = (self.arrival_s, self.input_count, self.output_count, self.classes, self.adapters)
        lengths = {len(column) for column in columns if column is not None}
        if len(lengths) != 1 or 0 in lengths:
            raise SpecError(
                f"requests: columns of {sorted(lengths)} rows; all must have one number of rows, at least 1"
            )
        self._check("arrival", ~np.isfinite(self.arrival_s) | (self.arrival_s < 0), "a time of at least 0 s")
        gaps = np.diff(self.arrival_s, prepend=self.arrival_s[0])
        self._check("arrival", gaps < 0, "no earlier than the request before")
        self._check("input", self.input_count < 1, "at least 1 token")
        self._check("output", self.output_count < 1, "at least 1 token")

    def _check(self, name: str, is_wrong: npt.NDArray[np.bool_], right: str) -> None:
        if is_wrong.any():
            row = int(is_wrong.argmax())
            columns = {"arrival": self.arrival_s, "input": self.input_count, "output": self.output_count}
            raise SpecError(f"requests: {name} of request {row} is {columns[name][row]:g}; must be {right}")

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.arrival_s)

    @property
    def rate(self) -> float:
        """Requests per second between the first and the last arrival; infinite if they arrive at once."""
        span_s = float(self.arrival_s[-1] - self.arrival_s[0])
        return (len(self) - 1) / span_s if span_s else float("inf")

    def scaled(self, factor: float) -> "Requests":
        """Return the requests at `factor` times their rate: the same order and bursts, shorter gaps."""
        if factor <= 0:
            raise SpecError(f"requests: factor {factor:g} of the rate must be above 0")
        return replace(self, arrival_s=self.arrival_s / factor)

    def in_order(self, order: Ints) -> "Requests":
        """Return the requests in another order, their arrivals as they are."""
        more: dict[str, npt.NDArray[np.int64]] = {
            name: column[order] for name in ("classes", "adapters") if (column := getattr(self, name)) is not None
        }
        if self.hash_ids is not None and self.hash_starts is not None:
            parts = [self.hash_ids[self.hash_starts[row] : self.hash_starts[row + 1]] for row in order.tolist()]
            more["hash_ids"] = np.concatenate(parts)
            more["hash_starts"] = np.cumsum([0, *map(len, parts)], dtype=np.int64)
        return replace(self, input_count=self.input_count[order], output_count=self.output_count[order], **more)  # type: ignore[arg-type]

    def hash_counts(self) -> Ints:
        """Return the number of hash blocks of each request."""
        return np.zeros(len(self), np.int64) if self.hash_starts is None else np.diff(self.hash_starts)


def prefix_hit_ratio(requests: Requests) -> float:
    """Return the share of hash blocks that a cache without limit has seen as leading blocks of a prompt before.

    The last block of a prompt counts even where it is not full.

    >>> requests = Requests(
    ...     arrival_s=np.zeros(2), input_count=np.array([8, 8]), output_count=np.array([1, 1]), hash_token_count=4,
    ...     hash_ids=np.array([0, 1, 0, 2]), hash_starts=np.array([0, 2, 4]))
    >>> prefix_hit_ratio(requests)
    0.25
    """
    if requests.hash_ids is None or requests.hash_starts is None:
        raise SpecError("requests: without hash blocks of prompts no prefix can be recognised")
    numbers, starts, seen, hits = requests.hash_ids.tolist(), requests.hash_starts.tolist(), set(), 0
    for start, stop in pairwise(starts):
        for number in numbers[start:stop]:
            if number not in seen:
                break
            hits += 1
        seen.update(numbers[start:stop])
    return hits / len(numbers)
