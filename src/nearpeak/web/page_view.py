"""A dashboard page before rendering: its template, template variables, and exportable tables."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from nearpeak.reports.document import Table


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
