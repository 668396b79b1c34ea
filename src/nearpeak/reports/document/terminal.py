"""Documents for a terminal: text wrapped to its width, coloured where it supports colours."""

import textwrap
from collections.abc import Iterator, Sequence
from itertools import zip_longest

from nearpeak.reports.document import Block, Cell, Column, Details, Document, Heading, Items, Span, Table, Text, spans
from nearpeak.reports.document import Words as Running
from nearpeak.reports.figure_text import clean, hung, shortened, shortened_path, told_apart

LEAST_WIDTH, WIDEST_TABLE = 80, 120
_WIDE = 100
_BAR, _EIGHTHS = 16, " ▏▎▍▌▋▊▉"
_LEAST_COLUMN = 8
_CODES = {
    "strong": 1, "muted": 2, "good": 32, "bad": 31, "warn": 33, "dram": 34, "barrier": 34, "capacity": 34,
    "matrix": 33, "l2": 36, "ingress": 36, "vector": 35, "special": 31, "link": 32, "host": 32,
}  # fmt: skip
"""Escape codes by style."""


def to_terminal(
    document: Document, *, colour: bool = False, width: int = LEAST_WIDTH, is_unfolded: bool = False
) -> str:
    """Return the document as text.

    Args:
        colour: whether to colour it; leave it off where the text goes into a pipe or file.
        width: columns of the terminal; fewer than 80 are taken as 80.
        is_unfolded: whether the blocks of `Details` are written; if not, their summary is.
    """
    blocks = tuple(_unfolded(document.blocks)) if is_unfolded else document.blocks
    parted = [()] if document.lead and isinstance(next(iter(blocks), None), Table) else []
    lines = [*_head(document, max(width, LEAST_WIDTH)), *parted, *_blocks(blocks, max(width, LEAST_WIDTH))]
    texts = ("".join(_coded(span) if colour else span.text for span in line).rstrip() for line in lines)
    return "".join(f"{text}\n" for text in texts)


Line = Sequence[Span]


def _coded(span: Span) -> str:
    codes = ";".join(str(_CODES[name]) for name in span.style.split() if name in _CODES)
    return f"\x1b[{codes}m{span.text}\x1b[0m" if codes and span.text.strip() else span.text


def _head(document: Document, width: int) -> Iterator[Line]:
    lead = [*_wrapped(document.lead, width, "strong")] if document.lead else []
    title, subject = clean(document.title), clean(document.subject)
    yield from lead if document.is_lead_first else []
    if len(title) + len(subject) + 2 <= width:
        yield from [(Span(title, "strong"), Span(f"  {subject}"))] if title or subject else []
    else:
        yield (Span(shortened(title, width), "strong"),)
        yield from _wrapped(subject, width)
    yield from [] if document.is_lead_first else lead


def _unfolded(blocks: Sequence[Block]) -> Iterator[Block]:
    """Yield the blocks with those that `Details` fold away in their place."""
    for block in blocks:
        yield from _unfolded(block.blocks) if isinstance(block, Details) else (block,)


def _blocks(blocks: Sequence[Block], width: int) -> Iterator[Line]:
    for place, block in enumerate(blocks):
        after = blocks[place - 1] if place else None
        if isinstance(block, str):
            yield from _wrapped(block, width) if block else ()
        elif isinstance(block, Heading):
            yield from [()] if not isinstance(after, Heading | None) else []
            yield from _wrapped(block.words, width, "strong")
        elif isinstance(block, Text):
            yield from _wrapped(block.words, width, block.style)
        elif isinstance(block, Items):
            yield from [()] if block.items and isinstance(after, Table) else []
            for item in block.items:
                yield from _wrapped(("- ", *spans(item)), width)
        elif isinstance(block, Table) and (block.rows or block.empty):
            yield from _table(block, width, apart=not isinstance(after, Heading | None))
        elif isinstance(block, Details):
            yield from _wrapped(block.summary, width, "muted")


def _wrapped(words: Running, width: int, style: str = "") -> Iterator[Line]:
    """Yield running text in lines; a broken line hangs two deeper, and each character keeps its style."""
    pieces = [Span(clean(piece.text), f"{style} {piece.style}".strip()) for piece in spans(words)]
    styles = iter([piece.style for piece in pieces for character in piece.text if not character.isspace()])
    for text in hung(["".join(piece.text for piece in pieces)], width):
        line: list[Span] = []
        for character in text:
            style_here = (line[-1].style if line else "") if character.isspace() else next(styles)
            if line and line[-1].style == style_here:
                line[-1] = Span(line[-1].text + character, style_here)
            else:
                line.append(Span(character, style_here))
        yield line


def _table(table: Table, width: int, *, apart: bool) -> Iterator[Line]:
    """Yield a table: heading, rule, rows, and below each row the cells that do not fit into it."""
    margin, shown = " " * table.indent_count, table.cells[: table.brief_count or None]
    places = [
        place for place, column in enumerate(table.columns)
        if not column.is_below and (width >= _WIDE or not column.is_wide)
    ]  # fmt: skip
    inline = [table.columns[place] for place in places]
    cells = [[row[place] for row in shown] for place in places]
    heads = [column.title.split("\n") for column in inline]
    widths = _widths(inline, heads, cells, min(width, WIDEST_TABLE) - table.indent_count)
    if any(any(head) for head in heads):
        yield from [()] if apart else []
        yield from [(Span(f"{margin}{clean(table.caption)}", "strong"),)] if table.caption else []
        depth = max(map(len, heads))
        for texts in zip(*([""] * (depth - len(head)) + head for head in heads), strict=True):
            yield _row(margin, inline, widths, texts, ["strong"] * len(inline))
        yield (Span(margin + "─" * (sum(widths) + 2 * (len(widths) - 1))),)
    lines = [
        _lines(column, column_cells, size) for column, column_cells, size in zip(inline, cells, widths, strict=True)
    ]
    for number, row in enumerate(shown):
        styles = [row[place].kind for place in places]
        for texts in zip_longest(*(column[number] for column in lines), fillvalue=""):
            yield _row(margin, inline, widths, texts, styles)
        below = (clean(cell.text) for cell, column in zip(row, table.columns, strict=True) if column.is_below)
        if text := "; ".join(filter(None, below)):
            yield from _wrapped(f"{margin}  {text}", width)
    if not shown and table.empty:
        yield from _wrapped(f"{margin}{table.empty}", width)
    if len(shown) < len(table.rows) and table.rest:
        yield from _wrapped(f"{margin}{table.rest}", width, "muted")


def _row(
    margin: str, inline: Sequence[Column], widths: Sequence[int], texts: Sequence[str], styles: Sequence[str]
) -> Line:
    line = [Span(margin)]
    for column, size, text, style in zip(inline, widths, texts, styles, strict=True):
        blank = " " * (size - len(text))
        before, after = (blank, "") if column.is_number else ("", blank)
        line += [Span(before), Span(text, style), Span(f"{after}  ")]
    return line


def _lines(column: Column, cells: Sequence[Cell], size: int) -> Sequence[Sequence[str]]:
    """Return the texts of a column within its width, one or several lines for each cell."""
    texts = [clean(cell.text) for cell in cells]
    if column.unit == "bar":
        return [[_bar(cell, size)] for cell in cells]
    if column.is_folded:
        pieces = [[clean(piece) for piece in cell.text.split("\n")] for cell in cells]
        return [
            [line for piece in pieces_of_cell for line in _folded(piece, max(size, 1), is_code=column.is_code)]
            for pieces_of_cell in pieces
        ]
    cut = [shortened_path(text, size) for text in texts] if column.is_path else told_apart(texts, size)
    return [[text] for text in cut]


def _folded(text: str, size: int, *, is_code: bool) -> list[str]:
    """Return the lines of a text; a list of options without blanks breaks after its commas, not in a word."""
    if is_code and " " not in text:
        return [line.replace(", ", ",") for line in textwrap.wrap(text.replace(",", ", "), size)] or [""]
    return textwrap.wrap(text, size) or [""]


def _widths(
    inline: Sequence[Column], heads: Sequence[Sequence[str]], cells: Sequence[Sequence[Cell]], room: int
) -> list[int]:
    """Return the width of each column; where room lacks bars give way, then texts that are folded, then those cut."""
    widths = [
        max(
            _BAR if column.unit == "bar" else 0,
            *map(len, head),
            *(len(piece) for cell in column_cells for piece in cell.text.split("\n")),
        )
        for column, head, column_cells in zip(inline, heads, cells, strict=True)
    ]
    least = [max(_LEAST_COLUMN, *map(len, head)) for head in heads]
    while sum(widths) + 2 * (len(widths) - 1) > room:
        wide = [place for place, column in enumerate(inline) if not column.is_number and widths[place] > least[place]]
        if not wide:
            break
        order = {place: (inline[place].unit == "bar", inline[place].is_folded, widths[place]) for place in wide}
        widths[max(wide, key=order.__getitem__)] -= 1
    return widths


def _bar(cell: Cell, size: int) -> str:
    """Return a bar from zero whose full width is all.

    >>> _bar(Cell(value=0.5), 16)
    '████████'
    """
    eighths = round(min(max(float(cell.value or 0.0), 0.0), 1.0) * size * 8)
    return ("█" * (eighths // 8) + _EIGHTHS[eighths % 8]).rstrip()
