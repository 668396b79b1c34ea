"""Geometry of bar charts: every bar starts at zero, and bars of one chart share one axis."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nearpeak.core.answers.analysis import Analysis, MemoryUse, Share, TargetAnalysis
from nearpeak.core.answers.execution_time import ExecutionTime
from nearpeak.core.answers.step_prediction import StepPrediction
from nearpeak.reports import figure_text as words
from nearpeak.reports.log_axis import Axis, axis_of, percent_of
from nearpeak.units import counted, show

TOP_COUNT = 12
"""Bars of one chart; the rest is added up in a last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A coloured part of a bar."""

    kind: str
    """Meaning of the segment: a limiter or a kind of memory."""
    width: str
    """Width in percent of the axis."""
    words: str
    """Meaning and size, as text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar with its texts."""

    name: str
    """Label of the bar."""
    value: str
    """Its length with unit."""
    note: str
    """A second figure next to it."""
    segments: tuple[Segment, ...]
    """Its parts, from zero."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Bars on one axis that starts at zero."""

    title: str
    """Meaning of its bars."""
    bars: tuple[Bar, ...]
    """The bars."""
    end: str
    """Value at the end of the axis."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """The times of all targets as marks on one logarithmic axis; marks, as a bar would need a zero."""

    axis: Axis
    """The axis, in seconds."""
    marks: tuple[tuple[str, str, str], ...]
    """Per target: places of the bound, of one kernel per operator and of the operators added up."""
    expected: tuple[tuple[str, str, str] | None, ...]
    """Per target: places of the expected time and of both ends of its interval; none where nothing is predicted."""


def strip_of(analysis: Analysis) -> Strip:
    """Return the times of all targets on one axis."""
    times = [(target.bound_s, target.chained_s, target.unfused_s) for target in analysis.targets]
    headline = [headline_time(analysis, target) for target in analysis.targets]
    expected = [
        None if expectation is None else (expectation.time_s, expectation.low_s, expectation.high_s)
        for expectation in headline
    ]
    axis = axis_of([time_s for three in (*times, *filter(None, expected)) for time_s in three], "s")

    def places(three: tuple[float, float, float]) -> tuple[str, str, str]:
        first, second, third = (percent_of(axis.at_ratio(time_s)) if time_s > 0 else "0%" for time_s in three)
        return first, second, third

    return Strip(
        axis=axis,
        marks=tuple(map(places, times)),
        expected=tuple(None if three is None else places(three) for three in expected),
    )


def headline_time(analysis: Analysis, target: TargetAnalysis) -> ExecutionTime | StepPrediction | None:
    """Return the expected time that the headline names: of its execution mode, or of the calls in sequence."""
    for execution in target.executions:
        if execution.mode == analysis.execution:
            return execution
    return target.prediction


def share_charts(analysis: Analysis, target: TargetAnalysis) -> tuple[Chart, ...]:
    """Return the parts of the step on `target`: by phase, by operator, by module."""
    parts = {"phase": target.by_phase, "operator": target.by_operator, "module": target.by_module}
    return tuple(_shares(f"By {kind}", shares, analysis) for kind, shares in parts.items())


def _shares(title: str, parts: Sequence[Share], analysis: Analysis) -> Chart:
    shown = [*parts[:TOP_COUNT], *_rest(parts[TOP_COUNT:])]
    axis_s = max((part.time_s for part in shown), default=0.0)
    bars = tuple(
        Bar(
            name=part.name or "(top level)",
            value=words.least(analysis, part.time_s, "s"),
            note=words.percent(part.share_ratio),
            segments=_limited(part.limiter_s, axis_s),
        )
        for part in shown
    )
    return Chart(title=title, bars=bars, end=show(axis_s, "s"))


def _rest(parts: Sequence[Share]) -> Sequence[Share]:
    """Return the parts added up as one, so that no time is missing from the chart."""
    if not parts:
        return ()
    limiter_s: dict[str, float] = {}
    for part in parts:
        for name, time_s in part.limiter_s.items():
            limiter_s[name] = limiter_s.get(name, 0.0) + time_s
    calls, time_s = sum(part.call_count for part in parts), sum(part.time_s for part in parts)
    share = sum(part.share_ratio for part in parts)
    return (
        Share(
            name=counted(len(parts), "other"), call_count=calls, time_s=time_s, share_ratio=share, limiter_s=limiter_s
        ),
    )


def _limited(limiter_s: Mapping[str, float], axis_s: float) -> tuple[Segment, ...]:
    order = [*words.LIMITERS, *sorted(set(limiter_s) - set(words.LIMITERS))]
    return tuple(
        Segment(
            kind=name,
            width=width(limiter_s[name], axis_s),
            words=f"{words.limiter(name)}: {show(limiter_s[name], 's')}",
        )
        for name in order
        if limiter_s.get(name, 0.0) > 0
    )


def width(value: float, axis: float) -> str:
    """Return the length of a bar in percent of its axis.

    >>> width(1.0, 8.0)
    '12.5%'
    """
    return f"{100 * value / axis:.4g}%" if axis else "0%"


def memory_parts(memory: MemoryUse) -> Mapping[str, tuple[str, int]]:
    """Return the kinds of memory that the step uses, with words and bytes."""
    parts = {
        "weight": ("weights", memory.weight_bytes),
        "gradient": ("gradients", memory.gradient_bytes),
        "state": ("optimizer state", memory.state_bytes),
        "kv_cache": ("KV cache", memory.kv_cache_bytes),
        "input": ("inputs", memory.input_bytes),
        "activation": ("activations at their peak", memory.activation_peak_bytes),
    }
    return {kind: (text, size) for kind, (text, size) in parts.items() if size}


def memory_axis_bytes(analysis: Analysis, memory: MemoryUse) -> int:
    """Return the end of the axis that holds the parts, the peak and every capacity."""
    capacities = [target.fit.capacity_bytes or 0 for target in analysis.targets]
    return max(memory.peak_bytes, sum(size for _, size in memory_parts(memory).values()), *capacities, 1)


def memory_segments(memory: MemoryUse, axis_bytes: int) -> tuple[Segment, ...]:
    """Return the parts of the memory as segments of one bar."""
    return tuple(
        Segment(kind=kind, width=width(size, axis_bytes), words=f"{text}: {show(size, 'B')}")
        for kind, (text, size) in memory_parts(memory).items()
    )
