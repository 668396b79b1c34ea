"""History charts: data for the script, a static drawing for pages without it, and downsampling to screen width."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nearpeak.core.history.track import TrackPoint
from nearpeak.reports.figure_text import clean
from nearpeak.store.rows.finding_values import StoredChange
from nearpeak.web.cell_text import date

MOST_POINTS, MOST_SMALL = 2000, 120
"""Points of a chart, and of a small one; beyond, each piece keeps its smallest and largest, so that spikes survive."""
MOST_SUBJECT = 72
"""Characters of a commit's subject beside its point."""
WIDTH, HEIGHT = 300, 64
"""Size of the drawing without script."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A change of the level in a chart."""

    index: int
    """Point at which the new level begins."""
    is_worse: bool
    """Whether the new level is the worse one."""
    is_sure: bool
    """Whether it is confirmed."""
    text: str
    """Its size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A history, ready to be drawn."""

    name: str
    """Name within its page."""
    caption: str
    """Caption."""
    unit: str
    """Unit of its values."""
    points: tuple[TrackPoint, ...]
    """Its points, as many as are drawn."""
    ends: tuple[tuple[float, float], ...]
    """Ends of the interval of each."""
    marks: tuple[Mark, ...] = ()
    """Changes of the level."""
    lines: tuple[tuple[str, float], ...] = ()
    """Reference levels: speed of light, predicted time."""
    is_small: bool = False
    """Whether it is one of a grid of charts."""
    commits: tuple[tuple[str, str], ...] = ()
    """Day and subject of the commit of each point, empty texts where unknown; none in small charts."""

    @property
    def data(self) -> dict[str, Any]:
        """Data for the script that draws the chart."""
        return {
            "unit": self.unit, "caption": clean(self.caption), "y": [_digits(point.value) for point in self.points],
            "lo": [_digits(low) for low, _ in self.ends], "hi": [_digits(high) for _, high in self.ends],
            "sha": [point.sha[:10] for point in self.points], "run": [point.run_id for point in self.points],
            "marks": [[point.index, int(point.is_worse), int(point.is_sure), point.text] for point in self.marks],
            "lines": [[name, _digits(value)] for name, value in self.lines],
            "day": [day for day, _ in self.commits], "subject": [clean(subject) for _, subject in self.commits],
        }  # fmt: skip

    @property
    def path(self) -> str:
        """The line as an SVG path of WIDTH × HEIGHT."""
        values = [point.value for point in self.points]
        if not values:
            return ""
        low, high = min(values), max(values)
        step, span = WIDTH / max(1, len(values) - 1), (high - low) or 1.0
        places = (
            f"{index * step:.1f} {4 + (HEIGHT - 8) * (high - value) / span:.1f}" for index, value in enumerate(values)
        )
        return "M" + "L".join(places)


def chart_of(
    name: str, caption: str, unit: str, points: Sequence[TrackPoint], intervals: Sequence[tuple[float, float]], *,
    marks: Sequence[Mark] = (), lines: Sequence[tuple[str, float]] = (), is_small: bool = False,
    commits: Mapping[str, tuple[int | None, str]] | None = None,
) -> Chart:  # fmt: skip
    """Return a history as a chart of at most MOST_POINTS points, or MOST_SMALL.

    Args:
        commits: time (ns since 1970) and subject by commit.
    """
    most = MOST_SMALL if is_small else MOST_POINTS
    indices = kept_points([item.value for item in points], [item.index for item in marks], most)
    place = {index: new for new, index in enumerate(indices)}
    return Chart(
        name=name, caption=caption, unit=unit, points=tuple(points[index] for index in indices),
        ends=tuple(intervals[index] for index in indices),
        marks=tuple(Mark(index=place[item.index], is_worse=item.is_worse, is_sure=item.is_sure, text=item.text)
                    for item in marks),
        lines=tuple(lines), is_small=is_small,
        commits=() if commits is None else tuple(
            (date(at_ns)[:10] if at_ns else "", subject[:MOST_SUBJECT])
            for at_ns, subject in (commits.get(points[index].sha, (None, "")) for index in indices)
        ),
    )  # fmt: skip


def kept_points(values: Sequence[float], always: Sequence[int] = (), most: int = MOST_POINTS) -> list[int]:
    """Return the places of the values that are drawn: all, or the smallest and the largest of each piece.

    >>> kept_points([1.0, 9.0, 2.0, 3.0, 0.0, 3.0, 3.0, 3.0], most=4)
    [0, 1, 4, 5]
    """
    count = len(values)
    if count <= most:
        return list(range(count))
    pieces, indices = max(1, most // 2), set(always)
    for number in range(pieces):
        piece = range(number * count // pieces, (number + 1) * count // pieces)
        indices |= {min(piece, key=values.__getitem__), max(piece, key=values.__getitem__)}
    return sorted(indices)


def marks_of(changes: Sequence[StoredChange], points: Sequence[TrackPoint], direction: str) -> tuple[Mark, ...]:
    """Return stored change points as marks; those whose run is no longer there are left out."""
    from math import exp

    from nearpeak.reports.history.tracks import percent

    places = {item.order_key: index for index, item in enumerate(points)} | {
        item.sha: index for index, item in enumerate(points) if item.sha
    }
    marks = []
    for item in changes:
        index = places.get(item.rev_hi, places.get(item.order_key))
        if index is not None:
            worse = (item.effect_ratio > 0) == (direction == "lower")
            text = percent(exp(item.effect_ratio))
            marks.append(Mark(index=index, is_worse=worse, is_sure=item.tier == "confirmed", text=text))
    return tuple(marks)


def _digits(value: float) -> float:
    """Return a value with as many digits as a screen shows."""
    return float(f"{value:.6g}")
