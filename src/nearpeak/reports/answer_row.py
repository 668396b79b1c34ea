"""Human-readable table row of one case with its bound and expected time."""

from collections.abc import Collection, Mapping
from typing import Any

from nearpeak.units import show

_NO_WORDS = ("op", "refused", "digest")
"""Columns that are not printed as `name=value`."""


def in_words(row: Mapping[str, Any], added: Collection[str]) -> str:
    """Return a row as one line: the case as the table states it, then the added columns.

    Args:
        row: cells by column; those that are blank are left out.
        added: columns that hold answers.

    >>> answer = {"bound_s": 1e-6, "limiter": "dram", "predicted_s": 2e-6, "low_s": 1.5e-6, "high_s": 3e-6}
    >>> in_words({"op": "softmax", "rows": 4, "dtype": "bf16", **answer}, answer)
    'softmax rows=4 dtype=bf16: expected 2 µs (1.5 µs to 3 µs) by dram, bound 1 µs'
    >>> in_words({"op": "softmax", "dtype": "bf17", "refused": "dtype 'bf17': not known"}, answer)
    "softmax dtype=bf17: refused: dtype 'bf17': not known"
    """
    words = [f"{name}={_cell(cell)}" for name, cell in row.items() if name not in (*added, *_NO_WORDS)]
    answer = f"refused: {row['refused']}" if "refused" in row else ", ".join(_answers(row))
    return f"{' '.join([str(row.get('op', '')), *words])}: {answer}"


def _answers(row: Mapping[str, Any]) -> list[str]:
    cells, limited = (
        [],
        f" by {row.get('limiter', 'nothing')}",
    )  # the limiter of the expected time, where it is requested
    if "predicted_s" in row:
        cells.append(f"expected {_between(row, 'predicted_s', 'low_s', 'high_s', 's')}{limited}")
        limited = ""
    if "bound_s" in row:
        high = f" to {show(row['bound_high_s'], 's')}" if "bound_high_s" in row else ""
        cells.append(f"bound {show(row['bound_s'], 's')}{high}{limited}")
    if "energy_j" in row:
        cells.append(_between(row, "energy_j", "energy_low_j", "energy_high_j", "J"))
        cells.append(f"{show(row['power_w'], 'W')} on average")
    return cells


def _between(row: Mapping[str, Any], name: str, low: str, high: str, unit: str) -> str:
    return f"{show(row[name], unit)} ({show(row[low], unit)} to {show(row[high], unit)})"


def _cell(cell: object) -> str:
    return str(cell).lower() if isinstance(cell, bool) else str(cell)
