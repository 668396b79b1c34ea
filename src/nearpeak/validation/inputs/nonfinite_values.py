"""Inputs with one NaN or infinity that reaches the outputs, and a check that it spoils no unrelated output."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from nearpeak.core.work.case import Case
from nearpeak.errors import MeasureError
from nearpeak.validation.inputs.distributions import drawn
from nearpeak.validation.inputs.rounds import rounds_of
from nearpeak.validation.oracle.expected_results import arguments_of
from nearpeak.validation.oracle.float64_oracle import Draw, unbounded_draw
from nearpeak.validation.oracle.sensitivity import Arrays

FIRST, SECOND, ROW = "first", "second", "row"
"""Other places of the value: the first element, the first of the second row, or the whole first row."""
SPECIAL_VALUES = ((np.nan, ""), (np.inf, ""), (-np.inf, ""), (np.nan, FIRST), (np.nan, SECOND), (-np.inf, ROW))
"""Values put into each input, and where.

A kernel that reads past a row's end and multiplies with 0 shows where the next row starts with NaN; a row of minus
infinity shows wrong initial maxima.
"""


@lru_cache(maxsize=64)
def special_draw(case: Case, seed: int, name: str, value: float, where: str = "") -> Draw | None:
    """Return a draw with `value` in the input `name`; none where the operator is not defined there.

    Infinity is put first, minus infinity in the middle, NaN last, unless `where` states it. An operator that selects
    may not read that place; bisection then finds one that it reads, if positions are inputs also in further rounds.
    """
    if where:
        return _placed(case, seed, name, value, where)
    tensors = drawn(case.op, arguments_of(case), (seed,), "normal")
    assert tensors is not None  # an operator without any inputs has no formats either, and is refused before
    usual = _with_value(case, tensors, name, value)
    if _comes_out(usual) or all(tensor.is_floating_point() for tensor in tensors.values()):
        return usual
    further = (_with_value(case, draw.tensors, name, value) for draw in rounds_of(case, seed))
    return next((candidate for candidate in further if _comes_out(candidate)), usual)


def _placed(case: Case, seed: int, name: str, value: float, where: str) -> Draw | None:
    """Return the draw with the value at the stated place, whether it reaches the outputs or not."""
    tensors = drawn(case.op, arguments_of(case), (seed,), "normal")
    assert tensors is not None
    row = tensors[name].shape[-1] if tensors[name].dim() else 1
    places = {FIRST: slice(0, 1), SECOND: slice(row, row + 1), ROW: slice(0, row)}[where]
    if places.start >= tensors[name].numel():
        return None
    try:
        return unbounded_draw(case, _made(tensors, name, value, places), "special")
    except MeasureError:
        return None


def _with_value(case: Case, tensors: Arrays, name: str, value: float) -> Draw | None:
    """Return the draw of `tensors` with `value` where it reaches the outputs, else at its default place."""
    count = tensors[name].numel()
    place = {np.inf: 0, -np.inf: count // 2}.get(value, count - 1)

    def put(first: int, end: int) -> Draw | None:
        try:
            return unbounded_draw(case, _made(tensors, name, value, slice(first, end)), "special")
        except MeasureError:
            return None

    usual = put(place, place + 1)
    if _comes_out(usual):
        return usual
    first, end = 0, count
    while end - first > 1:
        middle = (first + end) // 2
        first, end = (first, middle) if _comes_out(put(first, middle)) else (middle, end)
    narrowed = put(first, end)
    return narrowed if _comes_out(narrowed) else usual


def _comes_out(draw: Draw | None) -> bool:
    results = () if draw is None else draw.expected.values()
    return any(result.values.dtype.kind in "fc" and not np.isfinite(result.values).all() for result in results)


def _made(tensors: Arrays, name: str, value: float, places: slice) -> dict[str, Any]:
    """Return the inputs with `value` at some places of the flattened float input `name`."""
    changed = {key: tensor.clone() for key, tensor in tensors.items()}
    changed[name].view(-1)[places] = value
    return changed


def spilled(draw: Draw, got: Mapping[str, Any]) -> str:
    """Return which result is not finite though it does not depend on a non-finite input; empty where none is.

    A result does not depend on such inputs if the oracle's is the same with zeros in their place.
    """
    held = {
        k: t.nan_to_num(0.0, 0.0, 0.0) if t.is_floating_point() and t.itemsize > 1 else t
        for k, t in draw.tensors.items()
    }
    try:
        without = unbounded_draw(draw.case, held, "special").expected
    except MeasureError:
        return ""
    for name, expected in draw.expected.items():
        if (
            expected.values.dtype.kind not in "fc"
            or not got[name].shape == expected.values.shape == without[name].values.shape
        ):
            continue
        wrong = np.isfinite(expected.rounded) & (expected.values == without[name].values) & ~np.isfinite(got[name])
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            return f"{name}{list(place)} is {got[name][place]} and does not depend on it"
    return ""
