"""Noise of public histories, from a folder that a user names: residuals, resampled in blocks, with planted steps.

The folder holds a folder for each source (a project and the machine that measured it), and in it a file `<name>.txt`
for each series: one value for each commit, between blanks or lines. Histories of asv are published as such by their
projects (`graphs/…/<benchmark>.json`), as are the series that databases and browsers test their detectors on.
"""

import itertools
import math
import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks._series import SIZES, Values

VARIABLE = "NEARPEAK_NOISE_SERIES"
COMMITS = 200
HALF_WINDOWS = (12, 40)
"""Values on each side over which the median is the level that is taken out; a longer window leaves slower noise."""
CHOSEN_ON = frozenset({"mongodb", "mozilla", "photutils"})
"""Sources on which the constants of the detector were chosen: they score nothing."""
BLOCK_MEANS = (8, 20, 50)
"""Mean lengths of blocks of the stationary bootstrap; source: Politis and Romano 1994, JASA 89(428)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Noisy:
    """One resampled series."""

    source: str
    """Folder of its noise."""
    values: Values
    """One for each commit."""
    size_ratio: float
    """Planted step; 0 for none."""
    planted: tuple[int, ...]
    """Where it is."""


def folder() -> Path | None:
    """Return the folder that the environment names; none where it names none."""
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


def scoring(root: Path) -> tuple[str, ...]:
    """Return the sources that no constant was chosen on."""
    return tuple(sorted(one.name for one in root.iterdir() if one.is_dir() and one.name not in CHOSEN_ON))


def resampled(root: Path, sources: tuple[str, ...], repetitions: int) -> Iterator[Noisy]:
    """Yield series of the noise of `sources`: three without a step for each one of every size."""
    for source in sources:
        files = sorted((root / source).glob("*.txt"))
        for file, half, block_mean in itertools.product(files, HALF_WINDOWS, BLOCK_MEANS):
            noise = residuals(np.array(file.read_text(encoding="utf-8").split(), dtype=np.float64), half)
            for size in (0.0, *SIZES):
                for number in range(repetitions if size else 3 * repetitions):
                    text = f"{source} {file.stem} {size} {number} {half} {block_mean}"
                    rng = np.random.default_rng(zlib.crc32(text.encode()))
                    drawn = _blocks(noise, block_mean, rng)
                    place = int(rng.integers(round(0.3 * COMMITS), round(0.7 * COMMITS) + 1))
                    level = (np.arange(COMMITS) >= place) * math.log1p(size)
                    yield Noisy(
                        source=source, values=100 * np.exp(level + drawn), size_ratio=size,
                        planted=(place,) if size else (),
                    )  # fmt: skip


def residuals(values: Values, half: int) -> Values:
    """Return what a running median leaves of the logarithms.

    >>> bool(residuals(np.array([1.0] * 30 + [2.0] * 30), 12).any())
    False
    """
    x = np.log(values)
    near = (x[max(0, place - half) : place + half + 1] for place in range(x.size))
    return x - np.array([np.median(part) for part in near])


def _blocks(noise: Values, block_mean: int, rng: np.random.Generator) -> Values:
    """Return COMMITS values in blocks of geometric length, each from a random place on."""
    begins = rng.random(COMMITS) < 1 / block_mean
    begins[0] = True
    starts = rng.integers(noise.size, size=COMMITS)
    places = np.empty(COMMITS, dtype=np.int64)
    for i in range(COMMITS):
        places[i] = starts[i] if begins[i] else (places[i - 1] + 1) % noise.size
    return noise[places]
