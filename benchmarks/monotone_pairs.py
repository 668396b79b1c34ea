"""How many random pairs of cases break the law that no case takes longer than one that contains it, and how far.

Good software could pad the contained case, so what breaks the law is an error of the prediction or a shape that the
measured libraries serve worse than its neighbours; corrections that follow such shapes break it on purpose.
"""

from collections.abc import Iterator

import numpy as np

from benchmarks._figures import Figure
from benchmarks._monotone_pairs import FAMILIES, broken_ratios

KINDS = ("product", "other")
FIGURES = (
    "monotone_product_pairs_broken", "monotone_product_pairs_worst", "monotone_other_pairs_broken",
    "monotone_other_pairs_worst",
)  # fmt: skip
COUNT, SEED = 100_000, 20261129
"""Pairs of each of the two kinds of families, over their devices."""


def measure() -> Iterator[Figure]:
    """Yield the pairs that break the law and the worst ratio, of products and of all other families."""
    for kind in KINDS:
        chosen = [
            (label, family, device)
            for label, family in FAMILIES.items()
            for device in family.devices
            if (family.op in ("gemm", "scaled_gemm")) == (kind == "product")
        ]
        count, broken = -(-COUNT // len(chosen)), list[float]()
        for label, family, device in chosen:
            ratios = broken_ratios(family, device, count, SEED)
            print(
                f"{label} on {device}: {len(ratios)} of {count} pairs, worst {ratios.max(initial=1.0):.2f}", flush=True
            )
            broken += ratios.tolist()
        unit, worst = f"of {count * len(chosen):,} pairs", float(np.max(broken, initial=1.0))
        yield Figure(
            name=f"monotone_{kind}_pairs_broken", value=float(len(broken)), unit=unit, bar="", passed=True, seed=SEED
        )
        yield Figure(name=f"monotone_{kind}_pairs_worst", value=worst, unit="x", bar="", passed=True, seed=SEED)
