"""How many of 12,000 random traces have a timeline that breaks a law."""

import random
import sys
from collections.abc import Iterator

from benchmarks._figures import Figure
from benchmarks._timelines import broken_laws, drawn

FIGURES = ("timeline_laws_broken", "timelines_tried")
COUNT = 12_000


def measure() -> Iterator[Figure]:
    """Yield how many timelines broke a law, out of how many."""
    broken = 0
    for seed in range(COUNT):
        draw = random.Random(seed)
        if faults := broken_laws(drawn(draw), draw):
            broken += 1
            print(f"  seed {seed}: {faults}", file=sys.stderr)
    yield Figure(name="timelines_tried", value=COUNT, unit="timelines", bar=">= 10,000", passed=COUNT >= 10_000, seed=0)
    yield Figure(name="timeline_laws_broken", value=broken, unit="timelines", bar="= 0", passed=broken == 0, seed=0)
