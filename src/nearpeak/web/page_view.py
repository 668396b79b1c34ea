"""A dashboard page before rendering: its template, template variables, and exportable tables."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nearpeak.reports.document import Block, Details, Document, Table, Text, spans


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
    """Return the tables of a document without bars, and its texts; with those that a report folds away."""
    blocks = tuple(_unfolded(document.blocks))
    texts = ("".join(span.text for span in spans(block.words)) for block in blocks if isinstance(block, Text))
    return tuple(without_bars(block) for block in blocks if isinstance(block, Table)), tuple(texts)


def _unfolded(blocks: Sequence[Block]) -> Iterator[Block]:
    """Yield blocks, and instead of a folded part what is in it."""
    for block in blocks:
        if isinstance(block, Details):
            yield from _unfolded(block.blocks)
        else:
            yield block
