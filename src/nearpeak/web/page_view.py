"""A dashboard page before rendering: its template, template variables, and exportable tables."""

from collections.abc import Mapping
from dataclasses import dataclass
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
