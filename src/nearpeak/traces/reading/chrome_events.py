"""Columns of Chrome trace events as Kineto, onnxruntime and others write them, batch by batch."""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from nearpeak.core.traces.trace import (  # fmt: skip
    DEVICE_KINDS,
    READ_AS_WORK,
    CopyKind,
    EventKind,
    Loss,
    Memory,
    SyncKind,
    TraceHeader,
)
from nearpeak.traces.reading import json_scan
from nearpeak.traces.reading.event_fields import Field, Fields, dense, fields_of, numbers, text_numbers
from nearpeak.traces.reading.flow_arrows import FlowKind, Flows, with_flows
from nearpeak.traces.reading.json_events import Batch, EventFile
from nearpeak.traces.reading.missing_data import lacks_of
from nearpeak.traces.reading.trace_builder import _Raw, trace_of
from nearpeak.traces.timeline.kernel_names import copy_of, work_kind_of
from nearpeak.traces.timeline.trace_columns import MISSING, Column, Trace

Array = npt.NDArray[Any]
_NO_STREAM = (-1, 2**32 - 1, 2**64 - 1)
_DENSE = ("device", "stream", "correlation")
_NUMBERS: Mapping[str, str] = {
    "External id": "external", "external id": "external", "context": "context", "bytes": "bytes", "Bytes": "bytes",
    "registers per thread": "registers", "shared memory": "shared_bytes", "Sequence number": "sequence",
    "Fwd thread id": "forward_thread", "In msg nelems": "collective_in", "Out msg nelems": "collective_out",
    "Group size": "group_size", "wait_on_stream": "wait_stream", "graph id": "graph", "graph node id": "graph_node",
    "wait_on_cuda_event_record_corr_id": "wait_record",
}  # fmt: skip
"""Whole numbers of `args` that have a name of ours."""
_TEXTS: Mapping[str, str] = {
    "Input Dims": "shapes", "Input dims": "shapes", "Input type": "dtypes", "Input types": "dtypes",
    "Input Strides": "strides", "Concrete Inputs": "concrete", "Collective name": "collective",
    "dtype": "collective_dtype", "Process Group Name": "group", "Process Group Ranks": "group_ranks",
}  # fmt: skip
"""Texts and lists of `args` that have a name of ours."""
_TRIPLES = ("grid", "block", "cluster")
_UNKNOWN = "?category"
"""How reasons begin for which an event of an unknown category is left out."""
_NO_WORK = re.compile(r"(sync|event|annotation|range|counters?|runtime|driver|api|overhead|correlation|instant)'$")
"""Ends of categories that name a device and a stream without keeping the device busy."""
_SYNC = {"event sync": SyncKind.EVENT, "stream wait event": SyncKind.STREAM_WAIT, "stream sync": SyncKind.STREAM,
         "context sync": SyncKind.CONTEXT, "device sync": SyncKind.CONTEXT}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """Interpretation rules of a format of Chrome events."""

    kind_of: Callable[[str, str], EventKind | str]
    """From phase and category to the kind, or to what is left out; with ? before it where no rule knows it."""
    record: str
    """What events are called in messages."""
    lifted: tuple[str, ...] = ()
    """Columns that stand in `args`, as our own export writes them."""
    device_is_process: bool = True
    """Whether device work that names no device has its number for a process, as Kineto prints it."""
    otherwise: EventKind | None = None
    """What an event of an unknown category is that names no device and stream; none where it is left out."""
    flows: Mapping[str, FlowKind] = field(default_factory=dict)
    """Which of what is left out are arrows between events: their kinds by the reason why they are no events."""


@dataclass(kw_only=True)
class _Part:
    """Columns of one batch."""

    dense: dict[str, Array]
    """One value per event kept."""
    sparse: dict[str, Column]
    """Rare fields."""


@dataclass(kw_only=True)
class _State:
    """State collected over the batches."""

    parts: list[_Part] = field(default_factory=list)
    """Columns of each batch."""
    left_out: Counter[str] = field(default_factory=Counter)
    """How many events were left out, by reason."""
    guessed: Counter[str] = field(default_factory=Counter)
    """How many events of unknown categories count as work of a device, by category."""
    kinds: dict[tuple[int, int], int] = field(default_factory=dict)
    """Kinds by the texts of phase and category; below 0 is left out."""
    reasons: list[str] = field(default_factory=list)
    """Reasons by number."""
    flows: list[Flows] = field(default_factory=list)
    """Arrows of each batch."""


class EventTable:
    """Collects batches of events into columns."""

    def __init__(self, file: EventFile, rules: Rules) -> None:
        """Keep the file whose texts the batches name."""
        self._file, self._rules, self._state = file, rules, _State()

    def add(self, batch: Batch) -> None:
        """Take the events of one batch."""
        if not batch.event_count:
            return
        fields, count = fields_of(batch), batch.event_count
        top = {self._file.text(key): column for (key, nested), column in fields.items() if not nested}
        kind = self._with_work(self._kinds(top, count), fields, top)
        kept_events = np.flatnonzero(kind >= 0)
        for number, left in zip(*np.unique(kind[kind < 0], return_counts=True), strict=True):
            reason = self._state.reasons[-int(number) - 1]
            self._state.left_out[reason] += int(left)
            if reason in self._rules.flows:
                self._state.flows.append(self._flows(top, np.flatnonzero(kind == number), self._rules.flows[reason]))
        if not len(kept_events):
            return
        columns = self._columns(top, count, kind)
        place = np.full(count, -1, np.int32)
        place[kept_events] = np.arange(len(kept_events), dtype=np.int32)
        sparse = self._sparse(fields, place, kind, columns)
        self._state.parts.append(
            _Part(dense={name: column[kept_events] for name, column in columns.items()}, sparse=sparse)
        )

    @classmethod
    def of_file(cls, path: Path, rules: Rules) -> tuple["EventTable", EventFile]:
        """Return all events of a file, and the file with its top-level metadata."""
        file = EventFile(path)
        table = cls(file, rules)
        for batch in file.batches():
            table.add(batch)
        return table, file

    def trace(self, header: TraceHeader) -> Trace:
        """Return the trace of all batches."""
        state, raw = self._state, _joined(self._state.parts)
        losses = []
        if nameless := int((raw.name < 0).sum()):
            raw.name = np.where(raw.name < 0, self._file.empty(), raw.name)
            losses.append(Loss(what="repaired", kind="event without a name", record_count=nameless))
        texts = self._file.texts
        _lift_names(raw, texts)
        losses += [
            Loss(what="unknown" if reason.startswith("?") else "skipped", kind=reason.lstrip("?"), record_count=count)
            for reason, count in sorted(state.left_out.items())
        ]
        losses += [
            Loss(what="unknown", kind=f"{category}, {READ_AS_WORK}", record_count=count)
            for category, count in sorted(state.guessed.items())
        ]
        trace = trace_of(raw, texts, replace(header, losses=(*header.losses, *self._file.losses, *losses)))
        trace = with_flows(trace, state.flows)
        return replace(trace, header=replace(trace.header, lacks=lacks_of(trace)))

    def _flows(self, top: Mapping[str, Field], rows: Array, what: FlowKind) -> Flows:
        """Return the ends of arrows among the events of a batch."""
        count, text = int(rows.max()) + 1, self._file.text
        upto = {name: _where(tokens, tokens.rows < count) for name, tokens in top.items()}
        phase = text_numbers(upto.get("ph"), count)[rows]
        begin = {int(value): text(int(value)) in ("s", "t") for value in np.unique(phase) if value >= 0}
        number, process, thread = (_numbers(upto.get(name), count, text)[rows] for name in ("id", "pid", "tid"))
        return Flows(
            what=np.full(len(rows), what, np.int8), begins=np.array([begin.get(int(value), False) for value in phase]),
            number=number, process=process, thread=thread,
            time_ns=_numbers(upto.get("ts"), count, text, thousand=True)[rows],
        )  # fmt: skip

    def _kinds(self, top: Mapping[str, Field], count: int) -> Array:
        """Return the kind of each event, or -1 - number of the reason for which it is left out."""
        phase, category = text_numbers(top.get("ph"), count), text_numbers(top.get("cat"), count)
        pairs, places = np.unique((phase + 1) << 32 | (category + 1), return_inverse=True)
        table = [self._kind(int(pair >> 32) - 1, int(pair & 0xFFFFFFFF) - 1) for pair in pairs]
        return np.array(table, np.int64)[places]

    def _with_work(self, kind: Array, fields: Fields, top: Mapping[str, Field]) -> Array:
        """Return the kinds with events of unknown categories as work of a device where they name one and a stream."""
        text, name = self._file.text, text_numbers(top.get("name"), len(kind))
        placed = {text(key): tokens.rows for (key, nested), tokens in fields.items() if nested}
        on_stream = np.intersect1d(placed.get("device", ()), placed.get("stream", ())).astype(np.int64)
        for number in np.unique(kind[kind < 0]):
            reason = self._state.reasons[-int(number) - 1]
            if not reason.startswith(_UNKNOWN):
                continue
            work = on_stream[kind[on_stream] == number] if not _NO_WORK.search(reason) else on_stream[:0]
            kind[work] = [work_kind_of(text(int(value)) if value >= 0 else "") for value in name[work]]
            self._state.guessed[reason.lstrip("?")] += len(work)
            if self._rules.otherwise is not None:
                kind[kind == number] = self._rules.otherwise
        self._state.guessed += Counter()  # categories without such events are no loss
        return kind

    def _kind(self, phase: int, category: int) -> int:
        known = self._state.kinds
        if (phase, category) not in known:
            name, group = (self._file.text(number) if number >= 0 else "" for number in (phase, category))
            kind = self._rules.kind_of(name, group)
            if isinstance(kind, str):
                self._state.reasons.append(kind)
                known[phase, category] = -len(self._state.reasons)
            else:
                known[phase, category] = int(kind)
        return known[phase, category]

    def _columns(self, top: Mapping[str, Field], count: int, kind: Array) -> dict[str, Array]:
        """Return what every event has; an event without a length that needs none has none."""
        text = self._file.text
        start = _numbers(top.get("ts"), count, text, thousand=True)
        length = _numbers(top.get("dur"), count, text, thousand=True)
        still = np.isin(kind, [EventKind.INSTANT, EventKind.COUNTER]) & (length == MISSING)
        length[still] = 0
        bad = (start == MISSING) | (length == MISSING)
        with np.errstate(over="ignore"):
            end = np.where(bad, MISSING, start + length)
        return {
            "kind": kind.astype(np.int8), "name": text_numbers(top.get("name"), count).astype(np.int32),
            "start_ns": np.where(bad, MISSING, start), "end_ns": end,
            "process": _numbers(top.get("pid"), count, text), "thread": _numbers(top.get("tid"), count, text),
            **{name: np.full(count, MISSING, np.int64) for name in _DENSE},
        }  # fmt: skip

    def _sparse(self, fields: Fields, place: Array, kind: Array, columns: dict[str, Array]) -> dict[str, Column]:
        """Return the fields of `args`; device, stream and correlation go to the columns that every event has."""
        sparse: dict[str, Column] = {}
        lifted: dict[str, Field] = {}
        for (key, nested), tokens in fields.items():
            if not nested:
                continue
            name = self._file.text(key)
            if name in _DENSE:
                columns[name][tokens.rows] = numbers(tokens, self._file.text)
            elif name in self._rules.lifted:
                lifted[name] = tokens
            elif len((present := _kept(tokens, place)).rows):
                for ours, column in self._column(name, present, present.rows).items():
                    sparse[ours] = _both(sparse[ours], column) if ours in sparse else column
        stream = columns["stream"]
        stream[np.isin(stream, [tokens for tokens in _NO_STREAM if tokens < 2**63])] = MISSING
        on_device = np.isin(kind, np.array([*DEVICE_KINDS, EventKind.SYNC, EventKind.DEVICE_RANGE]))
        silent = on_device & (columns["device"] == MISSING) & self._rules.device_is_process
        columns["device"][silent] = columns["process"][silent]  # Kineto prints the device as process of its events
        columns["process"][on_device], columns["thread"][on_device] = MISSING, MISSING
        for name, tokens in lifted.items():
            columns[name][tokens.rows] = numbers(tokens, self._file.text)
        return sparse

    def _column(self, name: str, tokens: Field, rows: Array) -> dict[str, Column]:
        """Return one field of `args` under our name for it, or under its own."""
        if name in _NUMBERS:
            values = numbers(tokens, self._file.text)
            good = values != MISSING
            if name == "wait_on_stream":
                good &= ~np.isin(values, [-1, 2**32 - 1])
            return {_NUMBERS[name]: Column(rows=rows[good], values=values[good])} if good.any() else {}
        if name in _TRIPLES:
            return _triples(name, tokens, rows, self._file.text)
        phrased = np.isin(tokens.kinds, (json_scan.TEXT, json_scan.SPAN, json_scan.ODD))
        if phrased.any() or name in _TEXTS:
            ours = _TEXTS.get(name, name)
            return {ours: Column(rows=rows[phrased], values=tokens.values[phrased], text=True)} if phrased.any() else {}
        real = tokens.kinds == json_scan.REAL
        if not real.any():
            return {name: Column(rows=rows, values=tokens.values)}
        return {name: Column(rows=rows, values=np.where(real, tokens.values.view(np.float64), tokens.values))}


def _both(first: Column, second: Column) -> Column:
    """Return two spellings of one field, as older files write them for operators and kernels; the first wins."""
    fresh = ~np.isin(second.rows, first.rows)
    if first.text != second.text or not fresh.any():
        return first
    return Column.joined([first, replace(second, rows=second.rows[fresh], values=second.values[fresh])])


def _numbers(tokens: Field | None, count: int, text: Callable[[int], str], *, thousand: bool = False) -> Array:
    return dense(tokens, count, None if tokens is None else numbers(tokens, text, thousand=thousand))


def _kept(tokens: Field, place: Array) -> Field:
    """Return a field of the events that are kept, with the rows they have then."""
    present = _where(tokens, place[tokens.rows] >= 0)
    return replace(present, rows=place[present.rows])


def _where(tokens: Field, keep: Array) -> Field:
    return Field(rows=tokens.rows[keep], kinds=tokens.kinds[keep], values=tokens.values[keep])


def _triples(name: str, tokens: Field, rows: Array, text: Callable[[int], str]) -> dict[str, Column]:
    """Return grids or blocks; what is no list of three whole numbers is left out."""
    texts, places = np.unique(tokens.values, return_inverse=True)
    spans = tokens.kinds == json_scan.SPAN
    parts = [
        [part.strip() for part in text(int(number)).strip("[]").split(",")] if spans.any() else [] for number in texts
    ]
    sizes = [
        [int(part) for part in each]
        if len(each) == 3 and all(part.isascii() and part.isdigit() and len(part) < 12 for part in each)
        else [MISSING] * 3
        for each in parts
    ]
    values = np.array(sizes, np.int64).reshape(-1, 3)[places]
    good = spans & (values[:, 0] != MISSING)
    return {name: Column(rows=rows[good], values=values[good])} if good.any() else {}


def _joined(parts: list[_Part]) -> _Raw:
    """Return all batches as one; each batch is let go once its columns are copied."""
    lengths = [len(part.dense["kind"]) for part in parts]
    offsets = np.concatenate([[0], np.cumsum(lengths)])[: len(parts)].astype(np.int64)
    columns: dict[str, Array] = {}
    for name in ("kind", "name", "start_ns", "end_ns", "process", "thread", *_DENSE):
        pieces = [part.dense.pop(name) for part in parts]
        columns[name] = np.concatenate(pieces) if pieces else np.zeros(0, np.int64)
    names = dict.fromkeys(name for part in parts for name in part.sparse)
    sparse = {}
    for name in names:
        mine = [
            (part.sparse.pop(name), int(offset))
            for part, offset in zip(parts, offsets, strict=True)
            if name in part.sparse
        ]
        text = any(column.text for column, _ in mine)  # where some pieces are texts, the others are dropped
        alike = [(column, offset) for column, offset in mine if column.text == text]
        moved = [replace(column, rows=(column.rows + offset).astype(np.int32)) for column, offset in alike]
        sparse[name] = Column.joined(moved)
    return _Raw(**columns, sparse=sparse)


def _lift_names(raw: _Raw, texts: Any) -> None:
    """Read direction and ends of copies, and what a synchronisation waits for, from their names."""
    rows = np.flatnonzero(raw.kind == EventKind.MEMCPY)
    if len(rows):
        table = {int(i): copy_of(texts[int(i)]) if i >= 0 else (CopyKind.UNKNOWN, Memory.UNKNOWN, Memory.UNKNOWN)
                 for i in np.unique(raw.name[rows])}  # fmt: skip
        known = np.array([table[int(i)] for i in raw.name[rows]], np.int64)
        for index, name in enumerate(("copy_kind", "source_memory", "target_memory")):
            raw.sparse[name] = Column(rows=rows.astype(np.int32), values=known[:, index])
    rows = np.flatnonzero(raw.kind == EventKind.SYNC)
    if len(rows):
        names = _sync_names(raw, rows)
        kinds = {int(i): _SYNC.get(texts[int(i)].lower() if i >= 0 else "", SyncKind.UNKNOWN)
                 for i in np.unique(names)}  # fmt: skip
        raw.sparse["sync"] = Column(rows=rows.astype(np.int32), values=np.array([kinds[int(i)] for i in names]))


def _sync_names(raw: _Raw, rows: Array) -> Array:
    """Return the texts that say what is waited for: the field for it where there is one, else the name."""
    names = raw.name[rows].astype(np.int64)
    stated = raw.sparse.get("cuda_sync_kind")
    if stated is not None and stated.text:
        places = np.searchsorted(rows, stated.rows)
        mine = (places < len(rows)) & (rows[np.minimum(places, len(rows) - 1)] == stated.rows)
        names[places[mine]] = stated.values[mine]
    return names
