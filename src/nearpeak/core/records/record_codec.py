"""Codec of records: dataclasses to plain JSON data and back by the types of their fields, with schema versions."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from nearpeak.core.records.converter import (
    SCALARS,
    WORDS,
    Converter,
    MisfitError,
    choice,
    fixed_converter,
    list_converter,
    mapping_converter,
    misfit,
    one_of,
    optional_converter,
    pairs_converter,
    read_items,
    within,
)
from nearpeak.errors import SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Differences of a dataclass's records from plain objects that hold every field under its own name."""

    names: Mapping[str, str] = field(default_factory=dict)
    """Key in the record by field, where it is another one."""
    brief: Collection[str] = ()
    """Fields that are left out where they have their default value, or none where they have no default."""
    omitted: Mapping[str, Any] = field(default_factory=dict)
    """Fields that records do not contain, with the value that they are read as."""
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
        """Set the options of a file format.

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

        >>> Codec().plain((1.0, float("nan")), tuple[float, ...])
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
        known = self._made.get(hint)
        if known is None:
            known = self._made[hint] = self._types.get(hint) or self._converter(hint)
        return known

    def _converter(self, hint: Any) -> Converter:
        origin, arguments = get_origin(hint), get_args(hint)
        if hint in SCALARS:
            made = SCALARS[hint]
        elif isinstance(hint, type):
            made = self._class(hint)
        elif origin is Literal:
            made = one_of(arguments)
        elif origin in (Union, UnionType):
            made = self._union(arguments)
        elif origin is tuple and arguments[-1] is not ...:
            made = fixed_converter([self.converter(argument) for argument in arguments])
        elif isinstance(origin, type) and issubclass(origin, Mapping):
            made = mapping_converter(self.converter(arguments[1]))
        elif isinstance(origin, type) and issubclass(origin, Sequence):
            item, parts = arguments[0], get_args(arguments[0])
            if self._pairs_as_objects and get_origin(item) is tuple and len(parts) == 2 and parts[0] is str:
                made = pairs_converter(self.converter(parts[1]))
            else:
                made = list_converter(item, self.converter(item))
        else:
            raise TypeError(f"record: no conversion of {hint!r}")
        return made

    def _class(self, cls: Any) -> Converter:
        if is_dataclass(cls):
            return self._dataclass(cls)
        if issubclass(cls, Enum):
            return Converter(lambda value: value.value, choice({member.value: member for member in cls}))
        if issubclass(cls, tuple) and hasattr(cls, "_fields"):
            hints = get_type_hints(cls)
            write, read = fixed_converter([self.converter(hints[name]) for name in cls._fields])
            return Converter(write, lambda raw: cls(*read(raw)))
        raise TypeError(f"record: no conversion of {cls!r}")

    def _dataclass(self, cls: Any) -> Converter:
        shape, hints = self._shapes.get(cls, Shape()), get_type_hints(cls)
        defaults = {attribute.name: _default(attribute) for attribute in fields(cls)}
        undefined = {name for name, default in defaults.items() if default is MISSING}
        absent = {**dict.fromkeys(undefined & {*shape.brief}), **shape.omitted}
        entries = [
            _Entry(
                name=attribute.name, key=shape.names.get(attribute.name, attribute.name),
                converter=shape.fields.get(attribute.name) or self.converter(hints[attribute.name]),
                default=absent.get(attribute.name, defaults[attribute.name]), is_brief=attribute.name in shape.brief,
                is_required=attribute.name in undefined - absent.keys() or attribute.name in shape.required,
            )
            for attribute in fields(cls) if attribute.name not in shape.omitted
        ]  # fmt: skip
        if shape.as_row:
            return Converter(_row_writer(entries), _row_reader(cls, entries, absent))
        read = _object_reader(cls, entries, absent, strict=self._strict, null_is_absent=self._null_is_absent)
        return Converter(_object_writer(entries), read)

    def _union(self, members: Sequence[Any]) -> Converter:
        """Return the converter of a value of several types: written by its own type, read by the shape of the data."""
        inner = [(member, self.converter(member)) for member in members if member is not NoneType]
        if len(inner) == 1:
            return optional_converter(inner[0][1])
        by_class = {_class_of(member): converter.write for member, converter in inner}

        def write(value: Any) -> Any:
            writer = by_class.get(type(value))
            return value if writer is None else writer(value)

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
    return tuple(attribute.name for attribute in fields(cls) if _default(attribute) is not MISSING)


def _default(attribute: Field[Any]) -> Any:
    return attribute.default if attribute.default_factory is MISSING else attribute.default_factory()


def _class_of(hint: Any) -> Any:
    return get_origin(hint) or hint


def _union_reader(members: Sequence[Any], inner: Sequence[tuple[Any, Converter]]) -> Callable[[Any], Any]:
    readers = {member: converter.read for member, converter in inner}
    if float in readers:
        readers.setdefault(int, readers[float])
    lists = [inner_converter.read for member, inner_converter in inner if _class_of(member) in (tuple, Sequence)]
    objects = [
        ({attribute.name for attribute in fields(member)} - {*defaulted(member)}, inner_converter.read)
        for member, inner_converter in inner
        if is_dataclass(member)
    ]
    objects += [
        (set(), inner_converter.read) for member, inner_converter in inner if _class_of(member) in (dict, Mapping)
    ]
    is_optional = NoneType in members
    wanted = " or ".join(WORDS.get(member, getattr(member, "__name__", str(member))) for member, _ in inner)

    def read(raw: Any) -> Any:
        kind = type(raw)
        if raw is None and is_optional:
            return None
        if kind in readers:
            return readers[kind](raw)
        if kind is list and lists:
            return lists[0](raw)
        if kind is dict:
            for keys, reader in objects:
                if keys <= raw.keys():
                    return reader(raw)
        raise misfit(raw, wanted)

    return read


def _object_writer(entries: Sequence[_Entry]) -> Callable[[Any], dict[str, Any]]:
    always = [(entry.name, entry.key, entry.converter.write) for entry in entries if not entry.is_brief]
    brief = [(entry.name, entry.key, entry.converter.write, entry.default) for entry in entries if entry.is_brief]

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
    cls: Any, entries: Sequence[_Entry], absent: Mapping[str, Any], *, strict: bool, null_is_absent: bool
) -> Callable[[Any], Any]:
    readers = {entry.key: (entry.name, entry.converter.read) for entry in entries}
    required = [entry.key for entry in entries if entry.is_required]
    listed = ", ".join(readers)

    def read(raw: Any) -> Any:
        if type(raw) is not dict:
            raise misfit(raw, f"an object with {listed}")
        if null_is_absent:
            raw = {key: part for key, part in raw.items() if part is not None or key not in readers}
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
        return cls(**{**absent, **values})

    return read


def _row_writer(entries: Sequence[_Entry]) -> Callable[[Any], list[Any]]:
    def write(value: Any) -> list[Any]:
        row = []
        for entry in entries:
            part, convert = getattr(value, entry.name), entry.converter.write
            if entry.is_brief and part == entry.default:
                break
            row.append(part if convert is None else convert(part))
        return row

    return write


def _row_reader(cls: Any, entries: Sequence[_Entry], absent: Mapping[str, Any]) -> Callable[[Any], Any]:
    least = sum(not entry.is_brief for entry in entries)
    names, readers = [entry.name for entry in entries], [entry.converter.read for entry in entries]
    listed = ", ".join(entry.key for entry in entries)

    def read(raw: Any) -> Any:
        if type(raw) is not list or not least <= len(raw) <= len(entries):
            raise misfit(raw, f"a list of {listed}")
        return cls(**{**absent, **dict(zip(names, read_items(raw, readers), strict=False))})

    return read


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """Kind and schema version of saved records, and the migrations from older versions."""

    kind: str
    """Text that identifies records of this kind."""
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
        """Return kind and version, the first entries of a record."""
        return {self.kind_key: self.kind, self.version_key: self.version}

    def claimed(self, raw: object) -> bool:
        """Say whether data claim to be such a record, of any version."""
        return isinstance(raw, dict) and raw.get(self.kind_key) == self.kind

    def current(self, raw: Any, where: str) -> dict[str, Any]:
        """Return a record of any known version migrated to the current one, without kind and version.

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
