"""Whether any schedule of small random graphs beats a proved term: every schedule of each is searched."""

from collections.abc import Iterator
from itertools import count

from tests.brute_force.check import beaten, tiny
from tests.brute_force.graphs import random_graph
from tests.brute_force.machine import TooLargeError

import nearpeak
from benchmarks._figures import Figure

FIGURES = ("brute_force_graphs", "brute_force_beaten_terms")
GRAPHS = 2500
SEED = 1_000_000


def measure() -> Iterator[Figure]:
    """Yield the graphs whose schedules were all searched, and how often one of them beat a proved term."""
    searched, found, seeds = 0, 0, count(SEED)
    while searched < GRAPHS:
        seed = next(seeds)
        program, workload = random_graph(seed)
        storage, credit = 3 + seed % 2, seed // 2 % 3
        bound = nearpeak.bound(workload, tiny(storage, credit))
        try:
            found += len(list(beaten(program, bound, storage, credit, inner=storage - credit >= 3)))
        except TooLargeError:
            continue
        searched += 1
    yield Figure(
        name="brute_force_graphs", value=searched, unit="graphs", bar=">= 2,000", passed=searched >= 2000, seed=SEED
    )
    yield Figure(name="brute_force_beaten_terms", value=found, unit="terms", bar="0", passed=found == 0, seed=SEED)
