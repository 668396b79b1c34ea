"""A trace's report as one HTML page that needs nothing else, with a timeline that can be zoomed."""

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment
from markupsafe import Markup

from nearpeak.core.traces.finding_report import TraceReport
from nearpeak.reports import figure_text as words
from nearpeak.reports import trace_text as said
from nearpeak.reports.analysis.html import embedded, environment_of, hash_of, stylesheet
from nearpeak.units import show

_FOLDER = Path(__file__).parent / "templates"
COLOURS = {
    "gemm": "product", "conv": "convolution", "attention": "attention", "norm": "norm", "elementwise": "pointwise",
    "reduction": "reduction", "cast": "movement", "layout": "movement", "comm": "link", "optimizer": "optimizer",
    "copy": "dram", "set": "l2", "call": "matrix", "operator": "special", "range": "other", "unknown": "other",
    "other": "other",
}  # fmt: skip
"""Colour of the style sheet by what a slice is."""
SHOWN_COUNT = 40
"""Operators in the table."""


def to_html(report: TraceReport) -> str:
    """Return the page."""
    script = (_FOLDER / "timeline.js").read_text("utf-8")
    style = stylesheet() + (_FOLDER / "timeline.css").read_text("utf-8")
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            report=report, executed=report.executed, style=Markup(style), script=Markup(script),
            script_hash=hash_of(script),
            data=embedded(_data(report)), parts=list(said.parts(report.executed)),
            slowest=said.slowest(report.executed)[:SHOWN_COUNT],
            modules=list(said.modules(report.executed))[:SHOWN_COUNT], shortfall=list(said.shortfall(report)),
            kinds=sorted({one.kind for one in report.executed.slices}),
        )
    )  # fmt: skip


def _data(report: TraceReport) -> dict[str, Any]:
    """Return what the script draws, as columns; names and kinds once."""
    slices = report.executed.slices
    names = {name: place for place, name in enumerate(dict.fromkeys(one.name for one in slices))}
    kinds = {kind: place for place, kind in enumerate(dict.fromkeys(one.kind for one in slices))}
    return {
        "rows": [words.clean(row) for row in report.executed.rows],
        "names": [words.clean(name)[:160] for name in names],
        "kinds": list(kinds), "colours": [COLOURS.get(kind, "other") for kind in kinds],
        "row": [one.row for one in slices], "start": [one.start_ns for one in slices],
        "length": [one.end_ns - one.start_ns for one in slices], "name": [names[one.name] for one in slices],
        "kind": [kinds[one.kind] for one in slices], "window_ns": report.executed.window_ns,
    }  # fmt: skip


@cache
def _environment() -> Environment:
    found = environment_of(_FOLDER)
    found.globals |= {"said": said, "words": words, "colours": COLOURS}
    found.filters |= {"unit": show, "clean": words.clean}
    return found
