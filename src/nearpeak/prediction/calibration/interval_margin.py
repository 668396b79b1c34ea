"""Intervals of operators that scalars were not measured on: wider, up to a limit."""

from collections.abc import Callable
from dataclasses import replace

from nearpeak.core.answers.prediction import Calibration

WIDEST = 32.0
"""Most that an interval reaches either way: what is predicted without any measurement may be that far off, an
assumption; further ends would say nothing more."""
LEAST_SIDE = 0.5
"""How far the nearer end is at least of the farther one, in logarithms, where the device has no data: an assumption."""


def widened_by(found: Calibration, power: Callable[[str], float]) -> Calibration:
    """Return scalars with the interval of an operator that they were not measured on, WIDEST at most.

    Args:
        power: by what the logarithms of the ends of a cell grow.
    """
    is_narrow = max(found.high_ratio.values()) <= WIDEST and min(found.low_ratio.values()) >= 1 / WIDEST
    if is_narrow and all(power(name) == 1.0 for name in found.low_ratio):
        return found
    low = {name: max(ratio ** power(name), 1 / WIDEST) for name, ratio in found.low_ratio.items()}
    high = {name: min(ratio ** power(name), WIDEST) for name, ratio in found.high_ratio.items()}
    return replace(found, low_ratio=low, high_ratio=high)


def both_ways(found: Calibration) -> Calibration:
    """Return scalars for a device without data, whose intervals reach far to both sides.

    Devices that were measured may all be off to one side; which way another one is off they do not tell.
    """
    low, high = dict(found.low_ratio), dict(found.high_ratio)
    for name, ratio in found.low_ratio.items():
        reach = max(ratio, 1 / ratio, high[name]) ** LEAST_SIDE
        low[name], high[name] = min(ratio, 1 / reach), max(high[name], reach)
    return replace(found, low_ratio=low, high_ratio=high)
