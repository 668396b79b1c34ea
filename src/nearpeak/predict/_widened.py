"""Intervals of operators that scalars were not measured on: wider, up to a limit."""

from collections.abc import Callable
from dataclasses import replace

from nearpeak.core.prediction import Calibration

WIDEST = 32.0
"""Most that an interval reaches either way: what is predicted without any measurement may be that far off, an
assumption; further ends would say nothing more."""


def widened_by(found: Calibration, power: Callable[[str], float]) -> Calibration:
    """Return scalars with the interval of an operator that they were not measured on, WIDEST at most.

    Args:
        power: by what the logarithms of the ends of a cell grow.
    """
    if all(power(name) == 1.0 for name in found.low_ratio) and _is_narrow(found):
        return found
    low = {name: max(ratio ** power(name), 1 / WIDEST) for name, ratio in found.low_ratio.items()}
    high = {name: min(ratio ** power(name), WIDEST) for name, ratio in found.high_ratio.items()}
    return replace(found, low_ratio=low, high_ratio=high)


def _is_narrow(found: Calibration) -> bool:
    return max(found.high_ratio.values()) <= WIDEST and min(found.low_ratio.values()) >= 1 / WIDEST
