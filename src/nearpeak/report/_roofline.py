"""Geometry of the roofline plot, in percent of the plot's area, so that text keeps its size at every width."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from nearpeak.core.analysis import Analysis, CaseRow, CaseTime, TargetAnalysis
from nearpeak.report import _words as words
from nearpeak.units import show

AREA_PX = 44.0
"""Radius of a circle that stands for all of the time; areas are proportional to time."""
SMALLEST_PX = 2.5
"""Radius below which no circle is drawn, so that it can be seen and touched."""
_LARGE = 10**4


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A logarithmic axis from one power of ten to another."""

    low_exponent_count: int
    """Power of ten at the start."""
    high_exponent_count: int
    """Power of ten at the end."""
    unit: str
    """Unit of its numbers."""

    def at_ratio(self, value: float) -> float:
        """Return where `value` lies, 0 at the start and 1 at the end of the axis."""
        span = self.high_exponent_count - self.low_exponent_count
        return (math.log10(value) - self.low_exponent_count) / span

    @property
    def ticks(self) -> tuple[tuple[str, float], ...]:
        """Text and place in percent of each power of ten."""
        exponents = range(self.low_exponent_count, self.high_exponent_count + 1)
        return tuple((self._tick(exponent), 100 * self.at_ratio(10.0**exponent)) for exponent in exponents)

    def _tick(self, exponent: int) -> str:
        if self.unit:
            return show(10.0**exponent, self.unit)
        return f"{10**exponent:,}" if 0 <= exponent <= 4 else show(10.0**exponent, "") if exponent > 4 else f"{10.0**exponent:g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Circle:
    """One case on the plot."""

    row: int
    """Position of the case in the analysis."""
    across_percent_ratio: float
    """Percent of the width from the left."""
    down_percent_ratio: float
    """Percent of the height from the top."""
    radius_px_count: float
    """Radius in pixels."""
    rank: int
    """Place by total time when it is one of the first five, else 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """The two roofs of a target."""

    slope: tuple[str, str, str, str]
    """Ends of the memory roof: x, y, x, y in percent."""
    flat: tuple[str, str, str, str]
    """Ends of the roof of the matrix unit."""
    ridge: str
    """Arithmetic intensity of the ridge point, with its unit."""
    memory: str
    """Memory bandwidth, with its unit."""
    matrix: str
    """Rate and name of the matrix unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A roofline plot whose axes are the same for every target."""

    x: Axis
    """Arithmetic intensity."""
    y: Axis
    """Attainable rate."""
    plotted: tuple[int, ...]
    """Positions of the rows on the plot."""
    unplotted: tuple[int, ...]
    """Positions of the rows without FLOP, bytes or time, which have no place on it."""
    roofs: tuple[Roof, ...]
    """One per target."""


def plot_of(analysis: Analysis) -> Plot:
    """Return the plot of all rows, with axes that hold every point and roof of every target."""
    plotted = tuple(number for number in range(len(analysis.rows)) if _has_place(analysis, number))
    intensities = [intensity(analysis.rows[number]) for number in plotted]
    ridges = [_ridge(target) for target in analysis.targets]
    rates = [
        value
        for target in analysis.targets
        for value in (target.matrix_flop_per_s, *(_rate(analysis.rows[n], target.times[n]) for n in plotted))
    ]
    rates += [words.flop_of(analysis.rows[n]) / m for t in analysis.targets for n in plotted if (m := t.times[n].measured_s)]
    x, y = _axis([*intensities, *ridges], ""), _axis(rates, "FLOP/s")
    unplotted = tuple(sorted(set(range(len(analysis.rows))) - set(plotted)))
    roofs = tuple(_roof(target, x, y) for target in analysis.targets)
    return Plot(x=x, y=y, plotted=plotted, unplotted=unplotted, roofs=roofs)


def circles(analysis: Analysis, plot: Plot, target: TargetAnalysis) -> tuple[Circle, ...]:
    """Return a circle per plotted row, large ones first so that small ones lie on top."""
    totals = [target.times[number].bound_s * analysis.rows[number].call_count for number in plot.plotted]
    largest = sorted(zip(totals, plot.plotted, strict=True), key=lambda pair: (-pair[0], pair[1]))
    found = []
    for place, (total_s, number) in enumerate(largest, 1):
        row, time = analysis.rows[number], target.times[number]
        found.append(
            Circle(
                row=number,
                across_percent_ratio=100 * plot.x.at_ratio(intensity(row)),
                down_percent_ratio=100 * (1 - plot.y.at_ratio(_rate(row, time))),
                radius_px_count=max(SMALLEST_PX, AREA_PX * math.sqrt(total_s / target.unfused_s)),
                rank=place if place <= 5 else 0,
            )
        )
    return tuple(found)


def intensity(row: CaseRow) -> float:
    """Return the FLOP of a case per byte it reads or writes."""
    size = row.read_bytes + row.write_bytes
    return words.flop_of(row) / size if size else 0.0


def _has_place(analysis: Analysis, number: int) -> bool:
    return intensity(analysis.rows[number]) > 0 and all(target.times[number].bound_s > 0 for target in analysis.targets)


def _rate(row: CaseRow, time: CaseTime) -> float:
    return words.flop_of(row) / time.bound_s


def _ridge(target: TargetAnalysis) -> float:
    return target.matrix_flop_per_s / target.dram_bytes_per_s


def _axis(values: Sequence[float], unit: str) -> Axis:
    """Return the axis in whole powers of ten, with room around every value."""
    low = math.floor(math.log10(min(values, default=1.0)) - 0.1)
    high = math.ceil(math.log10(max(values, default=1.0)) + 0.1)
    return Axis(low_exponent_count=low, high_exponent_count=high, unit=unit)


def _roof(target: TargetAnalysis, x: Axis, y: Axis) -> Roof:
    start = max(10.0**x.low_exponent_count, 10.0**y.low_exponent_count / target.dram_bytes_per_s)
    top, ridge = target.matrix_flop_per_s, _ridge(target)
    end = (_percent(x.at_ratio(ridge)), _percent(1 - y.at_ratio(top)))
    return Roof(
        slope=(_percent(x.at_ratio(start)), _percent(1 - y.at_ratio(start * target.dram_bytes_per_s)), *end),
        flat=(*end, "100%", end[1]),
        ridge=show(ridge, "FLOP/B"),
        memory=show(target.dram_bytes_per_s, "B/s"),
        matrix=f"{show(top, 'FLOP/s')} {words.clean(target.matrix_unit)}",
    )


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.2f}%"


def texts(values: Iterable[int]) -> str:
    """Return positions as text for a data attribute."""
    return " ".join(str(value) for value in values)
