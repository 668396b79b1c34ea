"""How far measurements of one source are from scalars fitted to another's: other software, other ways of timing."""

import math
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from nearpeak.core.prediction import Calibration

FILE = Path(__file__).parent / "coefficients/spread.toml"
ELSEWHERE = "elsewhere"
"""Name of measurements by nobody whose measurements are known, such as a user's own."""
OTHER_FORMAT = "other_format_"
"""Begin of the names, by form, of measurements of another format than the one behind the scalars."""


def seen_elsewhere(found: Calibration, measured_by: str) -> Calibration:
    """Return scalars with the interval of measurements by another than the one they were fitted to.

    Both deviate independently: ends, as logarithms, add in squares. The spread was measured over all sources; that of
    a source that took part is the one of the others, so that nobody's rows set the interval that they are judged by.

    Args:
        measured_by: a source of `spread.toml`, or anything else for one that is not there.
    """
    pairs = zip(found.apart_ratio, spread_of(measured_by), strict=True)
    faster, slower = (math.exp(math.hypot(math.log(known), more)) for known, more in pairs)
    return replace(found, apart_ratio=(faster, slower))


def spread_of(measured_by: str = ELSEWHERE) -> tuple[float, float]:
    """Return by how much, in logarithms, measurements may be faster and slower for being somebody else's.

    >>> all(0.1 < end < 1.0 for end in spread_of())
    True
    """
    known = _spreads()
    found = known.get(measured_by, known[ELSEWHERE])
    return found["faster"], found["slower"]


@lru_cache
def _spreads() -> Mapping[str, Mapping[str, float]]:
    found: Mapping[str, Mapping[str, float]] = tomllib.loads(FILE.read_text(encoding="utf-8"))["spread"]
    return found
