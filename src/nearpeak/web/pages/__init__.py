"""Dashboard pages, one file each, found by file stem, rendered as HTML or exported as a single table."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from nearpeak.base.registry import Registry
from nearpeak.web.page_view import View
from nearpeak.web.query_arguments import Query
from nearpeak.web.site import Site


def _once(_: Site) -> Iterator[Mapping[str, str]]:
    yield {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of the site."""

    name: str
    """The file stem."""
    path: str
    """Its path, with what it names in braces."""
    build: Callable[[Site, Query], View]
    """Makes it; a NotFoundError where what the path names is not there."""
    everywhere: Callable[[Site], Iterator[Mapping[str, str]]] = _once
    """Function that yields all values of its path's parameters, for the static export."""
    title: str = ""
    """Name in the menu; empty where it has no place there."""
    rank: int = 0
    """Place in the menu."""
    is_static: bool = True
    """Whether it makes sense as a file."""
    is_computed: bool = False
    """Whether it searches or predicts: while a server compiles what does that, such a page waits for it."""


PAGES: Registry[Page] = Registry.of_modules(
    "PAGE", kind="page", package=__name__, file=__file__, group="nearpeak.pages"
)
"""All pages by name; adding one is adding a file with a `PAGE`."""


@cache
def pages() -> tuple[Page, ...]:
    """Return all pages."""
    return tuple(PAGES[name] for name in PAGES)


@cache
def menu() -> tuple[Page, ...]:
    """Return the pages of the menu, in its order."""
    return tuple(sorted((page for page in pages() if page.title), key=lambda page: page.rank))


def paths() -> dict[str, str]:
    """Return the path of each page."""
    return {page.name: page.path for page in pages()}
