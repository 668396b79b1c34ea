"""Which multiprocessors worked on what over time, as one HTML page with drawings that need nothing else."""

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from nearpeak.core.simulation import Batch, Run
from nearpeak.units import show

_WIDTH, _ROW, _LEFT = 900, 3, 60
"""Pixels of the time axis, of one multiprocessor, and of the margin for labels."""
_MOST_RECTANGLES = 20_000
_COLOURS = ("#2f6fde", "#e07b39", "#2e9d5b", "#a14fc2", "#c23b4f", "#3aa6b9", "#8a8f2a", "#6b6f78")
_STYLE = """
:root{color-scheme:light dark;--ink:#1b1f27;--paper:#fff;--line:#c9ced8}
@media(prefers-color-scheme:dark){:root{--ink:#e8eaf0;--paper:#14171d;--line:#3a404c}}
body{font:15px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--paper)}
body{margin:1.2rem auto;max-width:62rem;padding:0 1rem}
svg{width:100%;height:auto;border:1px solid var(--line)}
text{fill:var(--ink);font-size:11px}
.key{display:inline-block;width:.8em;height:.8em;margin:0 .35em 0 1em;border-radius:2px}
"""


def to_html(title: str, runs: Sequence[tuple[str, Run]], sm_count: int) -> str:
    """Return a page with one drawing per run: multiprocessors downwards, time to the right.

    Args:
        runs: what each drawing shows, in words, and the run with its batches.
        sm_count: multiprocessors of the device.
    """
    body = "\n".join(_section(name, run, sm_count) for name, run in runs)
    head = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>"
    )
    return f"{head}<body><h1>{escape(title)}</h1>\n{body}\n</body></html>\n"


def _section(name: str, run: Run, sm_count: int) -> str:
    colours = _colours(run)
    keys = "".join(
        f'<span class="key" style="background:{colour}"></span>{escape(queue)}' for queue, colour in colours.items()
    )
    rectangles = list(_rectangles(run, sm_count, colours))
    height = sm_count * _ROW + 24
    axis = "".join(
        f'<text x="{_LEFT + _WIDTH * share}" y="{height - 6}" text-anchor="{anchor}">'
        f"{show(run.end_ps * share / 1e12, 's')}</text>"
        for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end"))
        if run.end_ps * share > 0
    )
    cut = "" if len(rectangles) < _MOST_RECTANGLES else f" (the first {_MOST_RECTANGLES:,} pieces)"
    label = f"{name}: {show(run.end_ps / 1e12, 's')}, multiprocessors from the first (top) to {sm_count}{cut}"
    return (
        f"<h2>{escape(name)}</h2><p>{escape(label)}{keys}</p>"
        f'<svg viewBox="0 0 {_LEFT + _WIDTH + 8} {height}" role="img" aria-label="{escape(label)}">'
        f'<text x="4" y="12">SM 0</text><text x="4" y="{sm_count * _ROW}">SM {sm_count - 1}</text>'
        f"{''.join(rectangles)}{axis}</svg>"
    )


def _colours(run: Run) -> Mapping[str, str]:
    """Return a colour for each stream."""
    queues = dict.fromkeys(span.queue for span in run.spans)
    return {queue: _COLOURS[place % len(_COLOURS)] for place, queue in enumerate(queues)}


def _rectangles(run: Run, sm_count: int, colours: Mapping[str, str]) -> Iterator[str]:
    """Yield one rectangle for each row of neighbouring multiprocessors of each batch, up to a limit."""
    queue_of = {span.name: span.queue for span in run.spans}
    made = 0
    for batch in run.batches:
        for start_ps, end_ps in _times(batch):
            for first, count in _stretches(batch.sms, sm_count):
                if made >= _MOST_RECTANGLES:
                    return
                made += 1
                x = _LEFT + _WIDTH * start_ps / run.end_ps
                wide = max(_WIDTH * (end_ps - start_ps) / run.end_ps - 0.3, 0.2)
                yield (
                    f'<rect x="{x:.2f}" y="{first * _ROW}" width="{wide:.2f}" height="{count * _ROW - 0.4:.1f}" '
                    f'fill="{colours[queue_of[batch.name]]}"><title>{escape(batch.name)}</title></rect>'
                )


def _times(batch: Batch) -> Iterator[tuple[int, int]]:
    """Yield when a batch ran; beyond a hundred repeats, all of them as one."""
    if batch.repeat_count > 100:
        yield batch.start_ps, batch.end_ps + (batch.repeat_count - 1) * batch.period_ps
        return
    for place in range(batch.repeat_count):
        yield batch.start_ps + place * batch.period_ps, batch.end_ps + place * batch.period_ps


def _stretches(mask: int, sm_count: int) -> Iterator[tuple[int, int]]:
    """Yield first and number of neighbours whose bits are set.

    >>> list(_stretches(0b1101, 4))
    [(0, 1), (2, 2)]
    """
    place = 0
    while place < sm_count:
        if not mask >> place & 1:
            place += 1
            continue
        end = place
        while end < sm_count and mask >> end & 1:
            end += 1
        yield place, end - place
        place = end
