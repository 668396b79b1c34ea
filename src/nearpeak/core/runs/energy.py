"""Energy of a run from power readings or an energy counter, with error limits."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from nearpeak.core.runs.telemetry import Series, Telemetry
from nearpeak.errors import SpecError

FEW_COUNT = 10
"""Values of the sensor within a window below which its energy is only bounded."""
GAP_RATIO = 2.5
"""Times the usual interval beyond which two readings have a gap between them."""
ALIAS_RATIO = 0.01
"""Change of the mean power, when readings are left out, beyond which the sampling was too slow."""
DECIMATIONS = (2, 5, 10)
"""Every how many-th reading is kept to see whether that changes the mean."""
Point = tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """Energy of one domain in one window."""

    domain: str
    """Consumer."""
    source: str
    """Whose readings it is from."""
    channel: str
    """Channel."""
    method: str
    """`counter`: difference of a meter; `integral`: trapezoids under readings of power."""
    energy_j: float
    """Energy in the part of the window that readings cover."""
    parts_j: Mapping[str, float]
    """Error bounds by cause: `sampling`, `quantisation`, `window`, `lag`, `time`, `gain`."""
    covered_s: float
    """Time that readings cover."""
    window_s: float
    """Requested time span."""
    sample_count: int
    """Values of the sensor in the window; readings that only repeat the last value do not count."""
    event_count: Mapping[str, int] = field(default_factory=dict)
    """Counts of events: `gap`, `duplicate`, `out_of_order`, `failed`, `wrap`, `reset`."""
    unstated: tuple[str, ...] = ()
    """Causes of error that nobody states a size of, so that the bound leaves them out."""
    warnings: tuple[str, ...] = ()
    """Reasons for which the error bound may not hold."""

    @property
    def error_j(self) -> float:
        """Greatest error, of all causes together, if power changes no faster than it is sampled."""
        return math.fsum(self.parts_j.values())

    @property
    def low_j(self) -> float:
        """Least energy."""
        return self.energy_j - self.error_j

    @property
    def high_j(self) -> float:
        """Greatest energy."""
        return self.energy_j + self.error_j

    @property
    def few(self) -> bool:
        """Whether there are too few values to give the energy as more than a bound."""
        return self.sample_count < FEW_COUNT

    @property
    def mean_w(self) -> float:
        """Mean power over the covered time; NaN where nothing is covered."""
        return self.energy_j / self.covered_s if self.covered_s else math.nan


def energies_of(telemetry: Telemetry, phase: str = "") -> tuple[Energy, ...]:
    """Return the energy of each domain in a phase, by every channel that meters it: counters before integrals.

    Args:
        phase: name of a span of `telemetry`; the whole window where it is empty.
    """
    begin_s, end_s = telemetry.span_of(phase)
    energies = []
    for series in telemetry.series():
        if series.channel.unit in ("W", "J") and series.channel.domain and not series.channel.status:
            energy = energy_of(series, begin_s, end_s)
            if energy.covered_s:
                energies.append(energy)
    return tuple(sorted(energies, key=lambda energy: (energy.domain, energy.method, energy.error_j)))


def preferred(energies: Sequence[Energy]) -> tuple[Energy, ...]:
    """Return one energy for each domain: that of the least error, a counter's before another one as good.

    A counter that takes long to read is read seldom, and of a short phase it then says little.
    """
    best: dict[str, Energy] = {}
    for energy in sorted(energies, key=lambda energy: (energy.error_j, energy.method != "counter")):
        best.setdefault(energy.domain, energy)
    return tuple(best[name] for name in dict.fromkeys(energy.domain for energy in energies))


def energy_of(
    series: Series, begin_s: float, end_s: float, *, event_hz: float | None = None,
    slew_w_per_s: float | None = None,
) -> Energy:  # fmt: skip
    """Return the energy of the channel of `series` from `begin_s` to `end_s`.

    Powers are joined by straight lines, counters too, so that the energies of the parts of a window sum to that of
    the whole. Bounds: half of Σ|ΔP|Δt between readings if power is monotone there, or Σ L Δt²/4 if it changes by at
    most L; half a step of the readings times the time; half the averaging window, and one update period, times the
    range of the power; the power at both ends times half the time that a reading takes.

    Args:
        event_hz: how often per second the load repeats; a warning comes where that is too fast for the sampling.
        slew_w_per_s: fastest change of the power, where it is known.

    Raises:
        SpecError: the channel is neither power nor an energy counter, or the window ends before it begins.
    """
    unit, kind = series.channel.unit, series.channel.kind
    if unit not in ("W", "J") or (unit == "J") != (kind == "counter"):
        raise SpecError(f"energy: {series.channel.name} is a {kind} in {unit}; it takes power (W) or a counter (J)")
    if not end_s >= begin_s:
        raise SpecError(f"energy: the window ends at {end_s} s, before it begins at {begin_s} s")
    points, events = ordered(series)
    if unit == "J":
        return _counted(series, points, events, begin_s, end_s)
    energy = _integrated(series, points, events, (begin_s, end_s), slew_w_per_s)
    return replace(energy, warnings=energy.warnings + tuple(_aliasing(points, begin_s, end_s, event_hz)))


def ordered(series: Series) -> tuple[list[Point], dict[str, int]]:
    """Return the readings in order of time, failed and repeated stamps left out, and how many of each there were."""
    raw = list(zip(series.times_s, series.values, strict=True))
    known = [point for point in raw if not math.isnan(point[1])]
    latest, backwards = -math.inf, 0
    for time_s, _ in known:
        backwards += time_s < latest
        latest = max(latest, time_s)
    points = sorted(dict(known).items())
    events = {"failed": len(raw) - len(known), "out_of_order": backwards, "duplicate": len(known) - len(points)}
    usual_s = usual_interval_s(points)
    events["gap"] = sum(after - before > GAP_RATIO * usual_s for (before, _), (after, _) in pairwise(points))
    return points, {name: count for name, count in events.items() if count}


def usual_interval_s(points: Sequence[Point]) -> float:
    """Return the median time between two readings, infinite for fewer than two."""
    return statistics.median([b[0] - a[0] for a, b in pairwise(points)]) if len(points) > 1 else math.inf


def update_s(points: Sequence[Point]) -> float:
    """Return the median time between two changes of the value; 0 where it changes from reading to reading.

    >>> update_s([(t / 10, float(t // 5)) for t in range(30)])
    0.5
    >>> update_s([(1.5, 0.0), (3.5, 600.0), (20.0, 0.0), (24.0, 800.0)])  # nothing is repeated
    0.0
    """
    changes = [after[0] for before, after in pairwise(points) if after[1] != before[1]]
    if len(changes) < 3 or len(changes) == len(points) - 1:
        return 0.0
    apart_s = statistics.median([after - before for before, after in pairwise(changes)])
    return apart_s if apart_s > 1.5 * usual_interval_s(points) else 0.0


def _pieces(points: Sequence[Point], begin_s: float, end_s: float) -> Iterator[tuple[Point, Point, float, float]]:
    """Yield neighbouring readings with the part between them, in seconds from the first, that the window holds."""
    for before, after in pairwise(points):
        low, high = max(before[0], begin_s), min(after[0], end_s)
        if high > low:
            yield before, after, low - before[0], high - before[0]


def _integrated(
    series: Series, points: list[Point], events: dict[str, int], window: tuple[float, float],
    slew_w_per_s: float | None,
) -> Energy:  # fmt: skip
    channel, (begin_s, end_s) = series.channel, window
    sums: dict[str, list[float]] = {"line": [], "time": []}
    for (t0, p0), (t1, p1), low, high in _pieces(points, begin_s, end_s):
        middle = p0 + (p1 - p0) * (low + high) / 2 / (t1 - t0)
        for name, power_w in (("line", middle), ("time", 1.0)):
            sums[name].append(power_w * (high - low))
    covered_s = math.fsum(sums["time"])
    held_s = max(channel.update_s or 0.0, update_s(points))
    distinct = (
        [points[0], *(b for a, b in pairwise(points) if b[1] != a[1]), points[-1]] if update_s(points) else points
    )
    inside = [p for t, p in points if begin_s <= t <= end_s]
    range_w = max(inside) - min(inside) if inside else 0.0
    energy_j = math.fsum(sums["line"])
    parts = {
        "sampling": _sampling_j(distinct, begin_s, end_s, slew_w_per_s),
        "quantisation": (channel.resolution or 0.0) / 2 * covered_s,
        "window": (channel.window_s or 0.0) / 2 * range_w,
        "lag": held_s * range_w if held_s else 0.0,
        "time": _ends_j(series, begin_s, end_s),
        "gain": (channel.gain_ratio or 0.0) * abs(energy_j),
    }
    warnings = _warnings(channel.kind == "mean" and channel.window_s is not None, channel.window_s, end_s - begin_s)
    return _energy(
        series, "integral", energy_j, parts, covered_s, end_s - begin_s, events, warnings,
        count=sum(begin_s <= t <= end_s for t, _ in distinct),
    )  # fmt: skip


def _sampling_j(points: Sequence[Point], begin_s: float, end_s: float, slew_w_per_s: float | None) -> float:
    """Return the error limit of the area under the power curve between readings."""
    total = []
    for (t0, p0), (t1, p1), low, high in _pieces(points, begin_s, end_s):
        if slew_w_per_s is not None:
            total.append(slew_w_per_s * (t1 - t0) ** 2 / 4)
            continue
        under = (high * high - low * low) / 2 / (t1 - t0)  # share of the rise that lies below the line
        total.append(abs(p1 - p0) * max(under, high - low - under))
    return math.fsum(total)


def _ends_j(series: Series, begin_s: float, end_s: float) -> float:
    """Return the energy of half a reading's time at both ends: a reading's moment is no better known."""
    inside = [
        (doubt_s, abs(value))
        for time_s, doubt_s, value in zip(series.times_s, series.doubts_s, series.values, strict=True)
        if begin_s <= time_s <= end_s and not math.isnan(value)
    ]
    return inside[0][0] * inside[0][1] + inside[-1][0] * inside[-1][1] if inside else 0.0


def _counted(
    series: Series, points: list[Point], events: dict[str, int], begin_s: float, end_s: float
) -> Energy:  # fmt: skip
    channel = series.channel
    steps, counts = increments(points, channel.rollover)
    energies, times, edges = [], [], []
    for ((t0, _), (t1, _)), grown_j in zip(pairwise(points), steps, strict=True):
        held_in_s = min(end_s, t1) - max(begin_s, t0)
        if held_in_s <= 0 or grown_j is None:
            continue
        share = held_in_s / (t1 - t0)
        energies.append(share * grown_j)
        times.append(held_in_s)
        edges.append(max(share, 1 - share) * grown_j if share < 1 else 0.0)
    inside = [point for point in points if begin_s <= point[0] <= end_s]
    held_s = max(channel.update_s or 0.0, update_s(points))
    energy_j = math.fsum(energies)
    parts = {
        "sampling": math.fsum(edges), "quantisation": channel.resolution or 0.0,
        "lag": held_s * _peak_w(points, steps), "time": 0.0, "gain": (channel.gain_ratio or 0.0) * energy_j,
    }  # fmt: skip
    covered_s = math.fsum(times)
    mean_w = energy_j / covered_s if covered_s else 0.0
    doubts_s = [d for t, d in zip(series.times_s, series.doubts_s, strict=True) if begin_s <= t <= end_s]
    parts["time"] = mean_w * (doubts_s[0] + doubts_s[-1] if doubts_s else 0.0)
    longest_s, warnings = max((b[0] - a[0] for a, b in pairwise(points)), default=0.0), tuple[str, ...]()
    if channel.rollover is not None and 2 * mean_w * longest_s >= channel.rollover:
        warnings = (
            f"the counter may have wrapped unseen: {longest_s:.3g} s without a reading, it holds "
            f"{channel.rollover:.4g} J",
        )
    count = sum(b[1] != a[1] for a, b in pairwise(inside))
    return _energy(
        series, "counter", energy_j, parts, covered_s, end_s - begin_s, events | counts,
        warnings, count=count,
    )  # fmt: skip


def increments(points: Sequence[Point], rollover: float | None) -> tuple[list[float | None], dict[str, int]]:
    """Return a counter's growth between neighbours, none across a reset, and its numbers of wraps and resets.

    A counter that fell has wrapped where `rollover` is known and the growth is then less than half of it; else it was
    reset, and nothing is known of the time between.

    >>> increments([(0, 90.0), (1, 5.0), (2, 7.0)], 100.0)
    ([15.0, 2.0], {'wrap': 1})
    >>> increments([(0, 90.0), (1, 5.0), (2, 7.0)], None)
    ([None, 2.0], {'reset': 1})
    """
    steps: list[float | None] = []
    counts = {"wrap": 0, "reset": 0}
    for (_, before), (_, after) in pairwise(points):
        grown = after - before
        if grown < 0:
            wrapped = rollover is not None and grown + rollover < rollover / 2
            counts["wrap" if wrapped else "reset"] += 1
            steps.append(grown + (rollover or 0.0) if wrapped else None)
        else:
            steps.append(grown)
    return steps, {name: count for name, count in counts.items() if count}


def _peak_w(points: Sequence[Point], steps: Sequence[float | None]) -> float:
    """Return the greatest mean power between two changes of a counter."""
    rates, since_s = [], None
    for (_, after), grown in zip(pairwise(points), steps, strict=True):
        if grown is None:
            since_s = None
        elif grown:
            if since_s is not None:
                rates.append(grown / (after[0] - since_s))
            since_s = after[0]
    if rates:
        return max(rates)
    span_s = points[-1][0] - points[0][0] if len(points) > 1 else 0.0
    return math.fsum(filter(None, steps)) / span_s if span_s else 0.0


def _warnings(averaged: bool, window_s: float | None, asked_s: float) -> tuple[str, ...]:
    if averaged and window_s is not None and asked_s < window_s:
        return (f"the sensor's mean over {window_s:g} s is longer than the window of {asked_s:.3g} s",)
    return ()


def _aliasing(points: Sequence[Point], begin_s: float, end_s: float, event_hz: float | None) -> Iterator[str]:
    """Warn where power changes too fast for the sampling, as far as the samples or a known rate show it."""
    inside = [point for point in points if begin_s <= point[0] <= end_s]
    usual_s = usual_interval_s(inside)
    if event_hz is not None and event_hz > 1 / (2 * usual_s):
        yield f"aliasing: the load repeats {event_hz:g} times a second, the sampling is {1 / usual_s:.3g}"
    if len(inside) < 3 * DECIMATIONS[-1]:
        return
    for step in DECIMATIONS:
        fewer = inside[::step]
        ends = fewer[0][0], fewer[-1][0]
        whole, rest = (_mean_w([point for point in part if ends[0] <= point[0] <= ends[1]]) for part in (inside, fewer))
        if abs(rest - whole) > ALIAS_RATIO * abs(whole):
            yield f"aliasing: every {step}th reading gives {rest / whole - 1:+.1%} of mean power"
            return


def _mean_w(points: Sequence[Point]) -> float:
    area_j = math.fsum((p0 + p1) / 2 * (t1 - t0) for (t0, p0), (t1, p1) in pairwise(points))
    return area_j / (points[-1][0] - points[0][0])


def _energy(
    series: Series, method: str, energy_j: float, parts: Mapping[str, float], covered_s: float, window_s: float,
    events: Mapping[str, int], warnings: tuple[str, ...], *, count: int,
) -> Energy:  # fmt: skip
    channel = series.channel
    wanted = {"resolution": channel.resolution, "gain error": channel.gain_ratio, "update period": channel.update_s}
    if channel.kind == "mean":
        wanted["averaging window"] = channel.window_s
    if covered_s < 0.99 * window_s:
        warnings = (*warnings, f"readings cover {covered_s:.4g} s of {window_s:.4g} s")
    return Energy(
        domain=channel.domain or channel.name, source=series.source, channel=channel.name, method=method,
        energy_j=energy_j, parts_j=dict(parts), covered_s=covered_s, window_s=window_s, sample_count=count,
        event_count=dict(events), warnings=warnings,
        unstated=tuple(name for name, value in wanted.items() if value is None),
    )  # fmt: skip
