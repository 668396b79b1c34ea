"""What a page is before it is written as HTML: tables that export, links, and what its template is given."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A place within the site, named and not spelled out: servers and files spell it differently."""

    page: str
    """Name of the page."""
    path: Mapping[str, str] = field(default_factory=dict)
    """What its path names."""
    query: Mapping[str, str] = field(default_factory=dict)
    """What its query names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A value of a table, as data and as people read it."""

    value: Scalar
    """As data: in SI units, unrounded."""
    text: str = ""
    """As text; the value itself where it is empty."""
    link: Link | None = None
    """Where it leads."""
    kind: str = ""
    """Class of its style: `good`, `bad`, `warn`, `muted`, `whole` on one line, `heat-0` to `heat-9`."""
    hint: str = ""
    """What else is to be known of it."""

    @property
    def shown(self) -> str:
        """What stands in the table."""
        return self.text or ("–" if self.value in (None, "") else str(self.value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table."""

    name: str
    """Name in exports, with its unit."""
    title: str
    """Heading."""
    is_number: bool = False
    """Whether it stands to the right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table that people read and programs take as CSV or JSON."""

    name: str
    """Name in addresses, one for each table of a page."""
    caption: str
    """What it shows."""
    columns: tuple[Column, ...]
    """Columns."""
    rows: tuple[tuple[Cell, ...], ...]
    """Cells of each row, one per column."""
    empty: str = "nothing to show"
    """What is said where there is no row."""
    is_matrix: bool = False
    """Whether rows stay rows on narrow screens: of a heat map."""
    has_filter: bool = False
    """Whether a box filters its rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A page, ready to be written."""

    title: str
    """Title."""
    template: str
    """Template that writes it."""
    context: Mapping[str, Any]
    """What the template is given."""
    tables: tuple[Table, ...] = ()
    """All tables of the page, so that each can be asked for alone."""


def columns(*words: str) -> tuple[Column, ...]:
    """Return columns written as `name|Title`, numbers with a `#` before.

    >>> columns("label|Case", "#time_s|Time")[1]
    Column(name='time_s', title='Time', is_number=True)
    """
    found = []
    for word in words:
        name, _, title = word.lstrip("#").partition("|")
        found.append(Column(name=name, title=title, is_number=word.startswith("#")))
    return tuple(found)
