"""HTML rendering of page views: one frame for server and static site, with all text escaped and cleaned."""

import csv
import hashlib
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from urllib.parse import urlencode

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from nearpeak.base.spreadsheet_cells import plain_cell, plain_cells
from nearpeak.reports import figure_text as words
from nearpeak.reports.analysis.html import FOLDER, embedded, palette
from nearpeak.reports.document import Cell, Link, Table
from nearpeak.web.history_chart import HEIGHT, WIDTH, Chart
from nearpeak.web.page_view import View
from nearpeak.web.pages import menu
from nearpeak.web.site import Site, case_key, file_of, key_of

_FOLDER = Path(__file__).parent
STATIC = _FOLDER / "static"
ASSETS = (
    "app.css", "theme.js", "app.js", "charts.js", "timeline.js", "vendor/uPlot.iife.min.js", "vendor/uPlot.min.css",
)  # fmt: skip
"""Files that pages load."""
STATIC_POLICY = "default-src 'none'; script-src 'self' file:; style-src 'self' file:; img-src data:; base-uri 'none'"
"""Content security policy of static pages: scripts and styles of their own folder only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Frame of a page: its address and its visitor."""

    site: Site
    """The site."""
    page: str
    """Name of the page."""
    path: str
    """Its path."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Query of its address."""
    actor: str = ""
    """Name of the token that is signed in; empty for none."""
    can_write: bool = False
    """Whether that token may act."""
    mark: str = ""
    """CSRF mark that forms must send back, so that no other site can send them."""

    @property
    def is_static(self) -> bool:
        """Whether the page becomes a file."""
        return self.site.setting.is_static

    @property
    def base(self) -> str:
        """Way from the folder of the page up to that of the site."""
        return "../" * file_of(self.path).count("/") if self.is_static else ""

    @property
    def policy(self) -> str:
        """Content security policy of a static page."""
        return STATIC_POLICY

    def href(self, link: Link) -> str:
        """Return the address of a link."""
        return self.site.href(link, self.base)

    def to(self, page: str, **query: object) -> str:
        """Return the address of a page, with a query."""
        texts = {name: str(value) for name, value in query.items() if value not in ("", None)}
        return self.href(Link(page=page, query=texts))

    def at(self, page: str, **path: object) -> str:
        """Return the address of a page whose path names something."""
        return self.href(Link(page=page, path={name: str(value) for name, value in path.items()}))

    def here(self, **changed: object) -> str:
        """Return the address of this page with some of its query changed."""
        query = {**self.query, **{name: str(value) for name, value in changed.items()}}
        nonempty = {name: value for name, value in query.items() if value != ""}
        return self.path + (f"?{urlencode(nonempty)}" if nonempty else "")

    def export(self, table: str, form: str) -> str:
        """Return the address of a table as CSV or JSON."""
        if self.is_static:
            return file_of(self.path).rpartition("/")[2].removesuffix("html") + f"{table}.{form}"
        return self.here(table=table, format=form)

    def asset(self, name: str) -> str:
        """Return the address of a file that pages load."""
        return f"{self.base}static/{name}" if self.is_static else f"/static/{name}?v={asset_digest(name)}"


def page_html(view: View, frame: Frame) -> str:
    """Return a view as a page."""
    return _environment().get_template(f"{view.template}.html.j2").render(view=view, frame=frame, **view.context)


@cache
def asset(name: str) -> bytes:
    """Return a file that pages load; the style begins with the colours of the reports, whose timelines pages draw."""
    data = ((FOLDER if name == "timeline.js" else STATIC) / name).read_bytes()
    return palette().encode() + data if name == "app.css" else data


@cache
def asset_digest(name: str) -> str:
    """Return what changes in the address of a file when it changes."""
    return hashlib.sha256(asset(name)).hexdigest()[:10]


def table_csv(table: Table) -> str:
    """Return a table as CSV: values as data, in SI units."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(plain_cells([column.name for column in table.columns]))
    writer.writerows([[plain_cell(_safe(cell.value)) for cell in row] for row in table.cells])
    return out.getvalue()


def table_json(table: Table) -> str:
    """Return a table as JSON: a list of rows by name of the column."""
    names = [column.name for column in table.columns]
    rows = [dict(zip(names, (cell.value for cell in row), strict=True)) for row in table.cells]
    text = json.dumps({"table": table.name, "caption": table.caption, "rows": rows}, indent=1, allow_nan=False)
    return f"{text}\n"


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=_safe,
    )  # fmt: skip
    environment.filters.update(
        unit=words_unit, percent=words.percent, count=words.count, embedded=_data, short=words.shortened
    )
    environment.globals.update(menu=menu, key_of=key_of, case_key=case_key, svg=(WIDTH, HEIGHT), limiter=words.limiter,
                         link=_link, Cell=Cell)  # fmt: skip
    return environment


def compile_templates() -> None:
    """Compile all templates in advance, so that no request waits for it."""
    for name in _environment().list_templates():
        _environment().get_template(name)


def words_unit(value: float, unit: str) -> str:
    """Return a value with its unit."""
    from nearpeak.reports.history.tracks import value_text

    return value_text(value, unit)


def _link(page: str, **path: object) -> Link:
    return Link(page=page, path={name: str(value) for name, value in path.items()})


def _data(chart: Chart) -> Markup:
    return embedded(chart.data)


def _safe(value: object) -> object:
    """Take control characters out of every text that a page prints; Jinja escapes it afterwards."""
    return words.clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value
