"""Trace schema: one row per event in order of start, interned texts, sparse columns for rare fields."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from nearpeak.base.input_files import json_value
from nearpeak.core.traces.trace import (  # fmt: skip
    DEVICE_KINDS,
    Collective,
    CopyKind,
    Event,
    EventKind,
    Family,
    Memory,
    SyncKind,
    TraceHeader,
)

Ints = npt.NDArray[np.int64]
Rows = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

MISSING = np.iinfo(np.int64).min
"""What integer columns hold where the file says nothing; identifiers may be negative, so -1 would not do."""
NO_ROW = -1
"""What columns of row numbers (`launch`, `parent`) hold where there is none."""


class Texts:
    """Distinct texts by number, decoded lazily."""

    __slots__ = ("_decoded", "_ends", "_raw", "_starts")

    def __init__(self, raw: Any, starts: Ints, ends: Ints, decoded: dict[int, str] | None = None) -> None:
        """Keep texts as the file has them (escapes and all) and where in `raw` each begins and ends."""
        self._raw, self._starts, self._ends = raw, starts, ends
        self._decoded: dict[int, str] = {} if decoded is None else decoded

    @classmethod
    def of(cls, texts: Sequence[str]) -> "Texts":
        """Return the table of `texts`, numbered in order.

        >>> Texts.of(["relu", "gemm"])[1]
        'gemm'
        """
        nothing = np.zeros(len(texts), np.int64)
        return cls(b"", nothing, nothing, dict(enumerate(texts)))

    def with_more(self, texts: Sequence[str]) -> "Texts":
        """Return the table with `texts` appended.

        >>> Texts.of(["relu"]).with_more(["gemm"])[1]
        'gemm'
        """
        nothing = np.zeros(len(texts), np.int64)
        decoded = self._decoded | {len(self) + place: text for place, text in enumerate(texts)}
        return Texts(self._raw, np.concatenate([self._starts, nothing]), np.concatenate([self._ends, nothing]), decoded)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._starts)

    def __getitem__(self, index: int) -> str:
        """Return the text with number `index`."""
        if index not in self._decoded:
            self._decoded[index] = _decoded(bytes(self._raw[self._starts[index] : self._ends[index]]))
        return self._decoded[index]


def _decoded(raw: bytes) -> str:
    """Return a text of a JSON file; damage of its encoding is shown, not hidden."""
    text = raw.decode("utf-8", "replace")
    if "\\" not in text:
        return text
    try:
        return str(json_value(f'"{text}"', strict=False))
    except ValueError:
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A field that few events have: their rows, ascending, and a value for each."""

    rows: Rows
    """Rows of the events that have it."""
    values: npt.NDArray[Any]
    """Values: integers, floats, or numbers of texts where `text` says so; grids and blocks have three each."""
    text: bool = False
    """Whether values are numbers of texts."""

    @classmethod
    def joined(cls, parts: Sequence["Column"]) -> "Column":
        """Return the entries of several columns of one kind, in order."""
        rows, values = (np.concatenate([getattr(part, name) for part in parts]) for name in ("rows", "values"))
        return cls(rows=rows, values=values, text=parts[0].text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Events of one source in order of (start, longer first, place in the file); all columns have one entry per event.

    Dense columns are attributes. Fields that few events have are in `sparse` by name and read by `values`:
    `context grid block registers shared_bytes bytes copy_kind source_memory target_memory sync external sequence
    forward_thread graph graph_node shapes dtypes strides concrete collective ... wait_stream`, and everything that no
    rule lifts under the file's own name. Integers that are absent are `MISSING`, floats NaN, texts -1.
    """

    header: TraceHeader
    """What the file says of itself."""
    texts: Texts
    """Names and other texts by number."""
    kind: npt.NDArray[np.int8]
    """`EventKind` of each event."""
    name: npt.NDArray[np.int32]
    """Number of the text that is its name."""
    family: npt.NDArray[np.int8]
    """`Family` of each event, by its name."""
    start_ns: Ints
    """Starts, nanoseconds of the trace's clock."""
    end_ns: Ints
    """Ends, never before the start."""
    process: Ints
    """Processes, of host events, and of device events where the file says."""
    thread: Ints
    """Threads, of host events."""
    device: Ints
    """Devices, of device events; `MISSING` where the file does not say."""
    stream: Ints
    """Streams, of device events."""
    correlation: Ints
    """Correlations of calls with device work; unique inside one process only."""
    launch: npt.NDArray[np.int32]
    """Row of the call that enqueued a device event; `NO_ROW` where none was recorded."""
    parent: npt.NDArray[np.int32]
    """Row of the innermost host event of the same thread that encloses a host event."""
    sparse: Mapping[str, Column] = field(default_factory=dict)
    """Fields that few events have, by name."""

    def __len__(self) -> int:
        """Return how many events there are."""
        return len(self.kind)

    @property
    def duration_ns(self) -> Ints:
        """Return the length of each event."""
        return self.end_ns - self.start_ns

    def rows(self, *kinds: EventKind) -> Rows:
        """Return the rows of the events of these kinds, in order of start."""
        return np.flatnonzero(self.of_kind(*kinds))

    def of_kind(self, *kinds: EventKind) -> Mask:
        """Return which events are of these kinds."""
        return np.isin(self.kind, np.array(kinds, np.int8))

    def named_rows(self, pattern: re.Pattern[str], *kinds: EventKind) -> Rows:
        """Return the rows of the events of these kinds whose name `pattern` finds, in order of start."""
        return np.flatnonzero(self.of_kind(*kinds) & self.matching_names(pattern)[self.name])

    def outermost(self, rows: Rows) -> Mask:
        """Return which of `rows` have no operator of a framework as their parent."""
        parent = self.parent[rows]
        return np.asarray((parent == NO_ROW) | (self.kind[parent] != EventKind.HOST_OP))

    def device_rows(self) -> Rows:
        """Return the rows of kernels, copies and fills."""
        return self.rows(*DEVICE_KINDS)

    def has(self, name: str) -> bool:
        """Say whether any event has the rare field `name`."""
        return name in self.sparse

    def values(self, name: str, rows: Rows | None = None) -> npt.NDArray[Any]:
        """Return a rare field of all events, or of `rows`: `MISSING`, NaN or -1 (texts) where an event has none."""
        column = self.sparse.get(name)
        if column is None:
            return np.full(len(self) if rows is None else len(rows), MISSING, np.int64)
        absent = -1 if column.text else np.nan if column.values.dtype.kind == "f" else MISSING
        if rows is None:
            values = np.full((len(self), *column.values.shape[1:]), absent, column.values.dtype)
            values[column.rows] = column.values
            return values
        return _picked(column, rows, absent)

    def where(self, test: Callable[[str], bool]) -> Mask:
        """Return which events have a name that passes `test`; each distinct name is tested once."""
        return self.name_table(test)[self.name]

    def name_table(self, test: Callable[[str], bool]) -> Mask:
        """Return for each text whether it passes `test`; texts that are no event's name count as no."""
        table = np.zeros(len(self.texts), np.bool_)
        for index in np.flatnonzero(np.bincount(self.name, minlength=len(self.texts))):
            table[index] = test(self.texts[int(index)])
        return table

    def matching_names(self, pattern: re.Pattern[str]) -> Mask:
        """Return for each text whether it is the name of an event and `pattern` finds it."""
        return self.name_table(lambda text: bool(pattern.search(text)))

    def name_of(self, row: int) -> str:
        """Return the name of an event."""
        return self.texts[int(self.name[row])]

    def text_of(self, name: str, row: int) -> str:
        """Return a rare field that is a text; empty where the event has none."""
        value = self.at(name, row)
        return "" if value is None else str(value)

    def at(self, name: str, row: int) -> Any:
        """Return a rare field of one event; none where it has none."""
        column = self.sparse.get(name)
        if column is None:
            return None
        place = int(np.searchsorted(column.rows, row))
        if place == len(column.rows) or column.rows[place] != row:
            return None
        value = column.values[place]
        if column.text:
            return self.texts[int(value)]
        return tuple(value.tolist()) if value.ndim else value.item()

    def event(self, row: int) -> Event:
        """Return one event with all its fields."""
        row = int(row)
        known: dict[str, Any] = {
            target: kind(value) for target, kind in _ENUMS.items() if (value := self.at(target, row)) is not None
        }
        lists: dict[str, Any] = {name: listed(text) for name in _LISTS if (text := self.at(name, row)) is not None}
        return Event(
            id=row, kind=EventKind(self.kind[row]), name=self.name_of(row), family=Family(self.family[row]),
            start_ns=int(self.start_ns[row]), end_ns=int(self.end_ns[row]), process=_known(self.process[row]),
            thread=_known(self.thread[row]), device=_known(self.device[row]), stream=_known(self.stream[row]),
            correlation=_known(self.correlation[row]), launch=_row(self.launch[row]), parent=_row(self.parent[row]),
            context=self.at("context", row), grid=self.at("grid", row), block=self.at("block", row),
            bytes=self.at("bytes", row), collective=self._collective(row), args=self._args(row), **known, **lists,
        )  # fmt: skip

    def events(self, rows: Iterable[int]) -> tuple[Event, ...]:
        """Return events with all their fields."""
        return tuple(self.event(row) for row in rows)

    def _collective(self, row: int) -> Collective | None:
        if (operation := self.at("collective", row)) is None:
            return None
        return Collective(
            operation=operation, dtype=self.text_of("collective_dtype", row),
            in_element_count=self.at("collective_in", row), out_element_count=self.at("collective_out", row),
            group_size_count=self.at("group_size", row), group=self.text_of("group", row),
            ranks=self.text_of("group_ranks", row),
        )  # fmt: skip

    def _args(self, row: int) -> dict[str, Any]:
        rest = (name for name in self.sparse if name not in _LIFTED)
        return {name: value for name in rest if (value := self.at(name, row)) is not None}


_ENUMS: Mapping[str, Callable[[int], Any]] = {
    "copy_kind": CopyKind, "source_memory": Memory, "target_memory": Memory, "sync": SyncKind,
}  # fmt: skip
_LISTS = ("shapes", "dtypes", "strides", "concrete")
_LIFTED = frozenset(
    (*_ENUMS, *_LISTS, "forward", "context", "grid", "block", "bytes", "collective", "collective_dtype",
     "collective_in", "collective_out", "group_size", "group", "group_ranks")
)  # fmt: skip


def listed(text: str) -> tuple[Any, ...]:
    """Return a JSON list as nested tuples; a text that is none, alone in a tuple.

    >>> listed("[[2, 3], []]"), listed("half a list [")
    (((2, 3), ()), ('half a list [',))
    """
    try:
        value = json_value(text)
    except ValueError:
        return (text,)
    return _tuples(value) if isinstance(value, list) else (value,)


def _tuples(values: list[Any]) -> tuple[Any, ...]:
    return tuple(_tuples(value) if isinstance(value, list) else value for value in values)


def _picked(column: Column, rows: Rows, absent: float) -> npt.NDArray[Any]:
    """Return the values of `rows`, which may come in any order."""
    picked = np.full((len(rows), *column.values.shape[1:]), absent, column.values.dtype)
    if len(column.rows):
        places = np.minimum(np.searchsorted(column.rows, rows), len(column.rows) - 1)
        here = column.rows[places] == rows
        picked[here] = column.values[places[here]]
    return picked


def _known(value: np.int64) -> int | None:
    return None if value == MISSING else int(value)


def _row(value: np.int32) -> int | None:
    return None if value == NO_ROW else int(value)
