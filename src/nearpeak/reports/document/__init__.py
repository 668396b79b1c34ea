"""Documents: headings, texts, tables and drawings of a report, independent of the output format."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

from nearpeak.reports.figure_text import percent
from nearpeak.units import show

Scalar: TypeAlias = str | int | float | bool | None

_SIGNS = {
    "#": "is_number", "`": "is_code", "<": "is_path", "~": "is_folded", ">": "is_below", "+": "is_wide",
}  # fmt: skip
_UNITS = {
    "_bytes_per_s": "B/s", "_flop_per_s": "FLOP/s", "_bytes": "B", "_flop": "FLOP", "_s": "s", "_j": "J", "_w": "W",
    "_hz": "Hz", "_ratio": "%", "_bar": "bar", "_count": "count",
}  # fmt: skip
"""Unit by the suffix of a column's name."""


class Span(NamedTuple):
    """A piece of text in one style."""

    text: str
    """The text."""
    style: str = ""
    """Words of `strong`, `muted`, `good`, `bad`, `warn`, `code`, or what limits a time, which has a colour."""


Words: TypeAlias = str | Span | tuple[str | Span, ...]
"""Running text."""


def spans(words: Words) -> tuple[Span, ...]:
    """Return running text as pieces of one style each.

    >>> spans(("at most ", Span("3 s", "strong")))
    (Span(text='at most ', style=''), Span(text='3 s', style='strong'))
    """
    pieces = (words,) if isinstance(words, str | Span) else words
    return tuple(Span(piece) if isinstance(piece, str) else piece for piece in pieces)


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A place within the dashboard, named and not spelled out: servers and files spell it differently."""

    page: str
    """Name of the page."""
    path: Mapping[str, str] = field(default_factory=dict)
    """Values of its path's parameters."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Values of its query's parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A value of a table, as data and as people read it."""

    value: Scalar
    """As data: in SI units, unrounded."""
    text: str = ""
    """As text; where it is empty, the value in the unit of its column."""
    link: Link | None = None
    """Where it leads."""
    kind: str = ""
    """Style: that of a span, `whole` on one line, or `heat-0` to `heat-9`."""
    hint: str = ""
    """Further note on the cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a table."""

    name: str
    """Name in exports; its suffix is the unit of its values."""
    title: str
    """Heading."""
    is_number: bool = False
    """Whether it is right-aligned."""
    is_code: bool = False
    """Whether it holds names of a program, which Markdown writes as code."""
    is_path: bool = False
    """Whether it holds names whose ends differ, so that a terminal cuts their begin."""
    is_folded: bool = False
    """Whether a terminal breaks long texts instead of cutting them."""
    is_below: bool = False
    """Whether a terminal writes it below its row."""
    is_wide: bool = False
    """Whether a terminal writes it only where there are 100 columns."""

    @property
    def unit(self) -> str:
        """Unit of its values, `%`, `count` or `bar`; empty where they have none."""
        return next((unit for suffix, unit in _UNITS.items() if f"_{self.name}".endswith(suffix)), "")

    def cell(self, value: Scalar | Cell) -> Cell:
        """Return a value with its text."""
        cell = value if isinstance(value, Cell) else Cell(value=value)
        if cell.text:
            return cell
        return Cell(value=cell.value, text=self._text(cell.value), link=cell.link, kind=cell.kind, hint=cell.hint)

    def _text(self, value: Scalar) -> str:
        if value is None:
            return "–"
        if isinstance(value, str) or not self.unit:
            return str(value)
        if self.unit == "bar":
            return ""
        if self.unit == "count":
            return f"{value:,}"
        return percent(value) if self.unit == "%" else show(value, self.unit)


def columns(*texts: str) -> tuple[Column, ...]:
    """Return columns written as `name|Title`, or as a title alone.

    Signs before the name: `#` numbers, a backquote names of a program, `<` cut at its begin in a terminal, `~` folded
    there, `>` below its row there, `+` left out there where it is narrow.

    >>> columns("label|Case", "#time_s|Time")[1].unit
    's'
    """
    parsed = []
    for text in texts:
        bare = text.lstrip("".join(_SIGNS))
        name, sign, title = bare.partition("|")
        flags = {_SIGNS[mark]: True for mark in text[: len(text) - len(bare)]}
        parsed.append(Column(name=name, title=title if sign else name, **flags))
    return tuple(parsed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table that people read and programs take as CSV or JSON."""

    columns: tuple[Column, ...]
    """Columns."""
    rows: Sequence[Sequence[Any]]
    """Values or cells of each row, one per column."""
    name: str = ""
    """Name in addresses, one for each table of a page."""
    caption: str = ""
    """Caption."""
    empty: str = "nothing to show"
    """Text shown for a table without rows."""
    is_matrix: bool = False
    """Whether rows stay rows on narrow screens: of a heat map."""
    has_filter: bool = False
    """Whether a box filters its rows."""
    brief_count: int = 0
    """Rows that a terminal shows; all where it is 0."""
    rest: str = ""
    """Text of a terminal for the rows that it omits."""
    indent_count: int = 0
    """Blanks before each line in a terminal."""

    @property
    def cells(self) -> tuple[tuple[Cell, ...], ...]:
        """Cells of each row."""
        return tuple(
            tuple(column.cell(value) for column, value in zip(self.columns, row, strict=True)) for row in self.rows
        )


class Heading(NamedTuple):
    """A heading."""

    words: Words
    """Its text."""
    level: int = 2
    """2 for a section, 3 for a part of one."""


class Text(NamedTuple):
    """A paragraph."""

    words: Words
    """Its text; blanks at its begin indent it in a terminal."""
    style: str = ""
    """Style of the whole."""


class Items(NamedTuple):
    """A list."""

    items: tuple[Words, ...]
    """Its texts."""


class Drawing(NamedTuple):
    """A drawing of an HTML page; terminal and Markdown show the accompanying tables only."""

    title: str
    """Heading above it; empty for none."""
    html: Callable[[], str]
    """Returns the drawing as HTML that is safe; only a page asks for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Activity of each thread and queue over time; an HTML page zooms into it."""

    rows: tuple[str, ...]
    """Threads and queues."""
    slices: Sequence[tuple[int, int, int, str, str]]
    """Row, start and end in nanoseconds, name and kind of what ran."""
    window_ns: int
    """Length of the whole."""
    colours: Mapping[str, str]
    """Colour of the style sheet by kind."""


WHY = "What this rests on: parts, assumptions, policy, provenance (--why)"
"""Summary of the details that the option `--why` unfolds in a terminal."""


class Details(NamedTuple):
    """Blocks that a page folds away; a terminal says the summary only, with `--why` the blocks."""

    summary: str
    """Folded content."""
    blocks: tuple["Block", ...]
    """The blocks."""


Block: TypeAlias = str | Heading | Text | Items | Table | Drawing | Timeline | Details
"""A part of a document; a string is a paragraph."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A report."""

    title: str = ""
    """Its title."""
    subject: str = ""
    """Subject, in one line."""
    lead: str = ""
    """Conclusion, in one sentence."""
    blocks: Sequence[Block]
    """Its parts."""
    kicker: str = ""
    """Kind of the report, which a page says above the title."""
    figures: Sequence[tuple[str, str, str]] = ()
    """Key figures that an HTML page shows large: name, value and note."""
    foot: str = ""
    """Last line of a page."""
    is_lead_first: bool = False
    """Whether a terminal shows the conclusion before title and subject."""
    mark: str = ""
    """Comment at the begin of Markdown, by which it is found again."""
