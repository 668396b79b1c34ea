"""Measurement tables as samples: a case and a time per row, with rejected rows listed by number."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nearpeak.bounds.contradictory_rows import contradictions
from nearpeak.core.answers.calibration import RejectedRow
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.errors import SpecError, shown
from nearpeak.ops.shared.tables.case_table import CaseTable, table_of_cases
from nearpeak.ops.shared.tables.cells import is_blank
from nearpeak.ops.shared.tables.usable_rows import usable_table
from nearpeak.targets import TARGETS

TIME_UNITS = {
    f"{stem}_{unit}": factor
    for stem in ("time", "latency", "measured", "duration")
    for unit, factor in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))
}
"""Seconds per unit by the name of the column that holds the times."""

UNIT_COLUMNS = frozenset({"unit", "units", "time_unit"})
"""Columns that tables of other tools state units in."""


DEVICE_COLUMNS = ("device", "gpu", "device_name", "gpu_name")
"""Columns that tables state the device in."""
_SHOWN = 4
"""Values of a column that a message names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """Usable rows of a measurement table."""

    cases: tuple[Case, ...]
    """Case of each row."""
    table: CaseTable
    """The same cases as columns."""
    measured_s: Any
    """Time of each row."""
    rows: Any
    """Number of each row in the file, 1 for the first below the header."""
    set_aside: tuple[RejectedRow, ...]
    """Rows that are not used."""
    time_name: str = ""
    """Column that the times come from."""
    device: tuple[str, str] = ("", "")
    """Column that states a device, and the device; both empty where none does."""


def samples_of(columns: Mapping[str, Any]) -> Samples:
    """Return the samples of a table with `op`, `dtype`, axes, and one column of times named with its unit.

    Rows whose time is no positive number, and rows that are no case (a missing axis, an unknown format, axes that
    contradict each other), are set aside.

    Raises:
        SpecError: no column of times, or more than one; units or devices that differ between rows; no usable row.

    >>> found = samples_of({"op": "gemm", "dtype": "bf16", "m": [8, 16], "n": 64, "k": 64, "time_us": [3.5, -1]})
    >>> found.measured_s.tolist(), found.set_aside[0].row
    ([3.5e-06], 2)
    """
    name, factor = time_column(columns)
    _refuse_units(columns, name)
    device = _stated_device(columns)
    if isinstance(columns[name], str) or not hasattr(columns[name], "__len__"):
        raise SpecError(f"table: the column of times is {columns[name]!r}, one value; it needs one per row")
    times = [_number(cell) for cell in columns[name]]
    good = [row for row, time in enumerate(times) if time is not None and np.isfinite(time) and time > 0]
    bad = sorted(set(range(len(times))) - set(good))
    aside = [
        RejectedRow(
            row=row + 1,
            column=name,
            text=f"{shown(columns[name][row], lambda cell: repr(str(cell)))} is no positive number",
        )
        for row in bad
    ]
    if not good:
        raise SpecError(f"table: column {name!r}: none of its {len(times)} rows is a positive time")
    usable_columns = {
        key: column if isinstance(column, str) or not hasattr(column, "__len__")
        else column[good] if isinstance(column, np.ndarray) else [column[row] for row in good]
        for key, column in columns.items() if key not in TIME_UNITS
    }  # fmt: skip
    usable = usable_table(usable_columns)
    aside += [
        RejectedRow(row=good[place] + 1, column=column, text=text) for place, (column, text) in usable.refused.items()
    ]
    rows = np.array(good)[usable.rows]
    samples = Samples(
        cases=tuple(usable.table.cases()), table=usable.table, rows=rows + 1, time_name=name, device=device,
        set_aside=tuple(sorted(aside, key=lambda rejected: rejected.row)),
        measured_s=np.array([times[row] for row in rows]) * factor,
    )  # fmt: skip
    contradicted = contradictions(samples.table)
    if len(contradicted) == len(samples.rows):
        raise SpecError(f"table: row {samples.rows[0]}: {contradicted[0]}")
    return without(samples, contradicted, "")


def without(samples: Samples, reasons: Mapping[int, str], column: str = "op") -> Samples:
    """Return the samples less those at some positions, which are set aside with the reason.

    Args:
        column: column at fault.
    """
    if not reasons:
        return samples
    places = np.array([i for i in range(len(samples.rows)) if i not in reasons], dtype=np.int64)
    cases = tuple(samples.cases[i] for i in places)
    more = [RejectedRow(row=int(samples.rows[i]), column=column, text=text) for i, text in reasons.items()]
    return replace(
        samples, cases=cases, table=table_of_cases(cases) if cases else samples.table, rows=samples.rows[places],
        measured_s=samples.measured_s[places],
        set_aside=tuple(sorted((*samples.set_aside, *more), key=lambda rejected: rejected.row)),
    )  # fmt: skip


def check_device(samples: Samples, target: Target) -> None:
    """Refuse samples whose table says that they are of another device of the catalogue.

    >>> from nearpeak.targets import target_of
    >>> table = {"op": "gemm", "dtype": "bf16", "m": [8, 16], "n": 64, "k": 64, "time_us": [3.5, 3.6]}
    >>> check_device(samples_of(table | {"device": "h100_sxm"}), target_of("h200_sxm"))
    Traceback (most recent call last):
    nearpeak.errors.SpecError: table: column 'device': its rows are of h100_sxm, the target is h200_sxm; name the \
target that was measured, or correct the column
    """
    column, stated = samples.device
    documented = target.name.partition("+")[0]
    name = stated.strip().lower().replace(" ", "_").replace("-", "_")
    if name.partition(":")[0] in TARGETS and name not in (documented, documented.partition(":")[0]):
        raise SpecError(
            f"table: column {column!r}: its rows are of {stated}, the target is {target.name}; name the target that "
            "was measured, or correct the column"
        )


def _stated_device(columns: Mapping[str, Any]) -> tuple[str, str]:
    """Return the column that states a device, with its only value; several are refused."""
    stated = ("", "")
    for name in (column for column in DEVICE_COLUMNS if column in columns):
        cells = columns[name]
        cells = [cells] if isinstance(cells, str) or not hasattr(cells, "__len__") else np.asarray(cells).tolist()
        values = list(dict.fromkeys(str(cell) for cell in cells if not is_blank(cell)))
        if len(values) > 1:
            more = f" and {len(values) - _SHOWN} more" if len(values) > _SHOWN else ""
            raise SpecError(
                f"table: column {name!r} holds {len(values)} devices ({', '.join(values[:_SHOWN])}{more}); "
                "keep the rows of one, and run once per device"
            )
        stated = (name, values[0]) if values and not stated[1] else stated
    return stated


def _refuse_units(columns: Mapping[str, Any], name: str) -> None:
    """Refuse a column of units that says something else than the name of the column of times."""
    for key in UNIT_COLUMNS.intersection(columns):
        cells = columns[key]
        cells = [cells] if isinstance(cells, str) or not hasattr(cells, "__len__") else list(cells)
        unit = name.rpartition("_")[2]
        for row, cell in enumerate(cells, start=1):
            if str(cell) != unit:
                raise SpecError(
                    f"table: row {row}, column {key!r}: {str(cell)!r}, but the times are in {name!r}; bring all "
                    "rows to the unit of its name"
                )


def time_column(columns: Mapping[str, Any]) -> tuple[str, float]:
    """Return the name of the column of times, and seconds per unit."""
    names = [name for name in columns if name in TIME_UNITS]
    if len(names) > 1:
        raise SpecError(f"table: {' and '.join(names)} are both times; keep one")
    if not names:
        raise SpecError("table: has no column of times; name it with its unit, e.g. time_s or latency_us")
    return names[0], TIME_UNITS[names[0]]


def best_of(samples: Samples) -> dict[Case, int]:
    """Return the place of the shortest time of each distinct case, as predictions are of achievable times."""
    best: dict[Case, int] = {}
    times = samples.measured_s.tolist()
    for place, case in enumerate(samples.cases):
        if case not in best or times[place] < times[best[case]]:
            best[case] = place
    return best


def _number(cell: Any) -> float | None:
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return None
