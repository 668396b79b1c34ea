"""Logarithmic axes in whole powers of ten, with positions in percent so that text keeps its size."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nearpeak.units import show

SMALLEST_WRITTEN = -3
"""Power of ten below which ticks are written as powers."""
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
ROOM_DECADES = 0.1
"""Least distance of a value from the ends of its axis, in powers of ten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A logarithmic axis in whole powers of ten."""

    exponents: range
    """Powers of ten with a tick, first to last."""
    unit: str
    """Unit of its numbers."""

    def at_ratio(self, value: float) -> float:
        """Return where `value` lies, 0 at the start and 1 at the end of the axis.

        >>> Axis(exponents=range(-1, 4), unit="").at_ratio(10.0)
        0.5
        """
        return (math.log10(value) - self.exponents[0]) / (self.exponents[-1] - self.exponents[0])

    @property
    def ticks(self) -> tuple[tuple[str, str], ...]:
        """Text and place of each power of ten."""
        return tuple((self._tick(exponent), percent_of(self.at_ratio(10.0**exponent))) for exponent in self.exponents)

    def _tick(self, exponent: int) -> str:
        if self.unit:
            return show(10.0**exponent, self.unit)
        if exponent < SMALLEST_WRITTEN:
            return f"10{str(exponent).translate(_RAISED)}"
        return f"{10**exponent:,}" if exponent >= 0 else f"{10.0**exponent:g}"


def axis_of(values: Sequence[float], unit: str) -> Axis:
    """Return the axis that holds every value with some room; values that are not positive have no place on it."""
    places = [math.log10(value) for value in values if value > 0] or [0.0]
    low, high = math.floor(min(places) - ROOM_DECADES), math.ceil(max(places) + ROOM_DECADES)
    return Axis(exponents=range(low, high + 1), unit=unit)


def percent_of(ratio: float) -> str:
    """Return a ratio of a length as CSS and SVG write it.

    >>> percent_of(0.125)
    '12.50%'
    """
    return f"{100 * ratio:.2f}%"
