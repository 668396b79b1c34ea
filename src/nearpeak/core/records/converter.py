"""Converters of plain JSON data: scalars, lists, objects and choices, with errors that name the place."""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import repeat
from types import NoneType
from typing import Any, NamedTuple

from nearpeak.errors import SpecError

WORDS: Mapping[type, str] = {
    str: "a text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "an object",
    NoneType: "null",
}
_NON_FINITE: Mapping[str, float] = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
"""Numbers that JSON lacks, as they are written."""


class MisfitError(SpecError):
    """Data that do not fit the wanted type, and their place within the record."""

    def __init__(self, message: str, place: str = "") -> None:
        """Keep what is wrong at `place`."""
        super().__init__(message)
        self.message, self.place = message, place


def within(place: str, error: SpecError) -> MisfitError:
    """Return an error of a part of a record as seen from the object or list around it."""
    inner = error.place if isinstance(error, MisfitError) else ""
    return MisfitError(str(error), place + inner)


def misfit(raw: object, wanted: str) -> MisfitError:
    """Return the error that `raw` is not what is wanted.

    >>> misfit([], "a text").message
    'is a list; must be a text'
    """
    return MisfitError(f"is {WORDS.get(type(raw), type(raw).__name__)}; must be {wanted}")


class Converter(NamedTuple):
    """How values of one type are written and read."""

    write: Callable[[Any], Any] | None
    """Returns plain data; none where the value is plain already."""
    read: Callable[[Any], Any]
    """Returns the value, or raises SpecError, best by `misfit`."""


def _scalar(kind: type) -> Converter:
    wanted = WORDS[kind]

    def read(raw: Any) -> Any:
        if type(raw) is kind:
            return raw
        raise misfit(raw, wanted)

    return Converter(None, read)


def _write_float(value: Any) -> Any:
    return value if type(value) is not float or value - value == 0 else repr(value)


def _read_float(raw: Any) -> float:
    if type(raw) is float:
        return raw
    if type(raw) is int:
        return float(raw)
    if type(raw) is str and raw in _NON_FINITE:
        return _NON_FINITE[raw]
    raise misfit(raw, "a number")


PLAIN_FLOAT = Converter(None, _read_float)
"""Unchanged floats, for output formats with their own notation of NaN and infinity."""
SCALARS: Mapping[Any, Converter] = {
    **{kind: _scalar(kind) for kind in (str, bool, int, NoneType)},
    float: Converter(_write_float, _read_float),
    Any: Converter(None, lambda raw: raw),
    object: Converter(None, lambda raw: raw),
}


def _read_count(raw: Any) -> int:
    if type(raw) is int and raw >= 0:
        return raw
    raise MisfitError(f"is {raw!r}; must be a whole number of at least 0")


COUNT = Converter(None, _read_count)
"""Whole numbers of at least 0."""


def choice(known: Mapping[Any, Any]) -> Callable[[Any], Any]:
    """Return the reader of values that are looked up by a text or number."""

    def read(raw: Any) -> Any:
        if isinstance(raw, str | int | None) and raw in known:
            return known[raw]
        raise MisfitError(f"is {raw!r}; must be one of {', '.join(map(str, known))}")

    return read


def one_of(known: Collection[str]) -> Converter:
    """Return the converter of texts of which only the known ones are accepted."""
    return Converter(None, choice({text: text for text in known}))


def optional_converter(inner: Converter) -> Converter:
    """Return the converter of values that may be none."""
    write, read = inner
    return Converter(
        None if write is None else lambda value: None if value is None else write(value),
        lambda raw: None if raw is None else read(raw),
    )


def read_items(raw: Sequence[Any], readers: Iterable[Callable[[Any], Any]]) -> list[Any]:
    """Return the values of the items of a list, each read by its reader; an error names the position."""
    values: list[Any] = []
    try:
        for item, read in zip(raw, readers, strict=False):
            values.append(read(item))
    except SpecError as error:
        raise within(f"[{len(values)}]", error) from None
    return values


def list_converter(item: Any, inner: Converter) -> Converter:
    """Return the converter of tuples of any length, which are lists.

    Args:
        item: annotation of the items, which are taken as they are where it is a plain scalar.
    """
    write, read = inner
    kind = item if inner is SCALARS.get(item) and item is not Any else None

    def written(values: Any) -> list[Any]:
        if write is None or (kind is float and all(map(math.isfinite, values))):
            return list(values)
        return list(map(write, values))

    def values_of(raw: Any) -> tuple[Any, ...]:
        if type(raw) is not list:
            raise misfit(raw, "a list")
        if kind is not None and set(map(type, raw)) <= {kind}:
            return tuple(raw)
        return tuple(read_items(raw, repeat(read)))

    return Converter(written, values_of)


def fixed_converter(inner: Sequence[Converter]) -> Converter:
    """Return the converter of tuples of a fixed length, which are lists."""
    count, readers = len(inner), [converter.read for converter in inner]

    def write(value: Any) -> list[Any]:
        return [item if convert is None else convert(item) for item, (convert, _) in zip(value, inner, strict=True)]

    def read(raw: Any) -> tuple[Any, ...]:
        if type(raw) is not list or len(raw) != count:
            raise misfit(raw, f"a list of {count}")
        return tuple(read_items(raw, readers))

    return Converter(write, read)


def mapping_converter(inner: Converter) -> Converter:
    """Return the converter of mappings from texts, which are objects."""
    write, read = inner

    def written(values: Mapping[str, Any]) -> dict[str, Any]:
        return dict(values) if write is None else {key: write(value) for key, value in values.items()}

    def values_of(raw: Any) -> dict[str, Any]:
        if type(raw) is not dict:
            raise misfit(raw, "an object")
        key = ""
        try:
            return {(key := name): read(value) for name, value in raw.items()}
        except SpecError as error:
            raise within(f".{key}", error) from None

    return Converter(written, values_of)


def pairs_converter(inner: Converter) -> Converter:
    """Return the converter of tuples of (text, value), which are objects."""
    write, read = mapping_converter(inner)
    # The converter of a mapping reads mappings, which its type does not say.
    return Converter(lambda pairs: write(dict(pairs)), lambda raw: tuple(read(raw).items()))  # type: ignore[misc]
