"""Mixed precision as one HTML page that needs nothing else: whether it pays, why, every cast, and what ran."""

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from jinja2 import Environment
from markupsafe import Markup

from nearpeak.core.answers.mixed_precision import BASELINES, MixedPrecision, PrecisionVerdict
from nearpeak.core.traces.executed_precision import PrecisionGap
from nearpeak.reports import figure_text as words
from nearpeak.reports import precision_text as said
from nearpeak.reports.analysis.html import environment_of, stylesheet
from nearpeak.units import show

_FOLDER = Path(__file__).parent / "templates"
SHOWN_COUNT = 40
"""Operators and kinds of casts shown."""


class Priced(NamedTuple):
    """What is said of one device."""

    device: MixedPrecision
    eager: MixedPrecision
    verdict: PrecisionVerdict
    gap: PrecisionGap | None = None
    step_counts: tuple[int, int] = (1, 1)


def to_html(found: list[Priced], version: str) -> str:
    """Return the page; a section for each device."""
    style = stylesheet() + (_FOLDER / "precision.css").read_text("utf-8")
    page = _environment().get_template("page.html.j2")
    return page.render(found=found, first=found[0].device, style=Markup(style), version=version)


def cast_rows(device: MixedPrecision) -> Iterator[tuple[int, str, str, str, str, float]]:
    """Yield kinds of casts: count, of what, formats, operator they are for, and their time, longest first."""
    counts: Counter[tuple[str, str, str, str]] = Counter()
    times: dict[tuple[str, str, str, str], float] = {}
    for cast in device.casts:
        key = (cast.of, cast.before, cast.after, cast.consumer)
        counts[key] += 1
        times[key] = times.get(key, 0.0) + cast.time_s
    for key in sorted(times, key=lambda key: -times[key])[:SHOWN_COUNT]:
        yield counts[key], *key, times[key]


def bars(device: MixedPrecision) -> Iterator[tuple[str, float, float]]:
    """Yield name, time and part of the longest, of the step in each precision."""
    rows = [(said.BASELINES[name], device.baseline_s[name]) for name in BASELINES]
    rows += [(f"autocast to {device.format}", device.lowered_s)]
    rows += [("autocast, casts fused by a compiler", device.fused_s)]
    rows += [("converted as a whole", device.converted_s)] if device.converted_s is not None else []
    longest = max(time for _, time in rows)
    yield from ((name, time, time / longest) for name, time in rows)


@cache
def _environment() -> Environment:
    found = environment_of(_FOLDER)
    found.globals |= {"said": said, "words": words, "bars": bars, "cast_rows": cast_rows, "baselines": BASELINES}
    found.globals |= {"shown_count": SHOWN_COUNT}
    found.filters |= {"unit": show, "clean": words.clean}
    return found
