"""Report of hypothetical devices against the real one: Pareto plots and a tornado plot."""

from collections.abc import Iterator, Sequence
from functools import partial
from html import escape

from nearpeak.core.answers.what_if import Sensitivity, WhatIf
from nearpeak.reports.document import Block, Cell, Document, Drawing, Heading, Table, Text, columns
from nearpeak.reports.document.html import COLOURS
from nearpeak.units import show, signed_percent

_SHOWN = 40
"""Devices of a sweep that a table shows."""
ASSUMED = "area by assumed shares of the die; energy with a limit that grows with the area"


def sweep_document(title: str, variants: Sequence[WhatIf]) -> Document:
    """Return devices with time, area and energy, those marked that nothing beats in all three."""
    pairs = [(variant.area_ratio, variant) for variant in variants]
    drawings = [Drawing("Time and area", partial(_scatter, pairs, "area, of the device as it is"))]
    if all(variant.energy_ratio is not None for variant in variants):
        pairs = [(variant.energy_ratio or 0.0, variant) for variant in variants]
        drawings.append(Drawing("Time and energy", partial(_scatter, pairs, "energy, of the device as it is")))
    best = [variant for variant in variants if variant.is_best]
    shown = list(variants) if len(variants) <= _SHOWN else best[:_SHOWN]
    rows = [
        ("*" if variant.is_best else "", Cell(value=", ".join(variant.edits), kind="strong" if variant.is_best else ""),
         variant.time_s, signed_percent(variant.time_ratio - 1), f"{variant.area_ratio:.2f}",
         None if variant.energy_ratio is None else f"{variant.energy_ratio:.2f}")
        for variant in shown
    ]  # fmt: skip
    blocks: list[Block] = [
        *drawings, Heading("Devices"),
        Table(columns=columns("mark|", "~device", "#time_s|time", "#change", "#area", "#energy"), rows=rows),
    ]  # fmt: skip
    if len(shown) < len(variants):
        blocks.append(f"… and {len(variants) - len(shown)} devices that others beat; --json has them all")
    blocks.append(
        f"* {len(best)} of {len(variants)}: a device better in time, energy or area is worse in another of them"
    )
    return Document(title=title, blocks=[*blocks, *_notes(variants, ASSUMED)], kicker="Devices that do not exist")


def _notes(variants: Sequence[WhatIf], last: str) -> Iterator[Text]:
    """Yield how many calls are in no figure, then what all figures assume."""
    if counts := {variant.unmodelled_count for variant in variants} - {0}:
        shown = f"{min(counts):,}" if len(counts) == 1 else f"up to {max(counts):,}"
        why = f"not in it: {shown} calls of the step that are not modelled; 'nearpeak simulate' says why"
        yield Text(why, "muted")
    yield Text(last, "muted")


def _change(variant: WhatIf) -> float:
    return round(variant.time_ratio - 1, 6) + 0.0


def _scatter(pairs: Sequence[tuple[float, WhatIf]], across: str) -> str:
    """Return a plot of time, downwards better, against something that costs, leftwards better."""
    (left, right), (low, high) = _range([x for x, _ in pairs]), _range([variant.time_ratio for _, variant in pairs])
    dots = []
    for x, variant in sorted(pairs, key=lambda pair: pair[1].is_best):
        title = escape(f"{', '.join(variant.edits)}: {show(variant.time_s, 's')}")
        look = f'r="5" fill="{COLOURS[1]}"' if variant.is_best else f'r="3" fill="{COLOURS[-1]}" opacity=".55"'
        dots.append(
            f'<circle cx="{100 * (x - left) / (right - left):.2f}%" '
            f'cy="{100 * (high - variant.time_ratio) / (high - low):.2f}%" {look}><title>{title}</title></circle>'
        )
    return (
        "<p>Each point is a device; those in colour are beaten by none in time, "
        f"energy and area. Time, of the device as it is, upwards; {escape(across)}, to the right.</p>"
        '<div class="scatter"><svg class="drawing" style="height:360px" role="img" '
        f'aria-label="time and {escape(across)}">{"".join(_ticks(left, right, low, high))}{"".join(dots)}</svg></div>'
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


def tornado_document(title: str, sensitivities: Sequence[Sensitivity]) -> Document:
    """Return what more and less of each figure of a device does to a step: saved by more of it, lost by less."""
    widest = (
        max(
            (abs(_change(each)) for sensitivity in sensitivities for each in (sensitivity.less, sensitivity.more)),
            default=0.0,
        )
        or 1.0
    )
    rows = []
    for sensitivity in sensitivities:
        more, less = _change(sensitivity.more), _change(sensitivity.less)
        rows.append((
            sensitivity.name, sensitivity.more.edits[0].partition("=")[2].strip('"'), signed_percent(more),
            max(-more, 0.0) / widest,
            signed_percent(less), max(less, 0.0) / widest, signed_percent(sensitivity.more.area_ratio - 1),
            None if sensitivity.more.energy_ratio is None else signed_percent(sensitivity.more.energy_ratio - 1),
        ))  # fmt: skip
    heads = ("+more is", "#more", "saved_bar|saves", "#less", "lost_bar|costs", "#area", "+#energy")
    bought = max(sensitivities, key=lambda sensitivity: sensitivity.gain_ratio())
    best = f"{bought.name} buys most: {bought.more.edits[0]} saves {100 * bought.gain_ratio():.1f} %"
    both = [each for sensitivity in sensitivities for each in (sensitivity.less, sensitivity.more)]
    blocks: list[Block] = [
        Drawing("", partial(_tornado, sensitivities, widest)), Table(columns=columns("figure", *heads), rows=rows),
        best if bought.gain_ratio() > 0 else "",
        *_notes(both, f"each figure times and divided by the same factor; {ASSUMED}"),
    ]  # fmt: skip
    return Document(title=title, blocks=blocks, kicker="Which figure buys most")


def _tornado(sensitivities: Sequence[Sensitivity], widest: float) -> str:
    row, bars = 46, []
    for place, sensitivity in enumerate(sensitivities):
        y = 26 + row * place
        more, less = (signed_percent(_change(variant)) for variant in (sensitivity.more, sensitivity.less))
        text = f"{sensitivity.name}: {more} … {less}"
        bars.append(f'<text x="50%" y="{y - 6}" text-anchor="middle">{escape(text)}</text>')
        for each, colour in ((sensitivity.more, COLOURS[2]), (sensitivity.less, COLOURS[4])):
            wide = 46 * abs(_change(each)) / widest
            x = 50 - wide if _change(each) < 0 else 50
            bars.append(
                f'<rect x="{x:.2f}%" y="{y}" width="{wide:.2f}%" height="16" fill="{colour}">'
                f"<title>{escape(each.edits[0])}: {show(each.time_s, 's')}</title></rect>"
            )
    return (
        "<p>Change of the step's time with more (green) and less (red) of each figure alone; left is faster.</p>"
        f'<svg class="drawing" style="height:{26 + row * len(sensitivities)}px" role="img" aria-label="tornado plot">'
        f'<line x1="50%" x2="50%" y1="0" y2="100%"/>{"".join(bars)}</svg>'
    )
