"""Drawing of a search: time of each configuration in the order of trials, the best so far, and where it could end."""

from collections.abc import Iterator
from html import escape
from math import inf

from nearpeak.core.tuning.space import settings_text
from nearpeak.core.tuning.study import FAILED, PRUNED, STOPPED, TIMED, WRONG, Study, Trial
from nearpeak.reports.brief_text import brief
from nearpeak.reports.log_axis import Axis, axis_of, percent_of
from nearpeak.units import show

_COLOURS = {
    TIMED: "var(--vector)",
    STOPPED: "var(--muted)",
    PRUNED: "var(--dram)",
    WRONG: "var(--bad)",
    FAILED: "var(--bad)",
}
"""Colours of the style sheet by outcome."""


def search_curve(study: Study) -> str:
    """Return the drawing as HTML; wrong and failed ones stand at the upper edge, excluded ones at their bound."""
    levels = [level for level in (study.achievable_s, study.achievable_low_s, study.bound_s) if level]
    times = [trial.time_s for trial in study.trials if trial.time_s]
    axis = axis_of([*times, *levels], "s")
    parts = []
    for exponent, (text, _) in zip(axis.exponents, axis.ticks, strict=True):
        y = percent_of(1 - axis.at_ratio(10.0**exponent))
        parts.append(f'<line x1="0" x2="100%" y1="{y}" y2="{y}"/>')
        parts.append(f'<text x="0" y="{y}" dx="-8" dy="4" text-anchor="end">{escape(text)}</text>')
    for name, level_s in (("achievable", study.achievable_s), ("bound", study.bound_s)):
        if level_s:
            y = percent_of(1 - axis.at_ratio(level_s))
            parts.append(f'<line x1="0" x2="100%" y1="{y}" y2="{y}" stroke-dasharray="6 4" class="level"/>')
            level = f"{name} {brief(level_s, 's')}"
            parts.append(f'<text x="100%" y="{y}" dy="-4" text-anchor="end">{level}</text>')
    parts += _best(study, axis)
    parts += [_dot(trial, len(study.trials), axis) for trial in study.trials]
    return (
        "<p>Each point is a configuration, in order of trials; the line is the best so far. Grey ones were stopped "
        "after few calls, red ones are wrong or failed.</p>"
        '<div class="scatter"><svg class="drawing" height="320" role="img" '
        f'aria-label="time of each configuration">{"".join(parts)}</svg></div>'
    )


def _dot(trial: Trial, count: int, axis: Axis) -> str:
    height_s = trial.bound_s if trial.outcome == PRUNED else trial.time_s
    y = percent_of(1 - axis.at_ratio(height_s)) if height_s else "0%"
    time = show(trial.time_s, "s") if trial.time_s else trial.outcome
    x, colour = percent_of(trial.position / (count + 1)), _COLOURS.get(trial.outcome, "")
    title = escape(f"{trial.position}: {settings_text(trial.settings)}: {time} {trial.note}")
    return f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"><title>{title}</title></circle>'


def _best(study: Study, axis: Axis) -> Iterator[str]:
    """Yield the steps of the best so far."""
    best_s, count = inf, len(study.trials)
    for trial in study.trials:
        x = percent_of(trial.position / (count + 1))
        if trial.score_s < best_s:
            y = percent_of(1 - axis.at_ratio(trial.score_s))
            if best_s < inf:
                above = percent_of(1 - axis.at_ratio(best_s))
                yield f'<line x1="{x}" x2="{x}" y1="{above}" y2="{y}" class="level"/>'
            best_s = trial.score_s
        if best_s < inf:
            y, after = percent_of(1 - axis.at_ratio(best_s)), percent_of((trial.position + 1) / (count + 1))
            yield f'<line x1="{x}" x2="{after}" y1="{y}" y2="{y}" class="level"/>'
