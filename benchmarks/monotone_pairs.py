"""How many random pairs of cases break the law that no case takes longer than one that contains it, and how far.

Good software could pad the contained case, so what breaks the law is an error of the prediction or a shape that the
measured libraries serve worse than its neighbours; corrections that follow such shapes break it on purpose. What counts
against the stated uncertainty is a contained case beyond the 90 % interval of the case that contains it.
"""

from collections.abc import Iterator

import numpy as np

from benchmarks._figures import Figure
from benchmarks._monotone_pairs import FAMILIES, pairs_of

KINDS = ("product", "other")
MEASURES = ("broken", "beyond_interval", "above_2_percent", "above_10_percent", "worst")
FIGURES = (*(f"monotone_{kind}_pairs_{measure}" for kind in KINDS for measure in MEASURES),)
COUNT, SEED = 100_000, 20261129
"""Pairs of each of the two kinds of families, over their devices."""


def measure() -> Iterator[Figure]:
    """Yield the pairs that break the law, by how far, and the worst ratio, of products and of all other families."""
    for kind in KINDS:
        chosen = [
            (label, family, device)
            for label, family in FAMILIES.items()
            for device in family.devices
            if (family.op in ("gemm", "scaled_gemm")) == (kind == "product")
        ]
        count, broken, beyond = -(-COUNT // len(chosen)), list[float](), 0
        for label, family, device in chosen:
            pairs = pairs_of(family, device, count, SEED)
            ratios, outside = pairs.broken, int(pairs.is_beyond.sum())
            print(f"{label} on {device}: {len(ratios)} of {count} pairs, {outside} beyond", flush=True)
            broken, beyond = broken + ratios.tolist(), beyond + outside
        every = np.array(broken)
        above = (int((every > limit).sum()) for limit in (1.02, 1.1))
        counts = (len(every), beyond, *above, every.max(initial=1.0))
        for measured, value in zip(MEASURES, counts, strict=True):
            unit = "x" if measured == "worst" else f"of {count * len(chosen):,} pairs"
            name = f"monotone_{kind}_pairs_{measured}"
            yield Figure(name=name, value=float(value), unit=unit, bar="", passed=True, seed=SEED)
