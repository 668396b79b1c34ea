"""JSON tokens of trace events, grouped by field and turned into integer columns with a mark for missing values."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal, DecimalException
from typing import Any

import numpy as np
import numpy.typing as npt

from nearpeak.base.compilation import compiled_exactly
from nearpeak.traces.reading import json_scan
from nearpeak.traces.reading.json_events import Batch
from nearpeak.traces.timeline.trace_columns import MISSING

Array = npt.NDArray[Any]
_LARGEST = 2**62
_NUMBERS = (json_scan.TEXT, json_scan.ODD)


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of some events."""

    rows: Array
    """Events that have it, ascending."""
    kinds: Array
    """Kinds of the tokens."""
    values: Array
    """Values as the tokens hold them."""


Fields = Mapping[tuple[int, bool], Field]
"""Fields by number of the key and whether it stands in `args`."""


def fields_of(batch: Batch) -> Fields:
    """Return the tokens of a batch by field."""
    kinds = batch.kind & (json_scan.NESTED - 1)
    order, ends, keys = _grouped(batch.key, batch.kind >= json_scan.NESTED, int(batch.key.max(initial=0)) + 1)
    rows, kinds, values = batch.event[order], kinds[order], batch.value[order]
    begins = np.concatenate([[0], ends])[: len(ends)]  # none where no event has a field
    return {
        (int(key) // 2, bool(key & 1)): Field(rows=rows[a:b], kinds=kinds[a:b], values=values[a:b])
        for key, a, b in zip(keys, begins, ends, strict=True)
    }


@compiled_exactly()
def _grouped(key: Any, nested: Any, count: Any) -> Any:
    """Return tokens in order of (key, whether nested) as they came, where each group ends, and its key."""
    sizes = np.zeros(2 * count, np.int64)
    for i in range(len(key)):
        sizes[2 * key[i] + nested[i]] += 1
    groups = np.flatnonzero(sizes)
    ends = np.cumsum(sizes[groups])
    place = np.zeros(2 * count, np.int64)
    place[groups] = ends - sizes[groups]
    order = np.empty(len(key), np.int64)
    for i in range(len(key)):
        at = 2 * key[i] + nested[i]
        order[place[at]] = i
        place[at] += 1
    return order, ends, groups


def numbers(field: Field, text: Callable[[int], str], *, thousand: bool = False) -> Array:
    """Return the values of a field as whole numbers, `MISSING` where one is none; texts are read as numbers too.

    Args:
        thousand: values are decimals that are wanted in thousandths.
    """
    values = field.values.copy()
    values[field.kinds == json_scan.SPAN] = MISSING
    if thousand:
        whole = field.kinds == json_scan.WHOLE
        values[whole] = np.where(np.abs(values[whole]) < _LARGEST // 1000, values[whole] * 1000, MISSING)
    if (real := field.kinds == json_scan.REAL).any():
        exact = field.values.view(np.float64)[real]
        safe = np.where(np.abs(exact) < 1e15, exact, 0.0)
        values[real] = np.where((safe == np.floor(safe)) & (safe == exact), safe.astype(np.int64), MISSING)
    if (phrased := np.isin(field.kinds, _NUMBERS)).any():
        numbers_of, places = np.unique(field.values[phrased], return_inverse=True)
        table = np.array([number_of(text(int(number)), 1000 if thousand else 1) for number in numbers_of], np.int64)
        values[phrased] = table[places]
    return values


def number_of(text: str, scale: int = 1) -> int:
    """Return a decimal text times `scale` as an integer, `MISSING` where it is no number or does not fit.

    >>> number_of("1,234"), number_of("1.7e3", 1000), number_of("12.3456", 1000), number_of("n/a") == MISSING
    (1234, 1700000, 12346, True)
    """
    try:
        value = Decimal(text.strip().replace(",", "")) * scale
        if not value.is_finite() or abs(value) > _LARGEST:
            return MISSING
        whole = value.to_integral_value(rounding="ROUND_HALF_UP")
    except DecimalException:  # no number, or too large for one
        return MISSING
    return int(whole) if scale > 1 or whole == value else MISSING


def dense(field: Field | None, count: int, values: Array | None = None, *, absent: int = MISSING) -> Array:
    """Return one value for each of `count` events; the last one where a field occurs twice."""
    column = np.full(count, absent, np.int64)
    if field is not None:
        column[field.rows] = field.values if values is None else values
    return column


def text_numbers(field: Field | None, count: int) -> Array:
    """Return for each event the number of the text of a field, -1 where it is no text."""
    if field is None:
        return np.full(count, -1, np.int64)
    phrased = (field.kinds == json_scan.TEXT) | (field.kinds == json_scan.SPAN) | (field.kinds == json_scan.ODD)
    return dense(field, count, np.where(phrased, field.values, -1), absent=-1)
