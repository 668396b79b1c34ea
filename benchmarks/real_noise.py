"""Change points on the noise of public histories, resampled in blocks, beside a public detector on the same series."""

from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks import _real_noise
from benchmarks._figures import Figure
from benchmarks._real_noise import COMMITS, Noisy
from benchmarks._series import SIZES, hits
from benchmarks.change_points import Detector, by_kernel, ours_confirmed

FIGURES = (
    ("noise_precision", "noise_f1", "noise_false", "noise_rbf_precision", "noise_rbf_f1", "noise_rbf_false")
    if _real_noise.folder()
    else ()
)
"""None of them is measured where no folder is named: what was not measured has no figure."""
REPETITIONS = 12


def measure() -> Iterator[Figure]:
    """Yield precision, F1 and false changes on the sources that no rule was chosen on."""
    root = _real_noise.folder()
    if root is None:
        print(f"  not measured: {_real_noise.VARIABLE} names no folder")
        return
    sources = _real_noise.scoring(root)
    series = list(_real_noise.resampled(root, sources, REPETITIONS))
    precision, f1, false = scored(ours_confirmed, series)
    count = f"on {len(series)} series of {len(sources)} sources"
    yield Figure(
        name=FIGURES[0], value=precision, unit="", bar=f">= 0.93 {count}", passed=precision >= 0.93,
    )  # fmt: skip
    yield Figure(name=FIGURES[1], value=f1, unit="", bar=f">= 0.90 {count}", passed=f1 >= 0.9)
    yield Figure(name=FIGURES[2], value=false, unit="per 1,000 commits", bar=f"<= 0.3 {count}", passed=false <= 0.3)
    for name, value in zip(FIGURES[3:], scored(by_kernel, series), strict=True):
        yield Figure(name=name, value=value, unit="", bar="", passed=True)


def scored(detector: Detector, series: Sequence[Noisy]) -> tuple[float, float, float]:
    """Return precision and F1 over the sizes of steps, and false changes for each 1,000 commits without one."""
    found = {size: [(len(places), hits(places, one.planted)) for one, places in _marked(detector, series, size)]
             for size in (0.0, *SIZES)}  # fmt: skip
    stepped = [row for size in SIZES for row in found[size]]
    right = sum(hit for _, hit in stepped)
    precision = right / max(1, sum(count for count, _ in stepped))
    recall = float(np.mean([np.mean([hit for _, hit in found[size]]) for size in SIZES]))
    false = 1000 * sum(count for count, _ in found[0.0]) / (COMMITS * len(found[0.0]))
    return precision, 2 * precision * recall / max(precision + recall, 1e-9), false


def _marked(detector: Detector, series: Sequence[Noisy], size: float) -> Iterator[tuple[Noisy, Sequence[int]]]:
    for one in series:
        if one.size_ratio == size:
            yield one, detector(one.values)
