"""Parquet export of a trace, one row per event; needs the extra `tables`."""

from pathlib import Path
from typing import Any

import numpy as np

from nearpeak.base.table_engine import table_engine
from nearpeak.core.traces.trace import EventKind, Family
from nearpeak.traces.timeline.trace_columns import MISSING, NO_ROW, Trace


def write_parquet(trace: Trace, path: Path) -> None:
    """Write the events of a trace; what an event does not have is null.

    Raises:
        MissingExtraError: duckdb is not installed.
    """
    table = _columns(trace)
    picked = ", ".join(f'{_null(table[name], name)} as "{_quoted(name)}"' for name in table)
    with table_engine() as connection:
        connection.register("events", {_quoted(name): values for name, values in table.items()})
        connection.execute(
            f"copy (select {picked} from events) to '{str(path).replace(chr(39), chr(39) * 2)}' (format parquet)"
        )


def _quoted(name: str) -> str:
    return name.replace('"', "'")


def _null(values: Any, name: str) -> str:
    """Return what selects a column with its absent values as null."""
    column = f'"{_quoted(name)}"'
    if values.dtype.kind == "f":
        return f"case when isnan({column}) then null else {column} end"
    if values.dtype.kind == "i":
        return f"nullif({column}, {NO_ROW if name in ('launch', 'parent') else MISSING})"
    return column


def _columns(trace: Trace) -> dict[str, Any]:
    """Return one array per column; texts in full, the three figures of a grid as three columns."""
    texts = np.array([trace.texts[number] for number in range(len(trace.texts))] or [""], dtype=object)
    kinds, families = (np.array([member.name.lower() for member in enum], dtype=object) for enum in (EventKind, Family))
    columns: dict[str, Any] = {
        "id": np.arange(len(trace)),
        "kind": kinds[trace.kind],
        "name": texts[trace.name],
        "family": families[trace.family],
        "start_ns": trace.start_ns,
        "end_ns": trace.end_ns,
        "process": trace.process,
        "thread": trace.thread,
        "device": trace.device,
        "stream": trace.stream,
        "correlation": trace.correlation,
        "launch": trace.launch,
        "parent": trace.parent,
    }
    for name, column in trace.sparse.items():
        whole = trace.values(name)
        if column.text:
            words = np.full(len(trace), None, dtype=object)
            words[column.rows] = texts[column.values]
            columns[name] = words
        elif whole.ndim > 1:
            columns |= {f"{name}_{axis}": np.ascontiguousarray(whole[:, place]) for place, axis in enumerate("xyz")}
        else:
            columns[name] = whole
    return columns
