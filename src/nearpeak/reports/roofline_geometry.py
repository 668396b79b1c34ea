"""Geometry of the roofline plot, in percent of the plot area so that text keeps its size at every width."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from nearpeak.core.answers.analysis import Analysis, CaseRow, CaseTime, TargetAnalysis
from nearpeak.reports import figure_text as words
from nearpeak.reports.log_axis import Axis, axis_of, percent_of
from nearpeak.units import show

AREA_PX = 44.0
"""Radius of the circle of a case that takes all of the time; areas are proportional to time."""
SMALLEST_PX = 2.5
"""Radius below which no circle is drawn, so that it can be seen and touched."""
LEAST_INTENSITY = 0.001
"""FLOP per byte below which a case only moves data and would stretch the axis over empty decades."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circle:
    """One case on the plot."""

    key: str
    """Position of the case among the rows of the analysis."""
    row: CaseRow
    """The case."""
    across: str
    """Place from the left, in percent of the width."""
    down: str
    """Place from the top, in percent of the height."""
    radius: str
    """Radius in pixels."""
    rank: str
    """Place by total time when it is one of the first five."""
    words: str
    """Label, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """The two roofs of a target."""

    slope: tuple[str, str, str, str]
    """Ends of the memory roof: x, y, x, y in percent."""
    middle: tuple[str, str]
    """Middle of the memory roof, the position of its label."""
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
    rows: tuple[int, ...]
    """Positions of the rows on the plot; one with hardly any FLOP, or no time, has no place on it."""
    roofs: tuple[Roof, ...]
    """One per target."""


def plot_of(analysis: Analysis) -> Plot:
    """Return the plot of all rows, with axes that hold every point and roof of every target."""
    rows = tuple(
        number
        for number, row in enumerate(analysis.rows)
        if intensity(row) >= LEAST_INTENSITY and all(target.times[number].bound_s > 0 for target in analysis.targets)
    )
    rates = [target.matrix_flop_per_s for target in analysis.targets]
    for target in analysis.targets:
        for number in rows:
            time = target.times[number]
            rates += [
                words.flop_of(analysis.rows[number]) / used_s for used_s in (time.bound_s, time.measured_s) if used_s
            ]
    x = axis_of([*(intensity(analysis.rows[number]) for number in rows), *map(_ridge, analysis.targets)], "")
    y = axis_of(rates, "FLOP/s")
    return Plot(x=x, y=y, rows=rows, roofs=tuple(_roof(target, x, y) for target in analysis.targets))


def circles(analysis: Analysis, plot: Plot, target: TargetAnalysis) -> tuple[Circle, ...]:
    """Return a circle per plotted row, large ones first so that small ones lie on top."""
    totals = {number: target.times[number].bound_s * analysis.rows[number].call_count for number in plot.rows}
    ordered, names = sorted(plot.rows, key=lambda number: (-totals[number], number)), names_of(analysis.rows)
    return tuple(
        _circle(
            plot,
            number,
            analysis.rows[number],
            target.times[number],
            totals[number] / target.unfused_s,
            place,
            names[number],
        )
        for place, number in enumerate(ordered, 1)
    )


def _circle(plot: Plot, number: int, row: CaseRow, time: CaseTime, share_ratio: float, place: int, name: str) -> Circle:
    rate = words.flop_of(row) / time.bound_s
    figures = f"{words.figure(intensity(row))} FLOP/B, {show(rate, 'FLOP/s')}, {words.percent(share_ratio)} of the time"
    return Circle(
        key=str(number),
        row=row,
        across=percent_of(plot.x.at_ratio(intensity(row))),
        down=percent_of(1 - plot.y.at_ratio(rate)),
        radius=f"{max(SMALLEST_PX, AREA_PX * math.sqrt(share_ratio)):.1f}",
        rank=str(place) if place <= 5 else "",
        words=f"{name}: {figures}",
    )


def names_of(rows: Sequence[CaseRow]) -> tuple[str, ...]:
    """Return a name for each row: its label, with phase and module where others have the same one."""
    counts = Counter(row.label for row in rows)
    return tuple(
        f"{row.label} ({', '.join(filter(None, (row.phase, row.module)))})" if counts[row.label] > 1 else row.label
        for row in rows
    )


def intensity(row: CaseRow) -> float:
    """Return the FLOP of a case per byte it reads or writes."""
    size = row.read_bytes + row.write_bytes
    return words.flop_of(row) / size if size else 0.0


def _ridge(target: TargetAnalysis) -> float:
    return target.matrix_flop_per_s / target.dram_bytes_per_s


def _roof(target: TargetAnalysis, x: Axis, y: Axis) -> Roof:
    start = max(10.0 ** x.exponents[0], 10.0 ** y.exponents[0] / target.dram_bytes_per_s)
    top, ridge = target.matrix_flop_per_s, _ridge(target)
    end = (percent_of(x.at_ratio(ridge)), percent_of(1 - y.at_ratio(top)))
    middle = math.sqrt(start * ridge)
    return Roof(
        slope=(percent_of(x.at_ratio(start)), percent_of(1 - y.at_ratio(start * target.dram_bytes_per_s)), *end),
        middle=(percent_of(x.at_ratio(middle)), percent_of(1 - y.at_ratio(middle * target.dram_bytes_per_s))),
        flat=(*end, "100%", end[1]),
        ridge=f"{words.figure(ridge)} FLOP/B",
        memory=show(target.dram_bytes_per_s, "B/s"),
        matrix=f"{show(top, 'FLOP/s')} {words.clean(target.matrix_unit)}",
    )
