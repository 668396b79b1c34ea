"""Devices that do not exist beside the one that does: Pareto plots and a tornado plot, as text and as a page."""

from collections.abc import Iterator, Sequence
from html import escape

from nearpeak.core.answers.what_if import Sensitivity, WhatIf
from nearpeak.reports.figure_text import hung
from nearpeak.reports.svg_page import COLOURS, page, table
from nearpeak.units import show

_BAR = 10
"""Characters of the longest bar of a tornado in a terminal."""
_SHOWN = 40
"""Rows of a sweep that a terminal and a page's table show."""
ASSUMED = "area by assumed shares of the die; energy with a limit that grows with the area"


def sweep_text(title: str, found: Sequence[WhatIf]) -> str:
    """Return a table of devices, those marked that nothing beats in time, energy and area."""
    best = [one for one in found if one.is_best]
    shown = list(found) if len(found) <= _SHOWN else best
    lines = [title]
    for one in shown:
        mark, edits = "*" if one.is_best else " ", ", ".join(one.edits)
        lines += (
            [f"{mark} {edits:30} {_figures(one)}"]
            if len(edits) <= 30
            else [f"{mark} {edits}", f"{'':33}{_figures(one)}"]
        )
    if len(shown) < len(found):
        lines.append(f"  … and {len(found) - len(shown)} devices that others beat; --json has them all")
    lines.append(f"* {len(best)} of {len(found)}: who is better in time, energy or area is worse in another of them")
    return "\n".join(hung([*lines, *(f"  {text}" for text in _left_out(found)), f"  {ASSUMED}"]))


def _left_out(found: Sequence[WhatIf]) -> list[str]:
    """Return what says how many calls are in no figure; nothing where all are in them."""
    counts = {one.unmodelled_count for one in found} - {0}
    if not counts:
        return []
    shown = f"{min(counts):,}" if len(counts) == 1 else f"up to {max(counts):,}"
    return [f"not in it: {shown} calls of the step that are not modelled; 'nearpeak simulate' says why"]


def _both(found: Sequence[Sensitivity]) -> list[WhatIf]:
    return [each for one in found for each in (one.less, one.more)]


def _figures(one: WhatIf) -> str:
    energy = "" if one.energy_ratio is None else f"  energy {one.energy_ratio:5.2f}"
    return f"{show(one.time_s, 's'):>10} {100 * (one.time_ratio - 1):+6.1f} %  area {one.area_ratio:5.2f}{energy}"


def tornado_text(title: str, found: Sequence[Sensitivity]) -> str:
    """Return a tornado plot as text: what less of each figure costs, to the right, and what more of it saves, left."""
    widest = max((_reach(one) for one in found), default=0.0) or 1.0
    lines = [title, f"  {'figure':20} {'more':>{_BAR}}|{'less':{_BAR}} time"]
    for one in found:
        saved = round(_BAR * max(-_change(one.more), 0.0) / widest)
        lost = round(_BAR * max(_change(one.less), 0.0) / widest)
        lines.append(
            f"  {one.name:20} {'█' * saved:>{_BAR}}|{'█' * lost:{_BAR}} "
            f"{100 * _change(one.more):+5.1f} % … {100 * _change(one.less):+5.1f} %, area +{_area(one):.1f} %"
        )
    bought = max(found, key=lambda one: one.gain_ratio())
    if bought.gain_ratio() > 0:
        lines.append(f"  {bought.name} buys most: {bought.more.edits[0]} saves {100 * bought.gain_ratio():.1f} %")
    lines += [f"  {text}" for text in _left_out(_both(found))]
    return "\n".join(hung([*lines, f"  each figure times and divided by the same factor; {ASSUMED}"]))


def _change(one: WhatIf) -> float:
    return round(one.time_ratio - 1, 6) + 0.0


def _energy(one: WhatIf) -> str:
    return "–" if one.energy_ratio is None else f"{100 * (one.energy_ratio - 1):+.1f} %"


def _area(one: Sensitivity) -> float:
    return 100 * (one.more.area_ratio - 1)


def _reach(one: Sensitivity) -> float:
    return max(abs(_change(one.less)), abs(_change(one.more)))


def sweep_html(title: str, found: Sequence[WhatIf]) -> str:
    """Return a page with Pareto plots of time against area and against energy, and the table of what is best."""
    body = [_scatter("time and area", [(one.area_ratio, one) for one in found], "area, of the device as it is")]
    if all(one.energy_ratio is not None for one in found):
        pairs = [(one.energy_ratio or 0.0, one) for one in found]
        body.append(_scatter("time and energy", pairs, "energy, of the device as it is"))
    best = [one for one in found if one.is_best]
    rows = [
        (", ".join(one.edits), show(one.time_s, "s"), f"{100 * (one.time_ratio - 1):+.1f} %", f"{one.area_ratio:.2f}",
         "–" if one.energy_ratio is None else f"{one.energy_ratio:.2f}")
        for one in best[:_SHOWN]
    ]  # fmt: skip
    head = ("device that no other beats", "time", "change", "area", "energy")
    return page(title, "\n".join([*body, f"<h2>Not beaten: {len(best)} of {len(found)}</h2>", table(head, rows),
                                  _note(_left_out(found))]))  # fmt: skip


def _scatter(name: str, pairs: Sequence[tuple[float, WhatIf]], across: str) -> str:
    """Return a plot of time, downwards better, against something that costs, leftwards better."""
    (left, right), (low, high) = _range([x for x, _ in pairs]), _range([one.time_ratio for _, one in pairs])
    dots = []
    for x, one in sorted(pairs, key=lambda pair: pair[1].is_best):
        title = escape(f"{', '.join(one.edits)}: {show(one.time_s, 's')}")
        look = f'r="5" fill="{COLOURS[1]}"' if one.is_best else f'r="3" fill="{COLOURS[-1]}" fill-opacity=".55"'
        dots.append(
            f'<circle cx="{100 * (x - left) / (right - left):.2f}%" '
            f'cy="{100 * (high - one.time_ratio) / (high - low):.2f}%" {look}><title>{title}</title></circle>'
        )
    return (
        f"<h2>{escape(name.capitalize())}</h2><p>Each point is a device; those in colour are beaten by none in time, "
        f'energy and area. Time, of the device as it is, upwards; {escape(across)}, to the right.</p><div class="plot">'
        f'<svg style="height:360px" role="img" aria-label="{escape(name)}">{"".join(_ticks(left, right, low, high))}'
        f"{''.join(dots)}</svg></div>"
    )


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of an axis with some room."""
    low, high = min(*values, 1.0), max(*values, 1.0)
    room = 0.06 * (high - low) or 0.05
    return low - room, high + room


def _ticks(left: float, right: float, low: float, high: float) -> Iterator[str]:
    """Yield lines and numbers of both axes."""
    for place in range(5):
        share = place / 4
        x, y = left + share * (right - left), high - share * (high - low)
        yield f'<line x1="{100 * share}%" x2="{100 * share}%" y1="0" y2="100%"/>'
        yield f'<line x1="0" x2="100%" y1="{100 * share}%" y2="{100 * share}%"/>'
        anchor = "start" if place == 0 else "end" if place == 4 else "middle"
        yield f'<text x="{100 * share}%" y="100%" dy="18" text-anchor="{anchor}">{x:.2f}</text>'
        yield f'<text x="0" y="{100 * share}%" dx="-8" dy="4" text-anchor="end">{y:.2f}</text>'


def tornado_html(title: str, found: Sequence[Sensitivity]) -> str:
    """Return a page with the tornado plot of a step."""
    widest = max((_reach(one) for one in found), default=0.0) or 1.0
    row, bars = 46, []
    for place, one in enumerate(found):
        y = 26 + row * place
        text = f"{one.name}: {100 * _change(one.more):+.1f} % … {100 * _change(one.less):+.1f} %"
        bars.append(f'<text x="50%" y="{y - 6}" text-anchor="middle">{escape(text)}</text>')
        for each, colour in ((one.more, COLOURS[2]), (one.less, COLOURS[4])):
            wide = 46 * abs(_change(each)) / widest
            x = 50 - wide if _change(each) < 0 else 50
            bars.append(
                f'<rect x="{x:.2f}%" y="{y}" width="{wide:.2f}%" height="16" fill="{colour}">'
                f"<title>{escape(each.edits[0])}: {show(each.time_s, 's')}</title></rect>"
            )
    height = 26 + row * len(found)
    rows = [
        (one.name, one.more.edits[0].partition("=")[2].strip('"'), f"{100 * _change(one.more):+.1f} %",
         f"{_area(one):+.1f} %", _energy(one.more))
        for one in sorted(found, key=lambda one: -one.gain_ratio())
    ]  # fmt: skip
    return page(
        title,
        "<h2>Which figure buys most</h2><p>Change of the step's time with more (green) and less (red) of each figure "
        f'alone; left is faster.</p><svg style="height:{height}px" role="img" aria-label="tornado plot">'
        f'<line x1="50%" x2="50%" y1="0" y2="100%"/>{"".join(bars)}</svg><h2>More of it</h2>'
        + table(("figure", "to", "time", "area", "energy"), rows) + _note(_left_out(_both(found))),
    )  # fmt: skip


def _note(left_out: Sequence[str]) -> str:
    return "".join(f'<p class="note">{escape(text)}.</p>' for text in (*left_out, ASSUMED))
