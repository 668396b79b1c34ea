"""Documents as Markdown, for a pull request or a wiki; names are escaped so that none becomes markup."""

import re
from collections.abc import Iterator, Sequence

from nearpeak.reports.document import Block, Cell, Column, Details, Document, Heading, Items, Span, Table, Text, spans
from nearpeak.reports.document import Words as Running
from nearpeak.reports.figure_text import clean, shortened

_COLOURED = str.maketrans("✓✗", "✅❌")
"""Signs that a code host shows in colour."""
_SHORT = 60
"""Characters up to which the subject shares a line with the title."""


def to_markdown(document: Document) -> str:
    """Return the document as Markdown."""
    title, subject = prose(document.title), prose(document.subject)
    together = len(subject) <= _SHORT
    head = [f"## {': '.join(filter(None, (title, subject)))}" if together else f"## {title}\n\n{subject}"]
    lead = [f"**{prose(document.lead)}**"] if document.lead else []
    blocks = [*([document.mark] if document.mark else []), *head, *lead, *_blocks(document.blocks)]
    return "\n\n".join(blocks) + "\n"


def name_cell(text: str, width: int = 72) -> str:
    r"""Return a name out of a model as a code span, in which Markdown and HTML mean nothing.

    >>> name_cell("a|b`c`<i>")
    "`a\\|b'c'<i>`"
    """
    safe = shortened(text, width).replace("`", "'").replace("\\", "/").replace("|", "\\|").strip()
    return f"`{safe}`" if safe else "–"


def prose(text: str) -> str:
    r"""Return running text with every character that Markdown or HTML could read as markup escaped.

    >>> prose("a*b <i> @team")
    'a\\*b &lt;i&gt; @\u2060team'
    """
    plain = clean(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    # A word joiner keeps a host from turning @name into a notification.
    safe = re.sub(r"([\\`*_{}\[\]#|!~])", r"\\\1", plain).replace("@", "@\u2060").replace("://", ":\u2060//")
    return safe.translate(_COLOURED)


def _words(words: Running, style: str = "") -> str:
    return "".join(_span(piece, style) for piece in spans(words)).strip()


def _span(span: Span, style: str) -> str:
    styles = f"{span.style} {style}".split()
    if "code" in styles:
        return name_cell(span.text)
    text = prose(span.text)
    return re.sub(r"^(\s*)(.+?)(\s*)$", r"\1**\2**\3", text) if "strong" in styles and text.strip() else text


def _blocks(blocks: Sequence[Block]) -> Iterator[str]:
    for block in blocks:
        if isinstance(block, str):
            yield from [_words(block)] if block else []
        elif isinstance(block, Heading):
            yield f"{'#' * (block.level + 1)} {_words(block.words)}"
        elif isinstance(block, Text):
            yield _words(block.words, block.style)
        elif isinstance(block, Items):
            yield from ["\n".join(f"- {_words(item)}" for item in block.items)] if block.items else []
        elif isinstance(block, Table) and (block.rows or block.empty):
            yield from _table(block)
        elif isinstance(block, Details):
            inner = "\n\n".join(_blocks(block.blocks))
            yield f"<details><summary>{prose(block.summary)}</summary>\n\n{inner}\n\n</details>"


def _table(table: Table) -> Iterator[str]:
    places = [place for place, column in enumerate(table.columns) if column.unit != "bar"]
    shown = [table.columns[place] for place in places]
    lines = [f"| {' | '.join(prose(column.title.replace(chr(10), ' ')) for column in shown)} |",
             f"|{'|'.join('--:' if column.is_number else ':--' for column in shown)}|"]  # fmt: skip
    for row in table.cells:
        lines.append(
            f"| {' | '.join(_cell(column, row[place]) for column, place in zip(shown, places, strict=True))} |"
        )
    yield from [f"**{prose(table.caption)}**"] if table.caption else []
    yield "\n".join(lines) if table.rows else prose(table.empty)


def _cell(column: Column, cell: Cell) -> str:
    hint = f" ({prose(cell.hint)})" if cell.hint else ""
    return name_cell(cell.text) if column.is_code else _span(Span(cell.text.replace("\n", ""), cell.kind), "") + hint
