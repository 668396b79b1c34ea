"""A page of drawings that needs nothing else: style, headings, and SVG whose text keeps its size at any width."""

from collections.abc import Sequence
from html import escape

COLOURS = ("#2f6fde", "#d9722e", "#2e9d5b", "#a14fc2", "#c23b4f", "#2b9aab", "#8a8f2a", "#6b6f78")
"""Colours of what is told apart, readable on white and on black."""
STYLE = """
:root{color-scheme:light dark;--ink:#1b1f27;--paper:#fff;--line:#c9ced8;--soft:#eef0f4;--muted:#5a6270}
@media(prefers-color-scheme:dark){:root{--ink:#e8eaf0;--paper:#14171d;--line:#3a404c;--soft:#1f242d;--muted:#a3abb8}}
body{font:15px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--paper)}
body{margin:1.2rem auto;max-width:72rem;padding:0 1rem}
h1{font-size:1.5rem;overflow-wrap:anywhere} h2{font-size:1.15rem;margin:1.6rem 0 .3rem}
p{margin:.3rem 0 .6rem} .note{color:var(--muted);font-size:.87rem}
svg{display:block;width:100%;border:1px solid var(--line);background:var(--soft);overflow:visible}
svg text{fill:var(--ink);font-size:12px} svg .muted{fill:var(--muted)}
svg line{stroke:var(--line)}
.map{height:clamp(220px,42vw,460px)}
.ends{display:flex;justify-content:space-between;font-size:.8rem;color:var(--muted);margin:.15rem 0 .8rem}
.keys{display:flex;flex-wrap:wrap;gap:.2rem 1rem;margin:.3rem 0}
.keys i{display:inline-block;width:.8em;height:.8em;margin-right:.35em;border-radius:2px}
.wide{overflow-x:auto} table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.9rem}
th,td{text-align:left;padding:.2rem .8rem .2rem 0;border-bottom:1px solid var(--line)} td.n,th.n{text-align:right}
.best{font-weight:600}
.plot{padding:0 0 1.6rem 3.6rem} @media(max-width:600px){.plot{padding-left:3rem}}
"""


def page(title: str, body: str) -> str:
    """Return a whole page."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
        f"<body><h1>{escape(title)}</h1>\n{body}\n</body></html>\n"
    )


def keys(colours: Sequence[tuple[str, str]]) -> str:
    """Return what the colours stand for.

    >>> keys([("a", "#fff")])
    '<div class="keys"><span><i style="background:#fff"></i>a</span></div>'
    """
    spans = "".join(f'<span><i style="background:{colour}"></i>{escape(name)}</span>' for name, colour in colours)
    return f'<div class="keys">{spans}</div>'


def ends(*texts: str) -> str:
    """Return texts below a drawing, from its left end to its right."""
    return f'<div class="ends">{"".join(f"<span>{escape(text)}</span>" for text in texts)}</div>'


def table(head: Sequence[str], rows: Sequence[Sequence[str]], marked: Sequence[bool] = ()) -> str:
    """Return a table whose columns but the first are numbers; marked rows stand out."""
    tops = "".join(f"<th{'' if i == 0 else ' class=n'}>{escape(text)}</th>" for i, text in enumerate(head))
    lines = []
    for place, row in enumerate(rows):
        cells = "".join(f"<td{'' if i == 0 else ' class=n'}>{escape(text)}</td>" for i, text in enumerate(row))
        lines.append(f"<tr{' class=best' if place < len(marked) and marked[place] else ''}>{cells}</tr>")
    return f'<div class="wide"><table><tr>{tops}</tr>{"".join(lines)}</table></div>'
