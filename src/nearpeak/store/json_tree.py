"""Strict reader for JSON of other tools: names missing and malformed fields, and lists fields that were not read."""

import json
import math
from collections.abc import Iterator
from typing import Any

from nearpeak.base.input_files import json_value
from nearpeak.errors import SpecError

MOST = 1e300
"""Numbers beyond this are looked at one by one: they may not fit."""
MOST_LOST = 100
"""Names of unread fields that are listed; of the rest only the number is."""


class Tree:
    """A JSON value with its path in the document, and the fields of the document read so far."""

    __slots__ = ("_name", "_place", "_read", "raw")

    def __init__(self, raw: Any, name: str, place: str = "", read: set[str] | None = None) -> None:
        """Keep a value of the document `name`."""
        self.raw, self._name, self._place = raw, name, place
        self._read: set[str] = set() if read is None else read

    @property
    def where(self) -> str:
        """File and place, as errors name them."""
        return f"{self._name}: {self._place}" if self._place else self._name

    def has(self, key: str) -> bool:
        """Say whether the object has a value under `key` that is not null."""
        return isinstance(self.raw, dict) and self.raw.get(key) is not None

    def get(self, key: str) -> "Tree":
        """Return the value under `key`.

        Raises:
            SpecError: this is no object, or has no such field.
        """
        if not isinstance(self.raw, dict):
            raise SpecError(f"{self.where}: {_kind(self.raw)} where an object with {key!r} belongs")
        if self.raw.get(key) is None:
            raise SpecError(f"{self.where}: {key!r} is missing")
        return self._at(self.raw[key], f"{self._place}.{key}" if self._place else key)

    def maybe(self, key: str) -> "Tree | None":
        """Return the value under `key`; none where it is absent or null."""
        return self.get(key) if self.has(key) else None

    def each(self) -> "list[Tree]":
        """Return the values of a list."""
        if not isinstance(self.raw, list):
            raise SpecError(f"{self.where}: {_kind(self.raw)} where a list belongs")
        self._note()
        return [self._at(item, f"{self._place}[{index}]") for index, item in enumerate(self.raw)]

    def entries(self) -> "Iterator[tuple[str, Tree]]":
        """Return the fields of an object."""
        if not isinstance(self.raw, dict):
            raise SpecError(f"{self.where}: {_kind(self.raw)} where an object belongs")
        self._note()
        return ((key, self._at(item, f"{self._place}.{key}" if self._place else key)) for key, item in self.raw.items())

    def text(self) -> str:
        """Return a text."""
        if not isinstance(self.raw, str):
            raise SpecError(f"{self.where}: {_kind(self.raw)} where a text belongs")
        self._note()
        return self.raw

    def states(self, key: str) -> bool:
        """Say whether the object has a true value under `key`: `true`, or a number other than 0."""
        value = self.maybe(key)
        return value is not None and value.plain() in (True, 1)

    def is_number(self) -> bool:
        """Say whether this is a finite number."""
        return type(self.raw) in (int, float) and abs(self.raw) < MOST

    def number(self) -> float:
        """Return a finite number, also where it is written as a text."""
        raw = self.raw
        try:
            number = math.nan if isinstance(raw, bool) else float(raw)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if not math.isfinite(number):
            raise SpecError(f"{self.where}: {_kind(raw)} where a finite number belongs")
        self._note()
        return number

    def positive(self) -> float:
        """Return a number above 0."""
        number = self.number()
        if number <= 0:
            raise SpecError(f"{self.where}: {number!r} where a number above 0 belongs")
        return number

    def positives(self) -> tuple[float, ...]:
        """Return a list of numbers above 0; many of them take little longer than reading them."""
        if isinstance(self.raw, list) and all(type(item) in (int, float) and 0 < item < MOST for item in self.raw):
            self._note(whole=True)
            return tuple(map(float, self.raw))
        return tuple(item.positive() for item in self.each())

    def beside(self, raw: Any) -> "Tree":
        """Return `raw` as a value at the place of this one, which counts as read: another spelling of it."""
        self._note(whole=True)
        return self._at(raw, self._place)

    def plain(self) -> str | int | float | bool:
        """Return a scalar as it is, anything else as JSON text."""
        self._note(whole=True)
        if isinstance(self.raw, float) and not math.isfinite(self.raw):
            return repr(self.raw)
        scalar = isinstance(self.raw, (str, int, float, bool))
        return self.raw if scalar else json.dumps(self.raw, sort_keys=True)

    def skip(self) -> None:
        """Count all below as read: it says nothing that is lost."""
        self._note(whole=True)

    def lost(self) -> tuple[str, ...]:
        """Return the fields below that were not read, positions in lists as [], sorted."""
        unread: dict[str, None] = {}
        _unread(self.raw, _pattern(self._place), self._read, unread)
        names = sorted(unread)
        more = len(names) - MOST_LOST
        return (*names[:MOST_LOST], *([f"{more} more"] if more > 0 else []))

    def _at(self, raw: Any, place: str) -> "Tree":
        return Tree(raw, self._name, place, self._read)

    def _note(self, whole: bool = False) -> None:
        self._read.add(_pattern(self._place) + ("*" if whole else ""))


def parsed(data: bytes, name: str) -> Tree:
    """Return the JSON document that `data` holds.

    Raises:
        SpecError: it is not UTF-8, not JSON, or nested too deeply.

    >>> tree = parsed(b'{"a": {"b": 1, "c": 2}}', "x.json")
    >>> tree.get("a").get("b").number(), tree.lost()
    (1.0, ('a.c',))
    """
    try:
        return Tree(json_value(data.decode("utf-8")), name)
    except UnicodeDecodeError as error:
        raise SpecError(f"{name}: is not UTF-8 text at byte {error.start}") from None
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        cut = not data[error.pos :].strip() or error.msg.startswith("Unterminated")
        problem = f"is cut off at {place}" if cut else f"is not JSON at {place}: {error.msg}"
        raise SpecError(f"{name}: {problem}; write it again, or export it whole") from None
    except RecursionError:
        raise SpecError(f"{name}: is nested too deeply to be the JSON of a benchmark") from None
    except ValueError as error:  # a number of more digits than Python reads
        raise SpecError(f"{name}: is not JSON: {error}") from None


def parsed_lines(data: bytes, name: str) -> Tree:
    r"""Return JSON lines, or one JSON document, as a list.

    A line that is no JSON, as programs print among others, stays a text, which no reader takes for a row.

    Raises:
        SpecError: the last line, at which a file is cut off, over 100 lines, or the document is no JSON.

    >>> len(parsed_lines(b'{"a": 1}\n{"a": 2}\n', "x.jsonl").each()), len(parsed_lines(b'{"a": 1}', "x.json").each())
    (2, 1)
    >>> parsed_lines(b'{"a": 1}\nwarning\n{"a": 2}\n', "x.jsonl").each()[1].raw
    'warning'
    """
    if not is_lines(data):
        document = parsed(data, name).raw
        return Tree(document if isinstance(document, list) else [document], name)
    lines = [line for line in data.splitlines() if line.strip()]
    rows: list[Any] = []
    text_count = 0
    for number, line in enumerate(lines[:-1], 1):
        try:
            rows.append(parsed(line, f"{name}: line {number}").raw)
        except SpecError:
            text_count += 1
            if text_count > MOST_LOST:
                raise
            rows.append(line.decode("utf-8", "replace"))
    return Tree([*rows, parsed(lines[-1], f"{name}: line {len(lines)}").raw], name)


def is_lines(data: bytes) -> bool:
    """Say whether JSON objects stand one on each line."""
    first, _, rest = data.strip().partition(b"\n")
    return bool(rest) and first.startswith(b"{") and first.rstrip().endswith(b"}")


def _pattern(place: str) -> str:
    """Return a place with positions left out.

    >>> _pattern("benchmarks[12].stats.data[3]")
    'benchmarks[].stats.data[]'
    """
    parts = place.split("[")
    return parts[0] + "".join("[" + part[part.index("]") :] for part in parts[1:])


def _unread(raw: Any, pattern: str, read: set[str], unread: dict[str, None]) -> None:
    """Add to `unread` the leaves that no reader has read."""
    if f"{pattern}*" in read:
        return
    if isinstance(raw, dict):
        for key, item in raw.items():
            _unread(item, f"{pattern}.{key}" if pattern else key, read, unread)
    elif isinstance(raw, list):
        for item in raw:
            _unread(item, f"{pattern}[]", read, unread)
    elif raw is not None and pattern not in read:
        unread[pattern] = None


def _kind(raw: Any) -> str:
    """Return what a value is, in a few words."""
    if raw is None:
        return "nothing"
    if isinstance(raw, dict):
        return "an object"
    return "a list" if isinstance(raw, list) else f"{str(raw)[:40]!r}"
