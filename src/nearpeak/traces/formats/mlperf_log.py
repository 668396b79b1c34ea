"""MLPerf: training logs as ranges and instants, and LoadGen summaries as metadata."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from nearpeak.core.traces.trace import EventKind, Loss, TraceHeader
from nearpeak.errors import SpecError
from nearpeak.exchange.mlperf_lines import MARK, marked_lines
from nearpeak.traces.reading.csv_columns import lines_of
from nearpeak.traces.reading.table_rows import EventRows, whole
from nearpeak.traces.timeline.trace_columns import MISSING, Trace
from nearpeak.traces.trace_format import TraceFormat

_TITLE = "MLPerf Results Summary"
_ENDS = ("_start", "_stop")


def _read(path: Path) -> Trace:
    """Return the trace of a log."""
    losses: list[Loss] = []
    text = "".join(lines_of(path, losses))
    rows = EventRows()
    if MARK not in text:
        return _summary(path, text, losses, rows)
    events = []
    for number, row in marked_lines(text):
        if isinstance(row, str):
            rows.lose("dropped", "line without an event", example=f"line {number}: {row}")
        elif whole(row.get("time_ms")) == MISSING and whole(row.get("time_ms"), 1_000_000) == MISSING:
            rows.lose("dropped", "event without a time", example=f"line {number}")
        else:
            events.append(row)
    _ranges(events, rows)
    _moments(events, rows)
    rows.record_count = len(events)
    header = TraceHeader(
        format="mlperf_log",
        source=path.name,
        clock="wall",
        resolution_ns=1_000_000,
        method="MLPerf log",
        losses=tuple(losses),
        metadata=_figures(events),
    )
    return rows.trace(header)


def _time(row: Mapping[str, Any]) -> int:
    return whole(row.get("time_ms"), 1_000_000)


def _ranges(events: list[dict[str, Any]], rows: EventRows) -> None:
    """Take each start with the next stop of its key."""
    open_now: dict[str, int] = {}
    intervals: list[tuple[str, int, int]] = []
    for row in events:
        key, kind = str(row.get("key", "")), row.get("event_type")
        stem = next((key.removesuffix(end) for end in _ENDS if key.endswith(end)), key)
        if kind == "INTERVAL_START":
            open_now[stem] = _time(row)
        elif kind == "INTERVAL_END":
            if stem in open_now:
                intervals.append((stem, open_now.pop(stem), _time(row)))
            else:
                rows.lose("dropped", "interval that ends but never began", example=key)
    if open_now:
        rows.lose("dropped", "interval that never ends", len(open_now), ", ".join(sorted(open_now))[:80])
    times = np.array([[begin, end] for _, begin, end in intervals], np.int64).reshape(-1, 2)
    rows.add(EventKind.HOST_RANGE, [stem for stem, _, _ in intervals], times[:, 0], times[:, 1])


def _moments(events: list[dict[str, Any]], rows: EventRows) -> None:
    points = [row for row in events if row.get("event_type") not in ("INTERVAL_START", "INTERVAL_END")]
    times = np.array([_time(row) for row in points], np.int64)
    rows.add(
        EventKind.INSTANT,
        [row.get("key", "") for row in points],
        times,
        times,
        texts={"value": [None if row.get("value") is None else str(row["value"]) for row in points]},
    )


def _figures(events: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the log says last under each key, and the figures by which a run is judged, in seconds."""
    last = {str(row.get("key", "")): row for row in events}
    figures = {key: row["value"] for key, row in last.items() if row.get("value") is not None}
    for name in ("run", "init"):
        ends = [last.get(f"{name}{end}") for end in _ENDS]
        if ends[0] is not None and ends[1] is not None:
            figures[f"{name}_s"] = (_time(ends[1]) - _time(ends[0])) / 1e9
    stop = last.get("run_stop", {}).get("metadata")
    if isinstance(stop, dict) and "status" in stop:
        figures["status"] = stop["status"]
    return figures


def _summary(path: Path, text: str, losses: list[Loss], rows: EventRows) -> Trace:
    """Return the figures of a summary, latencies in nanoseconds as the file states them."""
    if _TITLE not in text:
        raise SpecError(f"{path.name}: holds neither {MARK} nor {_TITLE!r}")
    pairs = {
        key.strip(): value.strip()
        for line in text.splitlines()
        if ":" in line
        for key, _, value in [line.partition(":")]
    }
    numbers = {key: whole(value) for key, value in pairs.items()}
    figures = {key: value if numbers[key] == MISSING else numbers[key] for key, value in pairs.items()}
    header = TraceHeader(
        format="mlperf_log",
        source=path.name,
        method="MLPerf LoadGen",
        losses=tuple(losses),
        metadata=figures,
        record_count=len(pairs),
        lacks=("no events: a summary states figures of the whole run",),
    )
    return rows.trace(header)


def _recognises(head: bytes) -> bool:
    return MARK.encode() in head or _TITLE.encode() in head


FORMAT = TraceFormat(name="mlperf_log", title="MLPerf, logs and summaries", recognises=_recognises, read=_read)
