"""An analysis as one self-contained HTML page with style, script and data inside."""

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from nearpeak.core.answers.analysis import Analysis, TargetAnalysis
from nearpeak.core.answers.bound import ASSUMPTIONS
from nearpeak.core.answers.execution_time import MODES
from nearpeak.core.answers.size_grid import SizeGrid
from nearpeak.core.work.family import FAMILIES
from nearpeak.judgement.step_answer import every_proposal
from nearpeak.reports import bar_geometry as bars
from nearpeak.reports import expected_time_text as expected
from nearpeak.reports import figure_text as words
from nearpeak.reports import gap_charts as gaps
from nearpeak.reports import roofline_geometry as roofline
from nearpeak.reports.step_headline import batch_sentence, headline
from nearpeak.units import show

SHOWN_COUNT = 200
"""Rows of the table before one asks for all of them."""
FOLDER = Path(__file__).parents[1] / "templates"


def render(analysis: Analysis, grid: SizeGrid | None = None) -> str:
    """Return the page.

    Args:
        grid: answers at other sizes and in other formats, among which controls of the page choose.
    """
    style, script = stylesheet(), text_of("theme.js", "script.js")
    plot = roofline.plot_of(analysis)
    return (
        _environment()
        .get_template("page.html.j2")
        .render(
            analysis=analysis,
            grid=grid,
            plot=plot,
            used=used_assumptions(analysis),
            unplotted=tuple(sorted(set(range(len(analysis.rows))) - set(plot.rows))),
            used_limiters=used_limiters(analysis),
            shown_families={analysis.rows[number].family for number in plot.rows},
            policy=words.policy(analysis.policy),
            data=embedded({**page_data(analysis, plot), "grid": grid and _grid_data(grid)}),
            has_measured=any(_is_measured(target) for target in analysis.targets),
            style=Markup(style),
            script=Markup(script),
            script_hash=hash_of(script),
            shown_count=SHOWN_COUNT,
        )
    )


def stylesheet() -> str:
    """Return what the pages of reports share, colours included, as CSS."""
    return palette() + text_of("style.css")


def text_of(*names: str) -> str:
    """Return styles or scripts of pages, one after the other."""
    return "".join((FOLDER / name).read_text("utf-8") for name in names)


def palette() -> str:
    """Return the colours and typefaces of all pages, light and dark, as CSS."""
    return text_of("palette.css")


def used_assumptions(analysis: Analysis) -> Mapping[str, str]:
    """Return what the bounds of any target rest on, by identifier."""
    names = dict.fromkeys(name for target in analysis.targets for name in target.assumptions)
    return {name: ASSUMPTIONS.get(name, "") for name in names}


def used_limiters(analysis: Analysis) -> Mapping[str, str]:
    """Return what limits any case on any target, in words."""
    limiters = {time.limiter for target in analysis.targets for time in target.times}
    return {
        name: words.limiter(name)
        for name in (*words.LIMITERS, *sorted(limiters - set(words.LIMITERS)))
        if name in limiters
    }


def page_data(analysis: Analysis, plot: roofline.Plot) -> dict[str, Any]:
    """Return what the script needs, as columns: rows once, times by target."""
    limiters = sorted({time.limiter for target in analysis.targets for time in target.times})
    return {
        "complete": analysis.complete,
        "rate_exponents": [plot.y.exponents[0], plot.y.exponents[-1]],
        "area_px": roofline.AREA_PX,
        "smallest_px": roofline.SMALLEST_PX,
        "shown": SHOWN_COUNT,
        "limiters": limiters,
        "limiter_words": [words.limiter(name) for name in limiters],
        "plotted": plot.rows,
        "names": {
            number: words.clean(name)
            for number, (name, row) in enumerate(zip(roofline.names_of(analysis.rows), analysis.rows, strict=True))
            if name != row.label
        },
        "rows": [
            [
                words.clean(row.label),
                row.family,
                row.phase,
                words.clean(row.module),
                words.clean(row.source),
                row.call_count,
                words.flop_of(row),
                row.read_bytes + row.write_bytes,
            ]
            for row in analysis.rows
        ],
        "targets": [_target_data(target, limiters) for target in analysis.targets],
    }


def _target_data(target: TargetAnalysis, limiters: list[str]) -> dict[str, Any]:
    return {
        "title": words.clean(target.title),
        "unfused_s": target.unfused_s,
        "bound_s": [_rounded(time.bound_s) for time in target.times],
        "limiter": [limiters.index(time.limiter) for time in target.times],
        "expected_s": [time.prediction and _rounded(time.prediction.time_s) for time in target.times]
        if target.prediction
        else None,
        "measured_s": [time.measured_s and _rounded(time.measured_s) for time in target.times]
        if _is_measured(target)
        else None,
    }


def _grid_data(grid: SizeGrid) -> dict[str, Any]:
    """Return what the controls choose among: for each target a list of figures per size and format."""
    return {
        "noun": grid.noun, "batches": grid.batches, "lengths": grid.lengths, "formats": grid.formats,
        "own": grid.own,
        "answers": [
            [
                answer and [value if isinstance(value, bool) else value and _rounded(value) for value in answer]
                for answer in answers
            ]
            for answers in grid.answers
        ],
    }  # fmt: skip


def _rounded(value: float) -> float:
    """Return the value with the eight digits that are ample for a page that shows four."""
    return float(f"{value:.8g}")


def _is_measured(target: TargetAnalysis) -> bool:
    return any(time.measured_s for time in target.times)


def embedded(data: object) -> Markup:
    r"""Return `data` as JSON that cannot close its script element.

    >>> embedded({"name": "</script><!--"})
    Markup('{"name":"\\u003c/script\\u003e\\u003c!--"}')
    """
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


def breakable(text: str) -> Markup:
    """Return a path escaped, with places after its dots and slashes where the line may break.

    >>> breakable("a.b/<c>")
    Markup('a.<wbr>b/<wbr>&lt;c&gt;')
    """
    return Markup(re.sub(r"([./])", r"\1<wbr>", str(escape(words.clean(text)))))


def hash_of(script: str) -> str:
    """Return the hash by which the page's policy lets this script run and no other."""
    # Browsers hash the text as parsed; the template puts the script between the tags without a character more.
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def environment_of(folder: Path) -> Environment:
    """Return what renders the templates of a folder: everything escaped and clean, nothing undefined passed over."""
    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_safe,
    )


@cache
def _environment() -> Environment:
    environment = environment_of(FOLDER)
    environment.filters.update(
        unit=show,
        percent=words.percent,
        share=words.share,
        count=words.count,
        limiter=words.limiter,
        fits=words.fits,
        capacity=words.capacity,
        breakable=breakable,
    )
    environment.globals.update(
        words=words,
        expected=expected,
        headline=headline,
        batch_sentence=batch_sentence,
        proposals=every_proposal,
        modes=MODES,
        roofline=roofline,
        bars=bars,
        gaps=gaps,
        families=FAMILIES,
        limiters=words.LIMITERS,
        width=bars.width,
    )
    return environment


def _safe(value: object) -> object:
    """Take control characters out of every text that the page prints; Jinja escapes it afterwards."""
    return words.clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value
