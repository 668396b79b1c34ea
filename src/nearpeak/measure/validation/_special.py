"""Questions with one NaN or infinity among ordinary inputs, where it comes out."""

from functools import lru_cache
from typing import Any

import numpy as np

from nearpeak.core.case import Case
from nearpeak.errors import MeasureError
from nearpeak.measure.validation._draw import drawn
from nearpeak.measure.validation._oracle import Question, arguments_of, bare_question
from nearpeak.measure.validation._reach import Arrays
from nearpeak.measure.validation._rounds import rounds_of

FIRST, ROW = "first", "row"
"""Where else a number may be put: first, or everywhere in the first row."""


@lru_cache(maxsize=512)
def special_question(case: Case, seed: int, name: str, value: float, where: str = "") -> Question | None:
    """Return the first question with `value` in the input `name`; none where the operator is not defined there.

    Infinity is put first, minus infinity in the middle, NaN last, unless it is said `where`. What selects may not read
    that place; one that it does read is found by halves then, and where positions are inputs among those of further
    rounds.
    """
    if where:
        return _placed(case, seed, name, value, where)
    tensors = drawn(case.op, arguments_of(case), (seed,), "normal")
    assert tensors is not None  # an operator without any inputs has no formats either, and is refused before
    usual = _with_value(case, tensors, name, value)
    if _comes_out(usual) or all(tensor.is_floating_point() for tensor in tensors.values()):
        return usual
    further = (_with_value(case, asked.tensors, name, value) for asked in rounds_of(case, seed))
    return next((one for one in further if _comes_out(one)), usual)


def _placed(case: Case, seed: int, name: str, value: float, where: str) -> Question | None:
    """Return the question with the value there, whether it comes out or not."""
    tensors = drawn(case.op, arguments_of(case), (seed,), "normal")
    assert tensors is not None
    row = tensors[name].shape[-1] if tensors[name].dim() else 1
    try:
        return bare_question(case, _made(tensors, name, value, slice(0, row if where == ROW else 1)), "special")
    except MeasureError:
        return None


def _with_value(case: Case, tensors: Arrays, name: str, value: float) -> Question | None:
    """Return the question that `tensors` are with `value` where it comes out, else where it is put first."""
    count = tensors[name].numel()
    place = {np.inf: 0, -np.inf: count // 2}.get(value, count - 1)

    def put(first: int, end: int) -> Question | None:
        try:
            return bare_question(case, _made(tensors, name, value, slice(first, end)), "special")
        except MeasureError:
            return None

    usual = put(place, place + 1)
    if _comes_out(usual):
        return usual
    first, end = 0, count
    while end - first > 1:
        middle = (first + end) // 2
        first, end = (first, middle) if _comes_out(put(first, middle)) else (middle, end)
    found = put(first, end)
    return found if _comes_out(found) else usual


def _comes_out(asked: Question | None) -> bool:
    results = () if asked is None else asked.expected.values()
    return any(one.values.dtype.kind in "fc" and not np.isfinite(one.values).all() for one in results)


def _made(tensors: Arrays, name: str, value: float, places: slice) -> dict[str, Any]:
    """Return the inputs with `value` at these places of the flattened float input `name`."""
    changed = {key: tensor.clone() for key, tensor in tensors.items()}
    changed[name].view(-1)[places] = value
    return changed
