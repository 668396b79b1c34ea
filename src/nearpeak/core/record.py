"""Codec of records: dataclasses to plain JSON data and back by the types of their fields, with schema versions."""

import json
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Generic, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from nearpeak.canon import canonical_json
from nearpeak.errors import SpecError

T = TypeVar("T")
_WORDS: Mapping[type, str] = {
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
    return MisfitError(f"is {_WORDS.get(type(raw), type(raw).__name__)}; must be {wanted}")


class Converter(NamedTuple):
    """How values of one type are written and read."""

    write: Callable[[Any], Any] | None
    """Returns plain data; none where the value is plain already."""
    read: Callable[[Any], Any]
    """Returns the value, or raises SpecError, best by `misfit`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How the records of one dataclass differ from objects with all fields under their own names."""

    names: Mapping[str, str] = field(default_factory=dict)
    """Key in the record by field, where it is another one."""
    brief: Collection[str] = ()
    """Fields that are left out where they have their default value."""
    omitted: Mapping[str, Any] = field(default_factory=dict)
    """Fields that the record does not hold, as they follow from elsewhere, with the value that is read."""
    required: Collection[str] = ()
    """Fields that must be in the record although they have a default value."""
    fields: Mapping[str, Converter] = field(default_factory=dict)
    """Converters of single fields."""
    as_row: bool = False
    """True where the record is a list of the fields in order; `brief` ones end it."""


class Codec:
    """Converters by type, each made once: dataclasses, enumerations, tuples, mappings, unions, NaN and infinity."""

    def __init__(
        self, *, types: Mapping[Any, Converter] | None = None, shapes: Mapping[type, Shape] | None = None,
        strict: bool = False, pairs_as_objects: bool = False, null_is_absent: bool = False,
    ) -> None:  # fmt: skip
        """Keep what is special of a file format.

        Args:
            types: converters by annotation that replace the usual ones.
            shapes: records of dataclasses that are no plain objects of all fields.
            strict: whether keys that are no field are refused; else they are ignored.
            null_is_absent: whether a field of null reads as its default value.
            pairs_as_objects: whether tuples of (text, value) are written as objects; else as lists of lists.
        """
        self._types, self._shapes = dict(types or {}), dict(shapes or {})
        self._strict, self._pairs_as_objects, self._null_is_absent = strict, pairs_as_objects, null_is_absent
        self._made: dict[Any, Converter] = {}

    def plain(self, value: Any, hint: Any = None) -> Any:
        """Return `value`, annotated as `hint` (by default its type), as objects, lists and scalars of JSON.

        >>> Codec().plain((1.0, math.nan), tuple[float, ...])
        [1.0, 'nan']
        """
        write = self.converter(type(value) if hint is None else hint).write
        return value if write is None else write(value)

    def value(self, raw: Any, hint: Any, where: str) -> Any:
        """Return the value annotated as `hint` that `raw` states.

        Raises:
            SpecError: `raw` does not fit; the message names the place.

        >>> Codec().value([1, 2.5], tuple[float, ...], "times")
        (1.0, 2.5)
        >>> Codec().value([1, "x"], tuple[int, ...], "counts")
        Traceback (most recent call last):
        nearpeak.errors.SpecError: counts[1]: is a text; must be a whole number
        """
        try:
            return self.converter(hint).read(raw)
        except SpecError as error:
            raise SpecError(f"{where}{within('', error).place}: {error}") from None

    def converter(self, hint: Any) -> Converter:
        """Return the converter of values annotated as `hint`."""
        found = self._made.get(hint)
        if found is None:
            found = self._made[hint] = self._types.get(hint) or self._converter(hint)
        return found

    def _converter(self, hint: Any) -> Converter:
        origin, arguments = get_origin(hint), get_args(hint)
        if hint in _SCALARS:
            made = _SCALARS[hint]
        elif isinstance(hint, type):
            made = self._class(hint)
        elif origin is Literal:
            made = Converter(None, _choice({one: one for one in arguments}))
        elif origin in (Union, UnionType):
            made = self._union(arguments)
        elif origin is tuple and arguments[-1] is not ...:
            made = _fixed([self.converter(one) for one in arguments])
        elif origin is frozenset:
            made = _set(self.converter(arguments[0]))
        elif isinstance(origin, type) and issubclass(origin, Mapping):
            made = _mapping(self.converter(arguments[1]))
        elif isinstance(origin, type) and issubclass(origin, Sequence):
            made = self._list(arguments[0])
        else:
            raise TypeError(f"record: no conversion of {hint!r}")
        return made

    def _class(self, cls: Any) -> Converter:
        if is_dataclass(cls):
            return self._dataclass(cls)
        if issubclass(cls, Enum):
            return Converter(lambda value: value.value, _choice({one.value: one for one in cls}))
        raise TypeError(f"record: no conversion of {cls!r}")

    def _list(self, item: Any) -> Converter:
        arguments = get_args(item)
        if self._pairs_as_objects and get_origin(item) is tuple and len(arguments) == 2 and arguments[0] is str:
            return _pairs(self.converter(arguments[1]))
        return _list(item, self.converter(item))

    def _dataclass(self, cls: Any) -> Converter:
        shape, hints = self._shapes.get(cls, Shape()), get_type_hints(cls)
        required = {one.name for one in fields(cls)} - {*defaulted(cls)} | {*shape.required}
        entries = [
            _Entry(
                name=one.name, key=shape.names.get(one.name, one.name),
                converter=shape.fields.get(one.name) or self.converter(hints[one.name]),
                default=one.default_factory() if one.default_factory is not MISSING else one.default,
                is_brief=one.name in shape.brief, is_required=one.name in required,
            )
            for one in fields(cls) if one.name not in shape.omitted
        ]  # fmt: skip
        if shape.as_row:
            return Converter(_row_writer(entries), _row_reader(cls, entries, shape.omitted))
        read = _object_reader(cls, entries, shape.omitted, strict=self._strict)
        if self._null_is_absent:
            return Converter(_object_writer(entries), _without_nulls(read, {one.key for one in entries}))
        return Converter(_object_writer(entries), read)

    def _union(self, members: Sequence[Any]) -> Converter:
        """Return the converter of a value of several types: written by its own type, read by the shape of the data."""
        inner = [(member, self.converter(member)) for member in members if member is not NoneType]
        if len(inner) == 1:
            return _optional(inner[0][1])
        by_class = {_class_of(member): converter.write for member, converter in inner}

        def write(value: Any) -> Any:
            one = by_class.get(type(value))
            return value if one is None else one(value)

        return Converter(write, _union_reader(members, inner))


class _Entry(NamedTuple):
    """One field of a record."""

    name: str
    key: str
    converter: Converter
    default: Any
    is_brief: bool
    is_required: bool


def defaulted(cls: Any) -> tuple[str, ...]:
    """Return the fields of a dataclass that have a default value."""
    return tuple(one.name for one in fields(cls) if (one.default, one.default_factory) != (MISSING, MISSING))


def _scalar(kind: type) -> Converter:
    wanted = _WORDS[kind]

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
"""Numbers as they are, for output whose writer decides what becomes of NaN and infinity."""
_SCALARS: Mapping[Any, Converter] = {
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


def _choice(known: Mapping[Any, Any]) -> Callable[[Any], Any]:
    def read(raw: Any) -> Any:
        if isinstance(raw, str | int | None) and raw in known:
            return known[raw]
        raise MisfitError(f"is {raw!r}; must be one of {', '.join(map(str, known))}")

    return read


def _optional(inner: Converter) -> Converter:
    write, read = inner
    return Converter(
        None if write is None else lambda value: None if value is None else write(value),
        lambda raw: None if raw is None else read(raw),
    )


def _list(item: Any, inner: Converter) -> Converter:
    write, read = inner
    kind = item if inner is _SCALARS.get(item) and item is not Any else None

    def written(values: Any) -> list[Any]:
        if write is None or (kind is float and all(map(math.isfinite, values))):
            return list(values)
        return list(map(write, values))

    def values_of(raw: Any) -> tuple[Any, ...]:
        if type(raw) is not list:
            raise misfit(raw, "a list")
        if kind is not None and set(map(type, raw)) <= {kind}:
            return tuple(raw)
        values: list[Any] = []
        try:
            for one in raw:
                values.append(read(one))
        except SpecError as error:
            raise within(f"[{len(values)}]", error) from None
        return tuple(values)

    return Converter(written, values_of)


def _fixed(inner: Sequence[Converter]) -> Converter:
    """Return the converter of tuples of a fixed length, which are lists."""
    count = len(inner)

    def write(value: Any) -> list[Any]:
        return [one if convert is None else convert(one) for one, (convert, _) in zip(value, inner, strict=True)]

    def read(raw: Any) -> tuple[Any, ...]:
        if type(raw) is not list or len(raw) != count:
            raise misfit(raw, f"a list of {count}")
        values: list[Any] = []
        try:
            for one, (_, convert) in zip(raw, inner, strict=True):
                values.append(convert(one))
        except SpecError as error:
            raise within(f"[{len(values)}]", error) from None
        return tuple(values)

    return Converter(write, read)


def _set(inner: Converter) -> Converter:
    write, read = _list(None, inner)
    return Converter(lambda values: write(sorted(values)), lambda raw: frozenset(read(raw)))  # type: ignore[misc]


def _mapping(inner: Converter) -> Converter:
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


def _pairs(inner: Converter) -> Converter:
    write, read = _mapping(inner)
    return Converter(lambda pairs: write(dict(pairs)), lambda raw: tuple(read(raw).items()))  # type: ignore[misc]


def _class_of(hint: Any) -> Any:
    return get_origin(hint) or hint


def _union_reader(members: Sequence[Any], inner: Sequence[tuple[Any, Converter]]) -> Callable[[Any], Any]:
    readers = {member: converter.read for member, converter in inner}
    if float in readers:
        readers.setdefault(int, readers[float])
    lists = [one.read for member, one in inner if _class_of(member) in (tuple, frozenset, Sequence)]
    objects = [({*_required(member)}, one.read) for member, one in inner if is_dataclass(member)]
    objects += [(set(), one.read) for member, one in inner if _class_of(member) in (dict, Mapping)]
    is_optional = NoneType in members
    wanted = " or ".join(_WORDS.get(member, getattr(member, "__name__", str(member))) for member, _ in inner)

    def read(raw: Any) -> Any:
        kind = type(raw)
        if raw is None and is_optional:
            return None
        if kind in readers:
            return readers[kind](raw)
        if kind is list and lists:
            return lists[0](raw)
        if kind is dict:
            for keys, one in objects:
                if keys <= raw.keys():
                    return one(raw)
        raise misfit(raw, wanted)

    return read


def _required(cls: Any) -> tuple[str, ...]:
    return tuple(one.name for one in fields(cls) if (one.default, one.default_factory) == (MISSING, MISSING))


def _object_writer(entries: Sequence[_Entry]) -> Callable[[Any], dict[str, Any]]:
    always = [(one.name, one.key, one.converter.write) for one in entries if not one.is_brief]
    brief = [(one.name, one.key, one.converter.write, one.default) for one in entries if one.is_brief]

    def write(value: Any) -> dict[str, Any]:
        record = {}
        for name, key, convert in always:
            part = getattr(value, name)
            record[key] = part if convert is None else convert(part)
        for name, key, convert, default in brief:
            part = getattr(value, name)
            if part != default:
                record[key] = part if convert is None else convert(part)
        return record

    return write


def _object_reader(
    cls: Any, entries: Sequence[_Entry], omitted: Mapping[str, Any], *, strict: bool
) -> Callable[[Any], Any]:
    readers = {one.key: (one.name, one.converter.read) for one in entries}
    required = [one.key for one in entries if one.is_required]
    listed = ", ".join(readers)

    def read(raw: Any) -> Any:
        if type(raw) is not dict:
            raise misfit(raw, f"an object with {listed}")
        for key in required:
            if key not in raw:
                raise MisfitError(f"has no {key!r}; the file is incomplete or was edited")
        if strict and (unknown := raw.keys() - readers.keys()):
            raise MisfitError(f"{min(unknown)!r} is not a field of this schema version; remove it")
        values, key = {}, ""
        try:
            for key, part in raw.items():
                if key in readers:
                    name, convert = readers[key]
                    values[name] = convert(part)
        except SpecError as error:
            raise within(f".{key}", error) from None
        return cls(**values, **omitted)

    return read


def _without_nulls(read: Callable[[Any], Any], keys: Collection[str]) -> Callable[[Any], Any]:
    def present(raw: Any) -> Any:
        if type(raw) is not dict:
            return read(raw)
        return read({key: part for key, part in raw.items() if part is not None or key not in keys})

    return present


def _row_writer(entries: Sequence[_Entry]) -> Callable[[Any], list[Any]]:
    def write(value: Any) -> list[Any]:
        row = []
        for one in entries:
            part, convert = getattr(value, one.name), one.converter.write
            if one.is_brief and part == one.default:
                break
            row.append(part if convert is None else convert(part))
        return row

    return write


def _row_reader(cls: Any, entries: Sequence[_Entry], omitted: Mapping[str, Any]) -> Callable[[Any], Any]:
    least = sum(not one.is_brief for one in entries)
    listed = ", ".join(one.key for one in entries)

    def read(raw: Any) -> Any:
        if type(raw) is not list or not least <= len(raw) <= len(entries):
            raise misfit(raw, f"a list of {listed}")
        values = {}
        try:
            for one, part in zip(entries, raw, strict=False):
                values[one.name] = one.converter.read(part)
        except SpecError as error:
            raise within(f"[{len(values)}]", error) from None
        return cls(**values, **omitted)

    return read


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """What saved records of one kind say of themselves, and how those of older versions are brought up to date."""

    kind: str
    """Text that tells the records from others."""
    version: int
    """Version that is written."""
    title: str
    """What messages call a record, e.g. `a saved analysis`."""
    advice: str
    """How to write one again, e.g. a command."""
    kind_key: str = "kind"
    """Key of the kind in the record."""
    version_key: str = "schema_version"
    """Key of the version in the record."""
    migrations: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = field(default_factory=dict)
    """By older version: returns the record as the version after it has it."""

    def head(self) -> dict[str, Any]:
        """Return what a record says of itself."""
        return {self.kind_key: self.kind, self.version_key: self.version}

    def claimed(self, raw: object) -> bool:
        """Say whether data claim to be such a record, of any version."""
        return isinstance(raw, dict) and raw.get(self.kind_key) == self.kind

    def current(self, raw: Any, where: str) -> dict[str, Any]:
        """Return a record of any known version as the current one, without what it says of itself.

        Raises:
            SpecError: it is of another kind, or of a version that is not known.

        >>> old = Schema(kind="k", version=2, title="a k", advice="write it again",
        ...              migrations={1: lambda raw: {"time_s": raw["time_ms"] / 1e3}})
        >>> old.current({"kind": "k", "schema_version": 1, "time_ms": 5}, "file")
        {'time_s': 0.005}
        """
        if not self.claimed(raw):
            states = isinstance(raw, dict) and self.kind_key in raw
            stated = f"its {self.kind_key} is {raw[self.kind_key]!r}" if states else f"it states no {self.kind_key}"
            raise SpecError(f"{where}: not {self.title}: {stated}; {self.advice}")
        version = raw.get(self.version_key)
        if type(version) is not int or (version != self.version and version not in self.migrations):
            raise SpecError(
                f"{where}: has schema version {version!r}; this nearpeak reads version {self.version}; {self.advice}"
            )
        record = {key: value for key, value in raw.items() if key not in (self.kind_key, self.version_key)}
        for older in range(version, self.version):
            record = self.migrations[older](record)
        return record


class Columns(Generic[T]):
    """A dataclass as the columns of a table: other names, nested values as JSON text."""

    def __init__(self, cls: type[T], names: Mapping[str, str] | None = None, *, texts: Collection[str] = (),
                 omitted: Collection[str] = ()) -> None:  # fmt: skip
        """Keep the dataclass.

        Args:
            names: column by field, where it is another one.
            texts: fields that are JSON text in the table.
            omitted: fields that are in no column.
        """
        names, hints = names or {}, get_type_hints(cls)
        self._cls, self._texts = cls, {one: _STORED.converter(hints[one]) for one in texts}
        self.names = {one.name: names.get(one.name, one.name) for one in fields(cls) if one.name not in omitted}  # type: ignore[arg-type]

    def row(self, value: T) -> dict[str, Any]:
        """Return the columns of `value`."""
        return {column: self._stored(name, getattr(value, name)) for name, column in self.names.items()}

    def _stored(self, name: str, part: Any) -> Any:
        if name not in self._texts:
            return part
        write = self._texts[name].write
        return canonical_json(part if write is None else write(part))

    def value(self, row: Mapping[str, Any], **more: Any) -> T:
        """Return the value of a row.

        Args:
            more: fields that are in no column.
        """
        values = {name: row[column] for name, column in self.names.items() if name not in more}
        for name, converter in self._texts.items():
            values[name] = converter.read(json.loads(values[name]))
        return self._cls(**values, **more)


_STORED = Codec()
