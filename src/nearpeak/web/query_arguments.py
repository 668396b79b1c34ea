"""Validated query arguments of page addresses, which may be hostile."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nearpeak.errors import SpecError

MOST_TEXT = 300
"""Characters of a value in an address."""
MOST_ROWS = 100_000
"""Rows of a table that is exported whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """Path and query of an address."""

    path: Mapping[str, str] = field(default_factory=dict)
    """Values of the path's parameters."""
    query: Mapping[str, str] = field(default_factory=dict)
    """Values of the query's parameters."""
    is_whole: bool = False
    """Whether lists are returned whole: for exports and static pages."""
    is_admin: bool = False
    """Whether the visitor may see permissions and the audit log."""

    def text(self, name: str, usual: str = "") -> str:
        """Return a text of the query.

        Raises:
            SpecError: it is too long or not one line.
        """
        value = self.query.get(name, usual)
        if len(value) > MOST_TEXT or not value.isprintable():
            raise SpecError(f"{name}: is not one line of at most {MOST_TEXT} characters")
        return value

    def words(self, name: str = "q") -> tuple[str, ...]:
        """Return the words of a text; at most ten."""
        return tuple(self.text(name).split()[:10])

    def choice(self, name: str, known: tuple[str, ...]) -> str:
        """Return a text that is one of `known`, the first by default."""
        value = self.text(name, known[0])
        if value not in known:
            raise SpecError(f"{name} {value!r}: is not known; there are {', '.join(known)}")
        return value

    def number(self, name: str, usual: int = 0, most: int = 1 << 31) -> int:
        """Return a whole number of the query."""
        return _number(name, self.query.get(name, str(usual)), most)

    def id(self, name: str) -> int:
        """Return a whole number of the path."""
        return _number(name, self.path[name], 1 << 62)

    def rows(self, usual: int = 100) -> tuple[int, int]:
        """Return the number of rows of a list page, and the number of rows before it."""
        if self.is_whole:
            return MOST_ROWS, 0
        return usual, usual * self.number("page", most=100_000)


def _number(name: str, text: str, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= most):
        raise SpecError(f"{name} {text[:40]!r}: is not a whole number up to {most}")
    return int(text)
