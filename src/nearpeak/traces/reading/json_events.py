"""Streamed reading of a JSON event file: token batches, interned texts and top-level metadata."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nearpeak.base.compilation import has_compiler
from nearpeak.core.traces.trace import Loss
from nearpeak.errors import MissingExtraError, SpecError
from nearpeak.traces.reading import json_scan, json_tokens
from nearpeak.traces.reading.byte_stream import BLOCK_BYTES, blocks
from nearpeak.traces.reading.small_json import MOST_BYTES, NotPlainError, small_file
from nearpeak.traces.timeline.trace_columns import Texts

_MOST_BYTES = 1 << 26
"""An event or a value beside the list that is longer is damage."""
_GUESSES = 1 << 10
"""Keys of which the one that came after it last, and its last text, are remembered."""
_SPACE = b" \t\r\n"
Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Some events as tokens, one entry per field of an event."""

    event_count: int
    """How many events."""
    event: Array
    """Event of each token, counted from 0."""
    key: Array
    """Number of the text that is its key."""
    kind: Array
    """Kind as `_scan` names them; `NESTED` is added for those of `args`."""
    value: Array
    """Whole number, number of a text, or bits of a float."""


class EventFile:
    """Reads a file of events once, from its start to its end."""

    def __init__(self, path: Path) -> None:
        """Keep where to read; nothing is read yet."""
        self._path, self.losses = path, list[Loss]()
        self.metadata: dict[str, Any] = {}
        """What stands beside the list of events; filled while batches are read."""
        self.record_count = 0
        self._data = np.zeros(0, np.uint8)
        self._at, self._offset, self._ended, self._closed = 0, 0, False, False
        self._tables = _tables(1 << 16, 1 << 22)
        values = np.zeros(1 << 20, np.int64)
        self._tokens = (
            np.zeros(1 << 20, np.int32),
            np.zeros(1 << 20, np.int32),
            np.zeros(1 << 20, np.uint8),
            values,
            values.view(np.float64),
        )
        self._counts = np.zeros(8, np.int64)
        self._empty: int | None = None
        self._ahead: bytes | None = None
        self._guesses = np.full(_GUESSES, -1, np.int32), np.full(_GUESSES, -1, np.int32)
        self._blocks = blocks(path, self.losses)

    @property
    def texts(self) -> Texts:
        """Return the texts by number; numbers of batches read so far keep their meaning."""
        used = int(self._counts[json_scan.TEXTS])
        raw = self._tables[3][: self._counts[json_scan.ARENA]].tobytes()
        return Texts(raw, self._tables[2][:used].copy(), self._tables[2][1 : used + 1].copy())

    def empty(self) -> int:
        """Return the number of the empty text, the name of events without a name."""
        if self._empty is not None:
            return self._empty
        while (number := json_scan.intern(self._data[:0], 0, 0, *self._tables, self._counts)) < 0:
            self._grow()
        return int(number)

    def text(self, number: int) -> str:
        """Return one text while the file is being read."""
        starts = self._tables[2]
        return Texts(self._tables[3], starts[:-1], starts[1:])[number]

    def batches(self) -> Iterator[Batch]:
        """Yield the events of the file, then note what was damaged.

        Raises:
            SpecError: the file holds no list of events.
        """
        self._more()
        if (batch := self._small_file()) is not None:
            self._ended = self._closed = True
            yield batch
            return
        if not has_compiler():
            raise MissingExtraError(
                f"{self._path.name}: event files over {MOST_BYTES >> 20} MB, and damaged ones, need compiled code; "
                "install nearpeak[speed]"
            )
        self._skip_blank()
        if (first := self._peek()) == "[":
            self._at += 1
            yield from self._list()
        elif first == "{":
            self._at += 1
            yield from self._object()
        else:
            raise SpecError(
                f"{self._path.name}: is no JSON; an object with traceEvents or a list of events begins "
                f"with {{ or [, this with {first!r}"
            )
        self._note()

    def _small_file(self) -> Batch | None:
        """Return all events of a small file that is well-formed; none of another, of which nothing is read then."""
        if len(self._data) > MOST_BYTES or self._more_behind():
            return None
        try:
            file = small_file(self._data.tobytes())
        except NotPlainError:
            return None
        file.texts.setdefault("", len(file.texts))
        self._empty = file.texts[""]
        arena = "".join(file.texts).encode("latin-1")
        starts = np.cumsum([0, *map(len, file.texts)])
        self._tables = self._tables[0], self._tables[1], starts, np.frombuffer(arena, np.uint8)
        self._counts[json_scan.TEXTS], self._counts[json_scan.ARENA] = len(file.texts), len(arena)
        self.metadata |= {key: _plain(value.encode("latin-1")) for key, value in file.metadata.items()}
        self.record_count = file.event_count
        return Batch(
            event_count=file.event_count, event=np.array(file.event, np.int32), key=np.array(file.key, np.int32),
            kind=np.array(file.kind, np.uint8), value=np.array(file.value, np.int64),
        )  # fmt: skip

    def _object(self) -> Iterator[Batch]:
        """Read keys and values of the outermost object, and the events where they come."""
        while True:
            self._skip_blank()
            if (mark := self._peek()) in ("}", ""):
                self._closed = mark == "}"
                return
            if mark == ",":
                self._at += 1
                continue
            start, stop, place, after = (int(value) for value in self._top())
            if start < 0:
                self._lost("value beside the events", "is damaged; events after it were looked for")
                yield from self._list()
                continue
            key = self._data[start:stop].tobytes().decode("utf-8", "replace")
            self._at = after
            if place == after:
                self._at += 1
                yield from self._list()
            else:
                self.metadata[key] = _plain(self._data[place:after].tobytes())

    def _top(self) -> Any:
        while (positions := json_tokens.top_level(self._data, self._at, len(self._data), self._ended))[0] == -2:
            if len(self._data) - self._at > _MOST_BYTES or not self._more():
                return -1, -1, 0, 0
        return positions

    def _list(self) -> Iterator[Batch]:
        """Read events until their list closes or the file ends."""
        while True:
            why, self._at = json_tokens.scan(
                self._data,
                self._at,
                len(self._data),
                self._ended,
                self._offset,
                (*self._tables, *self._guesses),
                self._tokens,
                self._counts,
            )
            yield self._batch()
            if why == json_scan.FULL:
                self._grow()
            elif why == json_scan.DONE:
                self._closed = True
                return
            elif len(self._data) - self._at > _MOST_BYTES:
                self._lost("event", f"is longer than {_MOST_BYTES} bytes")
                self._at += 1
            elif not self._more():
                return

    def _batch(self) -> Batch:
        """Return the tokens since the last batch; they are copied, the tables are filled again."""
        counts = self._counts
        used, events = int(counts[json_scan.TOKENS]), int(counts[json_scan.EVENTS])
        counts[json_scan.TOKENS], counts[json_scan.EVENTS] = 0, 0
        self.record_count += events
        event, key, kind, value = (tokens[:used].copy() for tokens in self._tokens[:4])
        return Batch(event_count=events, event=event, key=key, kind=kind, value=value)

    def _grow(self) -> None:
        """Double the tables of texts where they, and not the tokens, were full."""
        _, hashes, starts, arena = self._tables
        if self._counts[json_scan.TEXTS] * 2 < len(hashes) and self._counts[json_scan.ARENA] * 2 < len(arena):
            return
        grown = _tables(2 * len(hashes), 2 * len(arena))
        used = int(self._counts[json_scan.TEXTS])
        grown[1][:used], grown[2][: used + 1], grown[3][: len(arena)] = hashes[:used], starts[: used + 1], arena
        json_scan.refill(grown[0], grown[1], used)
        self._tables = grown

    def _more(self) -> bool:
        """Put the next block behind what is not read yet; say whether there was one."""
        block = next(self._blocks, None) if self._ahead is None else self._ahead
        self._ahead = None
        self._offset += self._at
        rest = self._data[self._at :]
        self._at = 0
        if block is None:
            self._data, was = rest, self._ended
            self._ended = True
            return not was
        self._data = np.concatenate([rest, np.frombuffer(block, np.uint8)])
        return True

    def _more_behind(self) -> bool:
        """Return whether another block follows, which is kept for later."""
        self._ahead = next(self._blocks, None)
        return self._ahead is not None

    def _skip_blank(self) -> None:
        while True:
            while self._at < len(self._data) and self._data[self._at] in _SPACE + b"\xef\xbb\xbf":
                self._at += 1
            if self._at < len(self._data) or not self._more():
                return

    def _peek(self) -> str:
        return chr(self._data[self._at]) if self._at < len(self._data) else ""

    def _lost(self, kind: str, why: str) -> None:
        self.losses.append(
            Loss(what="dropped", kind=kind, record_count=1, example=f"byte {self._offset + self._at} {why}")
        )

    def _note(self) -> None:
        """Note damage that was met on the way."""
        if broken := int(self._counts[json_scan.BROKEN]):
            where = f"byte {self._counts[json_scan.FIRST_BROKEN]}"
            self.losses.append(Loss(what="dropped", kind="event that is not JSON", record_count=broken, example=where))
        if quotes := int(self._counts[json_scan.QUOTES]):
            self.losses.append(Loss(what="repaired", kind="text with quotes that are not escaped", record_count=quotes))
        if not self._closed:
            self.losses.append(
                Loss(
                    what="dropped",
                    kind="end of the file",
                    record_count=1,
                    example=f"the JSON ends early, after {self._offset + self._at} bytes",
                )
            )


def _tables(texts: int, arena: int) -> tuple[Array, Array, Array, Array]:
    """Return empty tables for `texts` texts of `arena` bytes in all."""
    table = np.full(4 * texts, -1, np.int32)
    return table, np.zeros(texts, np.uint64), np.zeros(texts + 1, np.int64), np.zeros(arena, np.uint8)


def _plain(raw: bytes) -> Any:
    """Return a top-level value of the file; one that is not JSON, as text."""
    text = raw.decode("utf-8", "replace").strip()
    try:
        return json.loads(text, strict=False)
    except (ValueError, RecursionError):
        return text


__all__ = ["BLOCK_BYTES", "Batch", "EventFile"]
