"""Split of a model's layers into contiguous pipeline stages with the least longest stage, within memory limits."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import inf

from nearpeak.errors import NotModelledError, SpecError
from nearpeak.systems.training.pipeline_executor import StageTimes

MOST_VISITS = 500_000
"""Partial splits that the search under memory limits visits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLayer:
    """One layer, embedding or head as a pipeline stage holds it; times of one micro-batch."""

    forward_s: float
    """Forward pass, recomputation left out."""
    backward_s: float
    """Whole backward pass, with what is recomputed for it."""
    weight_s: float = 0.0
    """Part of the backward pass that gives gradients of weights."""
    state_bytes: float = 0.0
    """Weights, gradients and optimizer states."""
    activation_bytes: float = 0.0
    """Activations of one micro-batch in flight."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLimit:
    """Memory of a pipeline rank, and how many micro-batches each stage holds at its peak."""

    rank_bytes: float
    """Memory that stages may take on one rank."""
    rank: tuple[int, ...]
    """Rank that holds each stage."""
    in_flight_count: tuple[int, ...]
    """Micro-batches of each stage whose activations are held at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSplit:
    """How many layers each stage has."""

    layer_count: tuple[int, ...]
    """Layers of each stage, in order."""
    stage_s: tuple[float, ...]
    """Forward and backward time of a micro-batch through each stage."""
    rank_bytes: tuple[float, ...] = ()
    """Memory of each rank, where limits were given."""


def split_stages(layers: Sequence[StageLayer], stage_count: int, limit: MemoryLimit | None = None) -> StageSplit:
    """Return the split whose longest stage is shortest; exact, also under memory limits.

    Embedding and head are layers at the ends. Dynamic programming gives the least longest stage of every suffix, by
    which a depth-first search over the splits that fit is cut off.

    Raises:
        SpecError: fewer layers than stages, or no split fits; the message says by how much the best one does not.
        NotModelledError: the limit is so tight that the search does not end.

    >>> layers = [StageLayer(forward_s=time, backward_s=2 * time) for time in (1.0, 2.0, 2.0, 3.0)]
    >>> split_stages(layers, 2).layer_count, split_stages(layers, 2).stage_s
    ((2, 2), (9.0, 15.0))
    """
    if not 1 <= stage_count <= len(layers):
        raise SpecError(
            f"stage split: {len(layers)} layers on {stage_count} stages; at least one layer per stage is needed"
        )
    if limit is not None and not len(limit.rank) == len(limit.in_flight_count) == stage_count:
        raise SpecError(f"stage split: the memory limit is of {len(limit.rank)} stages, not {stage_count}")
    sums = [0.0, *accumulate(layer.forward_s + layer.backward_s for layer in layers)]
    search = _Search(layers, sums, least_longest(sums, stage_count), limit)
    cuts = search.best_cuts(stage_count)
    return StageSplit(
        layer_count=tuple(right - left for left, right in pairwise(cuts)),
        stage_s=tuple(sums[right] - sums[left] for left, right in pairwise(cuts)),
        rank_bytes=() if limit is None else search.rank_bytes(cuts),
    )


def least_longest(sums: Sequence[float], stage_count: int) -> list[list[float]]:
    """Return for k stages and each first layer the least longest stage of the layers from there on.

    Args:
        sums: running sums of the layers' times, from 0.

    >>> least_longest([0.0, 1.0, 3.0, 5.0, 8.0], 2)[2][0]
    5.0
    """
    count = len(sums) - 1
    table = [[inf] * count + [0.0], [sums[-1] - sums[first] for first in range(count)] + [inf]]
    for stages in range(2, stage_count + 1):
        rest, row = table[-1], [inf] * (count + 1)
        for first in range(count - stages + 1):
            ends = range(first + 1, count - stages + 2)
            # The first stage grows with its end and the longest of the rest falls: the best end is where they cross.
            cross = bisect_left(ends, True, key=lambda end: sums[end] - sums[first] >= rest[end])
            near = ends[max(0, cross - 1) : cross + 1]
            row[first] = min(max(sums[end] - sums[first], rest[end]) for end in near)
        table.append(row)
    return table


class _Search:
    """Depth-first search for the split with the least longest stage that fits into memory."""

    def __init__(
        self, layers: Sequence[StageLayer], sums: Sequence[float], tails: list[list[float]], limit: MemoryLimit | None
    ) -> None:
        self._sums, self._tails, self._limit = sums, tails, limit
        self._state = [0.0, *accumulate(layer.state_bytes for layer in layers)]
        self._activation = [0.0, *accumulate(layer.activation_bytes for layer in layers)]
        self._best, self._cuts, self._visits = inf, list[int](), 0

    def best_cuts(self, stage_count: int) -> list[int]:
        """Return the first layer of each stage and the number of layers."""
        ranks = 0 if self._limit is None else max(self._limit.rank) + 1
        self._visit([0], stage_count, 0.0, [0.0] * ranks)
        if not self._cuts:
            raise SpecError(self._excess(stage_count))
        return self._cuts

    def rank_bytes(self, cuts: Sequence[int]) -> tuple[float, ...]:
        """Return the memory of each rank."""
        assert self._limit is not None
        held = [0.0] * (max(self._limit.rank) + 1)
        for stage, (left, right) in enumerate(pairwise(cuts)):
            held[self._limit.rank[stage]] += self._stage_bytes(stage, left, right)
        return tuple(held)

    def _visit(self, cuts: list[int], left: int, longest: float, held: list[float]) -> None:
        """Try all ends of the next stage, the best bounded first; stop where no better split can follow."""
        first, stage = cuts[-1], len(cuts) - 1
        if left == 0:
            if first == len(self._sums) - 1 and longest < self._best:
                self._best, self._cuts = longest, cuts
            return
        self._visits += 1
        if self._visits > MOST_VISITS:
            raise NotModelledError(
                f"stage split: no end after {MOST_VISITS:,} partial splits; the memory limit leaves hardly any room, "
                "relax it or take fewer stages per rank"
            )
        ends = range(first + 1, len(self._sums) - left + 1) if left > 1 else [len(self._sums) - 1]
        even = self._sums[first] + (self._sums[-1] - self._sums[first]) / left
        bounded = sorted(  # of equally bounded ends, the one nearest to equal stages
            (max(longest, self._sums[end] - self._sums[first], self._tails[left - 1][end]),
             abs(self._sums[end] - even), end)
            for end in ends
        )  # fmt: skip
        for bound, _, end in bounded:
            if bound >= self._best:
                return
            after = list(held)
            if self._limit is not None:
                rank = self._limit.rank[stage]
                after[rank] += self._stage_bytes(stage, first, end)
                if after[rank] > self._limit.rank_bytes:
                    continue
            self._visit([*cuts, end], left - 1, max(longest, self._sums[end] - self._sums[first]), after)

    def _stage_bytes(self, stage: int, left: int, right: int) -> float:
        assert self._limit is not None
        activations = self._activation[right] - self._activation[left]
        return self._state[right] - self._state[left] + self._limit.in_flight_count[stage] * activations

    def _excess(self, stage_count: int) -> str:
        """Return the line that says by how much the split of the shortest longest stage does not fit."""
        limit, self._limit = self._limit, None
        assert limit is not None
        self._visit([0], stage_count, 0.0, [])
        self._limit = limit
        held = self.rank_bytes(self._cuts)
        rank = max(range(len(held)), key=held.__getitem__)
        return (
            f"stage split: no split into {stage_count} stages fits into {limit.rank_bytes / 1e9:.2f} GB per rank; the "
            f"fastest one takes {held[rank] / 1e9:.2f} GB on rank {rank}: use more stages, recomputation or sharding"
        )


def stage_times(layers: Sequence[StageLayer], split: StageSplit) -> StageTimes:
    """Return the durations of the stages of a split, for the executor of schedules."""
    cuts = [0, *accumulate(split.layer_count)]
    forward, backward, weight = (
        tuple(sum(part[left:right]) for left, right in pairwise(cuts))
        for part in (
            [layer.forward_s for layer in layers],
            [layer.backward_s for layer in layers],
            [layer.weight_s for layer in layers],
        )
    )
    return StageTimes(forward_s=forward, backward_s=backward, weight_s=weight)
