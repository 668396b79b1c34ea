"""Mapping of dataclass records to table columns: renamed columns, nested values as JSON text."""

import json
from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any, Generic, TypeVar, get_type_hints

from nearpeak.base.canonical_json import canonical_json
from nearpeak.core.records.record_codec import Codec

T = TypeVar("T")
_CODEC = Codec()


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
        self._cls, self._texts = cls, {name: _CODEC.converter(hints[name]) for name in texts}
        stored = [field.name for field in fields(cls) if field.name not in omitted]  # type: ignore[arg-type]
        self.names = {name: names.get(name, name) for name in stored}

    def row(self, value: T, *without: str) -> dict[str, Any]:
        """Return the columns of `value`.

        Args:
            without: fields that the table fills itself.
        """
        row = {column: getattr(value, name) for name, column in self.names.items() if name not in without}
        for name, converter in self._texts.items():
            part = row[self.names[name]]
            row[self.names[name]] = canonical_json(part if converter.write is None else converter.write(part))
        return row

    def value(self, row: Mapping[Any, Any], **more: Any) -> T:
        """Return the value of a row.

        Args:
            more: fields that are in no column.
        """
        values = {name: row[column] for name, column in self.names.items() if name not in more}
        for name, converter in self._texts.items():
            values[name] = converter.read(json.loads(values[name]))
        return self._cls(**values, **more)
