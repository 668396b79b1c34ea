"""Placement of independent jobs on equal ranks: longest processing time first, with its bounds."""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace

from nearpeak.errors import SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Jobs on ranks."""

    rank: tuple[int, ...]
    """Rank of each job."""
    load_s: tuple[float, ...]
    """Time of each rank."""

    @property
    def longest_s(self) -> float:
        """Time until all are done: the maximum over ranks, not their mean."""
        return max(self.load_s)


def place_longest_first(job_s: Sequence[float], rank_count: int) -> Placement:
    """Return the placement that gives each job, longest first, to the rank with the least load.

    Its longest rank takes at most 4/3 - 1/(3 ranks) times the shortest possible.

    Source: Graham 1969, SIAM Journal on Applied Mathematics 17(2), 'Bounds on multiprocessing timing anomalies'.

    >>> place_longest_first([3.0, 3.0, 2.0, 2.0, 2.0], 2).load_s
    (7.0, 5.0)
    """
    if rank_count < 1:
        raise SpecError(f"placement: {rank_count} ranks; at least 1 is needed")
    loads = [(0.0, rank) for rank in range(rank_count)]
    heapify(loads)
    ranks = [0] * len(job_s)
    for job in sorted(range(len(job_s)), key=lambda place: -job_s[place]):
        load, rank = loads[0]
        ranks[job] = rank
        heapreplace(loads, (load + job_s[job], rank))
    by_rank = {rank: load for load, rank in loads}
    return Placement(rank=tuple(ranks), load_s=tuple(by_rank[rank] for rank in range(rank_count)))
