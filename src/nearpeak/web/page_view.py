"""A dashboard page before rendering: its template, template variables, and exportable tables."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nearpeak.reports.document import Block, Details, Document, Heading, Items, Table, Text, Words, spans


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
