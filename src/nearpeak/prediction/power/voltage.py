"""Dynamic power against clock frequency (voltage-frequency curve), for power and board limits."""

from functools import cache
from typing import Any

import numpy as np

from nearpeak.prediction.scalar_or_column import Between

AT_REST_RATIO, FLOOR_RATIO = 0.4, 0.65
"""Voltage towards clock 0 and its least, of that at the highest clock: assumptions, no table has them.

Power then falls by the 2.0th to 2.2nd power of the clock between 0.6 and 1. Published limits of boards say as much:
BERT on an A40 at 300 and 200 W by the 2.0th, ResNet-50 on a V100 at 250 and 150 W by the 2.2nd, on an A40 at 300 and
175 W, where memory bounds a part, by the 2.6th (energy_edge.md, power limits).
"""
_MOST_CLOCK = 2.0
"""Highest clock that the inverse knows, of a chip's highest."""
_GRID_COUNT = 1 + 2**11
"""Clocks between which power is taken to be straight: off by less than a millionth."""


def drawn_ratio(clock: Any) -> Any:
    """Return the power of units at a share of the highest clock, relative to that at the highest.

    >>> float(drawn_ratio(1.0)), round(float(drawn_ratio(0.5)), 3), round(float(drawn_ratio(0.1)), 3)
    (1.0, 0.245, 0.042)

    Source: dynamic power f V(f)^2 with V linear above a floor (prediction.md, power and clock).
    """
    voltage = np.maximum(FLOOR_RATIO, AT_REST_RATIO + (1 - AT_REST_RATIO) * clock)
    return clock * voltage**2


def clock_drawing(drawn: Any) -> Any:
    """Return the relative clock at which units draw the share `drawn` of their power at the highest clock, 2 at most.

    >>> round(float(clock_drawing(drawn_ratio(0.8))), 5)
    0.8
    """
    return _clocks().at(drawn)


@cache
def _clocks() -> Between:
    """Return the clocks at which units draw so much."""
    clocks = np.linspace(0.0, _MOST_CLOCK, _GRID_COUNT)
    return Between(drawn_ratio(clocks), clocks)
