"""A dashboard page before rendering: its template, template variables, and exportable tables."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from markupsafe import Markup

from nearpeak.reports.analysis.html import embedded
from nearpeak.reports.document import (
    Block,
    Details,
    Document,
    Drawing,
    Heading,
    Items,
    Table,
    Text,
    Timeline,
    Words,
    spans,
)
from nearpeak.reports.document.html import timeline_data, timeline_picture

MOST_SLICES = 20_000
"""Slices of a timeline that a page of the dashboard draws: about 0.5 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A page, ready to be written."""

    title: str
    """Title."""
    template: str
    """Template that writes it."""
    context: Mapping[str, Any]
    """Variables of the template."""
    tables: tuple[Table, ...] = ()
    """All tables of the page; each can be exported alone."""


def without_bars(table: Table) -> Table:
    """Return a table without the columns that a report draws as bars, which tables of the dashboard do not."""
    shown = [place for place, column in enumerate(table.columns) if column.unit != "bar"]
    return replace(
        table, columns=tuple(table.columns[place] for place in shown),
        rows=[tuple(row[place] for place in shown) for row in table.rows],
    )  # fmt: skip


def answer_view(title: str, template: str, document: Document | None, **context: Any) -> View:
    """Return a page of one document, whose tables, texts, drawings and timeline `answer.html.j2` shows."""
    tables, notes = parts_of(document) if document else ((), ())
    drawings, timeline = list[tuple[str, Markup]](), list[Markup]()
    for block in document.blocks if document else ():
        if isinstance(block, Drawing):
            drawings.append((block.title, Markup(block.html())))
        elif isinstance(block, Timeline) and len(block.slices) > MOST_SLICES:
            notes = (*notes, f"The timeline of {len(block.slices):,} slices is left out here; --html writes it.")
        elif isinstance(block, Timeline):
            timeline = [Markup(timeline_picture(block)), embedded(timeline_data(block))]
    answer = {"document": document, "tables": tables, "notes": notes, "drawings": drawings, "timeline": timeline}
    return View(title=title, template=template, tables=tables, context={**answer, **context})


def parts_of(document: Document) -> tuple[tuple[Table, ...], tuple[str, ...]]:
    """Return the tables of a document without bars, and its texts; with those that a report folds away.

    A table without a caption takes the heading before it, and one without a name its number.
    """
    tables, texts, heading = list[Table](), list[str](), document.kicker
    for block in _unfolded(document.blocks):
        if isinstance(block, Table):
            name = block.name or f"table_{len(tables) + 1}"
            tables.append(replace(without_bars(block), name=name, caption=block.caption or heading))
        elif isinstance(block, Heading):
            heading = _text(block.words)
        elif isinstance(block, Items):
            texts += map(_text, block.items)
        elif isinstance(block, str | Text):
            texts.append(_text(block if isinstance(block, str) else block.words))
    return tuple(tables), tuple(texts)


def _text(words: Words) -> str:
    return "".join(span.text for span in spans(words))


def _unfolded(blocks: Sequence[Block]) -> Iterator[Block]:
    """Yield blocks, and instead of a folded part what is in it."""
    for block in blocks:
        if isinstance(block, Details):
            yield from _unfolded(block.blocks)
        else:
            yield block
