"""Nsight Compute: CSV of the details and raw pages, as kernels without start times, metrics and rules."""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from nearpeak.core.traces.trace import NO_TIMES, EventKind, Loss, TraceDevice, TraceHeader
from nearpeak.errors import SpecError
from nearpeak.traces.reading.csv_columns import lines_of, rows_of
from nearpeak.traces.reading.ncu_rows import NcuMetric, NcuRule, has_decimal_comma, metric_of, raw_metrics, rule_of
from nearpeak.traces.reading.table_rows import EventRows, integers
from nearpeak.traces.timeline.trace_columns import MISSING, Trace
from nearpeak.traces.trace_format import TraceFormat

_DETAILS = ("ID", "Kernel Name", "Metric Name", "Metric Value")
_DURATIONS = ("gpu__time_duration.sum", "Duration", "gpu__time_duration_measured_user.sum")
_TRIPLE = re.compile(r"^\(?\s*(\d+)[,x ]+(\d+)[,x ]+(\d+)\s*\)?$")
_LACK = f"{NO_TIMES} kernels were replayed one by one and are placed end to end by duration"


@dataclass(frozen=True, slots=True, kw_only=True)
class NcuKernel:
    """A kernel with what was measured of it."""

    id: str
    """Number in the report."""
    cells: Mapping[str, str]
    """What every row of it says: name, process, device, context, stream, block, grid."""
    metrics: tuple[NcuMetric, ...] = ()
    """Metrics in the order of the file."""
    rules: tuple[NcuRule, ...] = ()
    """Rules in the order of the file."""

    @property
    def duration_s(self) -> float | None:
        """Return its duration; none where the file does not say it, or not in which unit."""
        durations = (
            metric for name in _DURATIONS for metric in self.metrics if metric.name == name and metric.base_unit == "s"
        )
        return next((metric.value for metric in durations if metric.value is not None), None)


@dataclass(kw_only=True)
class _Kernel:
    """A kernel while its rows are read."""

    cells: dict[str, str]
    """What its first row says."""
    metrics: list[NcuMetric] = field(default_factory=list)
    """Metrics so far."""
    rules: list[NcuRule] = field(default_factory=list)
    """Rules so far."""


def ncu_kernels(path: Path, losses: list[Loss]) -> tuple[NcuKernel, ...]:
    """Return the kernels of a details or raw page in the order of the file.

    Raises:
        SpecError: there is no header that begins with "ID".
    """
    lines = rows_of(lines_of(path, losses), lambda line: line.startswith(('"ID"', "ID,")))
    kernels: dict[str, _Kernel] = {}
    header: list[str] = []
    try:
        header = next(lines, [])
        if not all(name in header for name in ("ID", "Kernel Name")):
            raise SpecError(
                f'{path.name}: no line begins with "ID" and names Kernel Name, as pages of Nsight Compute do'
            )
        absent = [name for name in (*_DETAILS, "Metric Unit") if name not in header]
        if "Metric Name" in header and absent:
            raise SpecError(f"{path.name}: lacks the column {absent[0]!r}; export the whole page (ncu --csv)")
        page = _Details(header) if all(name in header for name in _DETAILS) else _Raw(header)
        bad = _take(page, lines, kernels, losses)
        if bad:
            losses.append(
                Loss(
                    what="dropped",
                    kind="row of another length than the header",
                    record_count=len(bad),
                    example=f"row {bad[0]} after the header",
                )
            )
    except csv.Error as error:
        losses.append(Loss(what="dropped", kind="rest of the file", record_count=1, example=str(error)))
    return tuple(
        NcuKernel(id=key, cells=kernel.cells, metrics=tuple(kernel.metrics), rules=tuple(kernel.rules))
        for key, kernel in kernels.items()
    )


class _Details:
    """One metric or rule per row: metric rows end after the value, rule rows are full."""

    def __init__(self, header: Sequence[str]) -> None:
        self._header = header
        self._value = header.index("Metric Value")

    def fits(self, row: Sequence[str]) -> bool:
        """Say whether a row has as many cells as rows of this page have."""
        return self._value < len(row) <= len(self._header)

    def values(self, row: Sequence[str]) -> Sequence[str]:
        """Return the cells that may be numbers."""
        return (row[self._value],)

    def add(self, row: Sequence[str], kernels: dict[str, _Kernel], *, comma: bool) -> None:
        """Take a row."""
        cells = dict(zip(self._header, row, strict=False))
        kernel = kernels.setdefault(cells["ID"], _Kernel(cells=cells))
        if cells.get("Rule Name"):
            kernel.rules.append(rule_of(cells, comma=comma))
        elif cells["Metric Name"]:
            kernel.metrics.append(metric_of(cells, comma=comma))


class _Raw:
    """One kernel per row; the row after the header, which has no kernel, holds the units."""

    def __init__(self, header: Sequence[str]) -> None:
        self._header, self._units = header, ("",) * len(header)
        self._first = next((place for place, name in enumerate(header) if "__" in name), len(header))

    def fits(self, row: Sequence[str]) -> bool:
        """Say whether a row has as many cells as the header."""
        return len(row) == len(self._header)

    def values(self, row: Sequence[str]) -> Sequence[str]:
        """Return the cells that may be numbers."""
        return row[self._first :]

    def add(self, row: Sequence[str], kernels: dict[str, _Kernel], *, comma: bool) -> None:
        """Take a row."""
        cells = dict(zip(self._header[: self._first], row, strict=False))
        if not cells["ID"].strip() and not kernels:
            self._units = tuple(row)
            return
        kernel = kernels.setdefault(cells["ID"], _Kernel(cells=cells))
        kernel.metrics += raw_metrics(self._header, self._units, row, self._first, comma=comma)


def _take(
    page: _Details | _Raw, lines: Iterator[list[str]], kernels: dict[str, _Kernel], losses: list[Loss]
) -> list[int]:
    """Read all rows, and return the numbers of those that do not fit the page."""
    rows: list[list[str]] = []
    bad: list[int] = []
    for number, row in enumerate(lines, 1):
        if page.fits(row):
            rows.append(row)
        elif row:
            bad.append(number)
    comma = has_decimal_comma(cell for row in rows for cell in page.values(row))
    for row in rows:
        page.add(row, kernels, comma=comma)
    if comma:
        kind = "row of numbers with a decimal comma, as some languages print them"
        losses.append(Loss(what="repaired", kind=kind, record_count=len(rows)))
    return bad


def _read(path: Path) -> Trace:
    """Return the trace of a page; each metric is a field under its name, rules stand in the header."""
    losses: list[Loss] = []
    kernels = ncu_kernels(path, losses)
    timed = [kernel for kernel in kernels if kernel.duration_s is not None and 0 <= kernel.duration_s < 1e9]
    rows = EventRows()
    if len(timed) < len(kernels):
        rows.lose("dropped", "kernel without a duration", len(kernels) - len(timed))
    lengths = np.array([round((kernel.duration_s or 0.0) * 1e9) for kernel in timed], np.int64)
    ends = np.cumsum(lengths)
    first = {
        name: [kernel.cells.get(name) for kernel in timed] for name in ("Device", "Stream", "Context", "Process ID")
    }
    names = dict.fromkeys(metric.name for kernel in timed for metric in kernel.metrics)
    rows.add(
        EventKind.KERNEL,
        [kernel.cells.get("Kernel Name", "") for kernel in timed],
        ends - lengths,
        ends,
        device=integers(first["Device"]),
        stream=integers(first["Stream"]),
        process=integers(first["Process ID"]),
        rare={
            "context": integers(first["Context"]),
            "kernel_id": integers([kernel.id for kernel in timed]),
            "grid": _triples(timed, "Grid Size"),
            "block": _triples(timed, "Block Size"),
            **{name: np.array([_value(kernel, name) for kernel in timed], np.float64) for name in names},
        },
    )
    rules = {kernel.id: kernel.rules for kernel in kernels if kernel.rules}
    devices = {kernel.cells.get("Device", "0"): kernel.cells.get("CC", "") for kernel in kernels}
    return rows.trace(
        TraceHeader(
            format="ncu_csv",
            source=path.name,
            clock="none",
            method="profiler (Nsight Compute, replay)",
            lacks=(_LACK,),
            devices=tuple(
                TraceDevice(index=int(key), compute_capability=cc)
                for key, cc in devices.items()
                if key.isdecimal() and len(key) < 9
            ),
            losses=tuple(losses),
            metadata={"rules": rules},
        )
    )


def _value(kernel: NcuKernel, name: str) -> float:
    """Return the first value of a metric, NaN where it is not available: DRAM bytes of integrated devices, for one."""
    return next(
        (metric.value for metric in kernel.metrics if metric.name == name and metric.value is not None), float("nan")
    )


def _triples(kernels: Sequence[NcuKernel], name: str) -> "np.ndarray[tuple[int, ...], np.dtype[np.int64]]":
    matches = [_TRIPLE.match(match.cells.get(name, "").replace(",", ", ")) for match in kernels]
    sizes = [
        [int(part) if len(part) < 12 else MISSING for part in match.groups()] if match else [MISSING] * 3
        for match in matches
    ]
    return np.array(sizes, np.int64).reshape(-1, 3)


def _recognises(head: bytes) -> bool:
    return any(
        line.startswith((b'"ID","', b"ID,")) and b"Kernel Name" in line
        for line in head.removeprefix(b"\xef\xbb\xbf").splitlines()
    )


FORMAT = TraceFormat(name="ncu_csv", title="Nsight Compute, CSV pages", recognises=_recognises, read=_read)
