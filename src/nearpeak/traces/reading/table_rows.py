"""Rows of tables as trace columns: cells of any type as whole numbers or as missing."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from nearpeak.core.traces.trace import EventKind, Loss, TraceHeader
from nearpeak.traces.reading.event_fields import number_of
from nearpeak.traces.reading.missing_data import lacks_of
from nearpeak.traces.reading.trace_builder import _Raw, trace_of
from nearpeak.traces.timeline.trace_columns import MISSING, Column, Texts, Trace

Array = npt.NDArray[Any]
_LARGEST = 2**62
_DENSE = ("process", "thread", "device", "stream", "correlation")


def whole(cell: object, scale: int = 1) -> int:
    """Return a cell times `scale` as a whole number, `MISSING` where it is none.

    >>> whole("1,024"), whole(7), whole(2.0), whole(None) == MISSING, whole("0.0288488", 10**6)
    (1024, 7, 2, True, 28849)
    """
    if type(cell) is int:
        return cell * scale if -_LARGEST < cell * scale < _LARGEST else MISSING
    if isinstance(cell, (str, float)):
        return number_of(cell if isinstance(cell, str) else repr(cell), scale)
    return MISSING


def integers(cells: Iterable[object], scale: int = 1) -> Array:
    """Return cells times `scale` as whole numbers, `MISSING` where one is none."""
    return np.array([whole(cell, scale) for cell in cells], np.int64)


def real_numbers(cells: Iterable[object]) -> Array:
    """Return cells as floats, NaN where one is no finite number."""
    return np.array([_real(cell) for cell in cells], np.float64)


def _real(cell: object) -> float:
    try:
        value = float(str(cell).replace(",", "")) if isinstance(cell, (int, float, str)) else np.nan
    except ValueError:
        return float("nan")
    return value if np.isfinite(value) else float("nan")


class EventRows:
    """Collects events table by table."""

    def __init__(self) -> None:
        """Begin without events."""
        self._numbers: dict[str, int] = {}
        self._parts: list[dict[str, Array]] = []
        self._sparse: dict[str, list[Column]] = {}
        self._counts: Counter[tuple[str, str]] = Counter()
        self._examples: dict[tuple[str, str], str] = {}
        self.count = 0
        self.record_count = 0

    def text(self, text: object) -> int:
        """Return the number of a text."""
        return self._numbers.setdefault(str(text), len(self._numbers))

    def lose(self, what: str, kind: str, count: int = 1, example: str = "") -> None:
        """Note something that is not in the trace, or not as it stood in the file."""
        self._counts[what, kind] += count
        self._examples.setdefault((what, kind), example)

    def add(
        self, kind: EventKind | Array, names: Sequence[object], start: Array, end: Array, *,
        rare: Mapping[str, Array] | None = None, texts: Mapping[str, Sequence[object]] | None = None, **dense: Array,
    ) -> None:  # fmt: skip
        """Take the events of a table.

        Args:
            rare: fields by name; `MISSING` and NaN are left out.
            texts: fields that are texts; none is left out.
            dense: any of process, thread, device, stream and correlation.
        """
        size = len(start)
        part = {name: dense.get(name, np.full(size, MISSING, np.int64)) for name in _DENSE}
        part["kind"] = np.full(size, int(kind), np.int64) if isinstance(kind, EventKind) else kind
        part["name"] = np.array([self.text(event_name) for event_name in names], np.int64)
        part["start_ns"], part["end_ns"] = start, end
        self._parts.append(part)
        for name, values in (rare or {}).items():
            self._keep(name, values, absent=np.isnan(values) if values.dtype.kind == "f" else values == MISSING)
        for name, cells in (texts or {}).items():
            numbers = np.array([-1 if cell is None else self.text(cell) for cell in cells], np.int64)
            self._keep(name, numbers, absent=numbers < 0, text=True)
        self.count += size

    def _keep(self, name: str, values: Array, *, absent: Array, text: bool = False) -> None:
        gone = absent.any(axis=1) if absent.ndim > 1 else absent
        rows = np.flatnonzero(~gone)
        if len(rows):
            column = Column(rows=rows + self.count, values=values[rows], text=text)
            self._sparse.setdefault(name, []).append(column)

    def trace(self, header: TraceHeader) -> Trace:
        """Return the trace of all tables."""
        columns = {name: np.concatenate([part[name] for part in self._parts]) if self._parts else np.zeros(0, np.int64)
                   for name in (*_DENSE, "kind", "name", "start_ns", "end_ns")}  # fmt: skip
        raw = _Raw(**columns, sparse={name: Column.joined(parts) for name, parts in self._sparse.items()})
        losses = [
            Loss(what=what, kind=kind, record_count=count, example=self._examples[what, kind])
            for (what, kind), count in sorted(self._counts.items())
        ]
        whole_header = replace(header, losses=(*header.losses, *losses), record_count=self.record_count or self.count)
        trace = trace_of(raw, Texts.of(list(self._numbers)), whole_header)
        return replace(trace, header=replace(trace.header, lacks=lacks_of(trace)))
