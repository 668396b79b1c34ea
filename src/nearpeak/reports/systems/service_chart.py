"""Drawing of a service over time: decoding sequences, waiting requests and the cache's filling, one curve each."""

from functools import partial

from nearpeak.core.systems.service import ServiceTimeline
from nearpeak.reports.document import Drawing
from nearpeak.reports.document.html import COLOURS, ends, keys, safe
from nearpeak.units import show

_WIDTH, _HEIGHT = 1000.0, 100.0


def drawing_of(timeline: ServiceTimeline) -> Drawing:
    """Return the drawing of a run: each curve over its own largest value, time to the right."""
    return Drawing("Batch, queue and cache over the run", partial(_drawn, timeline))


def _drawn(timeline: ServiceTimeline) -> str:
    most_decodes, most_waiting = max(timeline.decode_count), max(timeline.waiting_count)
    curves = (
        (f"decoding sequences, up to {most_decodes:,.0f}", COLOURS[0], timeline.decode_count, most_decodes),
        (f"waiting requests, up to {most_waiting:,.3g}", COLOURS[4], timeline.waiting_count, most_waiting),
        (f"cache in use, up to {100 * max(timeline.kv_ratio):.0f} %", COLOURS[2], timeline.kv_ratio, 1.0),
    )
    lines = []
    for name, colour, values, most in curves:
        points = " ".join(
            f"{_WIDTH * (place + 0.5) / len(values):.1f},{_HEIGHT - (_HEIGHT - 4) * value / (most or 1.0):.1f}"
            for place, value in enumerate(values)
        )
        lines.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5" '
            f'vector-effect="non-scaling-stroke"><title>{safe(name)}</title></polyline>'
        )
    first, last = timeline.edge_s[0], timeline.edge_s[-1]
    label = "batch, queue and cache over the run"
    return (
        f"{keys([(name, colour) for name, colour, *_ in curves])}"
        f'<svg class="drawing map" viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" preserveAspectRatio="none" role="img" '
        f'aria-label="{label}">{"".join(lines)}</svg>'
        f"{ends(show(first, 's'), show((first + last) / 2, 's'), show(last, 's'))}"
    )
