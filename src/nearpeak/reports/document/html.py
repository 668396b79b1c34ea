"""Documents as one self-contained HTML page with style, script and data inside."""

import re
from collections.abc import Iterator, Sequence
from html import escape

from nearpeak.reports.analysis.html import embedded, hash_of, stylesheet, text_of
from nearpeak.reports.document import (
    Block,
    Cell,
    Column,
    Details,
    Document,
    Drawing,
    Heading,
    Items,
    Span,
    Table,
    Text,
    Timeline,
    spans,
)
from nearpeak.reports.document import Words as Running
from nearpeak.reports.figure_text import clean

COLOURS = ("#2f6fde", "#d9722e", "#2e9d5b", "#a14fc2", "#c23b4f", "#2b9aab", "#8a8f2a", "#6b6f78")
"""Colours of what a drawing tells apart, readable on white and on black."""
SLICE = "slice-"
"""Begin of the style of a text that leads to a slice of the timeline, whose place follows."""
PHONE_LETTERS = 44
"""Letters that a row has room for on a phone: where a table needs more, each of its rows becomes a card there."""
LINE_LETTERS = 20
"""Letters beyond which a value takes a line of such a card for itself."""
_EVENT = re.compile(r'<button type="button" class="event"[^>]*>(.*?)</button>')
_FRAME = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; \
script-src '{policy}'; base-uri 'none'; form-action 'none'">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#report">Skip to the report</a>
<header class="masthead">
{masthead}
</header>
<nav class="bar" aria-label="Report">
  <span class="links">{links}</span>
  <button type="button" id="theme" aria-label="Switch between light and dark">Light / dark</button>
</nav>
<main id="report">
{main}
</main>
<footer><p class="note">{foot}</p></footer>
{data}<script>{script}</script>
</body>
</html>
"""
_TIMELINE = """<h2>Timeline</h2>
<p class="note">Wheel or pinch to zoom, drag to move, arrow keys, + − and 0 with the picture in focus, \
double click for the whole.</p>
<div class="zoom"><button type="button" data-zoom="0.5" aria-label="Zoom in">+</button>\
<button type="button" data-zoom="2" aria-label="Zoom out">−</button><button type="button" data-zoom="0">whole</button>\
<output id="span"></output></div>
<div class="lanes"><canvas id="picture" tabindex="0" role="img" aria-label="What ran on each thread and stream; the \
tables below say the same in figures"></canvas></div>
<p id="under" class="note" aria-live="polite">Point at a slice for its name and length.</p>
"""


def to_html(document: Document) -> str:
    """Return the document as a page."""
    style, code, data = stylesheet() + text_of("document.css"), text_of("theme.js"), ""
    for block in document.blocks:
        if isinstance(block, Timeline):
            code += text_of("timeline.js")
            data = f'<script type="application/json" id="data">{embedded(timeline_data(block))}</script>\n'
    main, links = "\n".join(_sections(document.blocks)), list[str]()
    levels = "2" if main.count("<h2>") > 1 else "23"

    def numbered(heading: re.Match[str]) -> str:
        links.append(f'<a href="#part-{len(links)}">{re.sub("<[^>]*>", "", heading[2])}</a>')
        return f'<h{heading[1]} id="part-{len(links) - 1}">{heading[2]}</h{heading[1]}>'

    main = re.sub(rf"<h([{levels}])>(.*?)</h\1>", numbered, main)
    return _FRAME.format(
        policy=hash_of(code), title=safe(f"{document.title}: {document.kicker.lower()}"), style=style,
        masthead="\n".join(_masthead(document)), links="".join(links), main=main, foot=safe(document.foot), data=data,
        script=code,
    )  # fmt: skip


def to_fragment(document: Document) -> str:
    """Return the document as a piece of a page of others, such as a notebook: without script, its style for it alone.

    A timeline, which is drawn by a script, becomes a page of its own in a closed frame.
    """
    style = text_of("notebook.css")
    parts: list[str] = []
    for block in document.blocks:
        if isinstance(block, Timeline):
            page = to_html(Document(title="Timeline", blocks=[block], kicker=document.kicker))
            parts.append(f'<iframe sandbox="allow-scripts" title="Timeline" srcdoc="{escape(page)}"></iframe>')
        else:
            parts += _block(block)
    head = "".join(
        f"<{tag}>{safe(text)}</{tag}>"
        for tag, text in (("h3", document.title), ("p", document.subject), ("p", document.lead))
        if text
    )
    body = _EVENT.sub(r"\1", "\n".join(parts))  # their timeline is in the frame
    return f'<div class="nearpeak-view"><style>{style}</style>{head}\n{body}</div>'


def safe(text: str) -> str:
    """Return text as HTML shows it, without control characters."""
    return escape(clean(text))


def _flowing(text: str) -> str:
    """Return text as HTML whose lines break after the commas of `tp=2,pp=4`, in words of 25 letters, in no option."""
    text = re.sub(r",(?=[a-z])", ",<wbr>", safe(text))
    text = re.sub(r"(?<![\w-])--[a-z][a-z-]*", r'<span class="name">\g<0></span>', text)
    return re.sub(r"[^\s<>]{25,}", r'<span class="long">\g<0></span>', text)


def keys(colours: Sequence[tuple[str, str]]) -> str:
    """Return the legend of a drawing's colours.

    >>> keys([("a", "#fff")])
    '<p class="keys"><span><svg width="9" height="9"><rect width="9" height="9" fill="#fff"/></svg> a</span></p>'
    """
    named = "".join(
        f'<span><svg width="9" height="9"><rect width="9" height="9" fill="{colour}"/></svg> {safe(name)}</span>'
        for name, colour in colours
    )
    return f'<p class="keys">{named}</p>'


def ends(*texts: str) -> str:
    """Return texts below a drawing, from its left end to its right."""
    return f'<div class="ends">{"".join(f"<span>{safe(text)}</span>" for text in texts)}</div>'


def _masthead(document: Document) -> Iterator[str]:
    yield f'<p class="kicker">{safe(document.kicker)} <span aria-hidden="true">·</span> nearpeak</p>'
    yield f"<h1>{safe(document.title)}</h1>"
    yield from [f'<p class="subject">{_flowing(document.subject)}</p>'] if document.subject else []
    yield from [f'<p class="lede">{_flowing(document.lead)}</p>'] if document.lead else []
    if document.figures:
        cells = (f'<div><dt>{safe(name)}</dt><dd>{safe(value)}</dd><dd class="note">{safe(note)}</dd></div>'
                 for name, value, note in document.figures)  # fmt: skip
        yield f'<dl class="figures">{"".join(cells)}</dl>'


def _sections(blocks: Sequence[Block]) -> Iterator[str]:
    yield "<section>"
    for place, block in enumerate(blocks):
        begins = (isinstance(block, Heading) and block.level == 2) or (isinstance(block, Drawing) and block.title)
        if place and (begins or isinstance(block, Timeline)):
            yield "</section>\n<section>"
        yield from _block(block)
    yield "</section>"


def _block(block: Block) -> Iterator[str]:
    if isinstance(block, str):
        yield f"<p>{_flowing(block)}</p>" if block else ""
    elif isinstance(block, Heading):
        yield f"<h{block.level}>{_words(block.words)}</h{block.level}>"
    elif isinstance(block, Text):
        is_note = block.style == "muted"
        yield f"<p{' class=note' if is_note else ''}>{_words(block.words, '' if is_note else block.style)}</p>"
    elif isinstance(block, Items):
        yield f"<ul>{''.join(f'<li>{_words(item)}</li>' for item in block.items)}</ul>" if block.items else ""
    elif isinstance(block, Table) and (block.rows or block.empty):
        yield from _table(block)
    elif isinstance(block, Drawing):
        yield f"<h2>{safe(block.title)}</h2>" if block.title else ""
        yield block.html()
    elif isinstance(block, Timeline):
        yield timeline_picture(block)
    elif isinstance(block, Details):
        inner = "\n".join(text for inner_block in block.blocks for text in _block(inner_block))
        summary = block.summary.removesuffix(" (--why)")  # the option of a terminal; a page is opened by a click
        yield f"<details><summary>{safe(summary)}</summary>{inner}</details>"


def _words(words: Running, style: str = "") -> str:
    return "".join(_span(Span(piece.text, f"{style} {piece.style}")) for piece in spans(words))


def _span(span: Span) -> str:
    text, names = _flowing(span.text), span.style.split()
    text = f"<code>{text}</code>" if "code" in names else text
    text = f"<b>{text}</b>" if "strong" in names else text
    for name in names:
        if name.startswith(SLICE):
            return f'<button type="button" class="event" data-slice="{name.removeprefix(SLICE)}">{text}</button>'
    rest = " ".join(name for name in names if name not in ("code", "strong"))
    return f'<span class="{rest}">{text}</span>' if rest else text


def _table(table: Table) -> Iterator[str]:
    yield f"<h3>{safe(table.caption)}</h3>" if table.caption else ""
    if not table.rows:
        yield f"<p>{safe(table.empty)}</p>"
        return
    tops = "".join(
        f"<th{' class=num' if shown_column.is_number else ''}>{safe(shown_column.title)}</th>"
        for shown_column in table.columns
    )
    head = f"<thead><tr>{tops}</tr></thead>" if any(shown_column.title for shown_column in table.columns) else ""
    is_stacked = bool(head) and not table.is_matrix and _letter_count(table) > PHONE_LETTERS
    yield f'<div class="wide"><table{" class=stack" if is_stacked else ""}>{head}<tbody>'
    for row in table.cells:
        cells = (_cell(column, cell, is_stacked) for column, cell in zip(table.columns, row, strict=True))
        yield f"<tr>{''.join(cells)}</tr>"
    yield "</tbody></table></div>"


def _letter_count(table: Table) -> int:
    """Return the letters of the widest row, were each column as wide as its longest text."""
    titles = (len(column.title) for column in table.columns)
    return sum(map(max, zip(titles, *([len(cell.text) + 2 for cell in row] for row in table.cells), strict=True)))


def _cell(column: Column, cell: Cell, is_stacked: bool) -> str:
    title = f' data-title="{safe(column.title)}"' if is_stacked and column.title else ""
    if column.unit == "bar":
        share = 100 * min(max(float(cell.value or 0.0), 0.0), 1.0)
        return f'<td class="amount"><i style="width:{share:.2f}%"></i></td>' if share else "<td></td>"
    hint = f' title="{safe(cell.hint)}"' if cell.hint else ""
    kinds = ["num"] * column.is_number + ["sign"] * (not column.title and not column.is_number)
    kinds += ["line"] * (is_stacked and len(cell.text) > LINE_LETTERS)
    kind = f' class="{" ".join(kinds)}"' if kinds else ""
    text = _span(Span(cell.text.replace("\n", ""), cell.kind))
    return f"<td{kind}{title}{hint}>{text}</td>"


def timeline_picture(block: Timeline) -> str:
    """Return where the script draws a timeline, with its legend."""
    kinds = sorted({kind for *_, kind in block.slices})
    return _TIMELINE + keys([(kind, f"var(--{block.colours.get(kind, 'other')})") for kind in kinds])


def timeline_data(block: Timeline) -> dict[str, object]:
    """Return what the script draws, as columns; names and kinds once."""
    names = {name: place for place, name in enumerate(dict.fromkeys(name for *_, name, _ in block.slices))}
    kinds = {kind: place for place, kind in enumerate(dict.fromkeys(kind for *_, kind in block.slices))}
    return {
        "rows": [clean(row) for row in block.rows], "names": [clean(name)[:160] for name in names],
        "kinds": list(kinds), "colours": [block.colours.get(kind, "other") for kind in kinds],
        "row": [row for row, *_ in block.slices], "start": [start for _, start, *_ in block.slices],
        "length": [end - start for _, start, end, _, _ in block.slices],
        "name": [names[name] for *_, name, _ in block.slices], "kind": [kinds[kind] for *_, kind in block.slices],
        "window_ns": block.window_ns,
    }  # fmt: skip
