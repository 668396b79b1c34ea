"""Axes along which the results of a case follow from their own inputs alone, as small cases of its kind show."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from nearpeak.core.case import Case
from nearpeak.measure.inputs import drawn, forward_arguments, size_bytes
from nearpeak.ops import OPS, work_of

SMALL = (6, 8)
"""Extents at which it is tried whether results along an axis follow from their own inputs alone."""
MOST_BYTES, MOST_FLOP = 2**24, 5 * 10**8
"""Tensors and arithmetic of a sample: the reference is evaluated some fifteen times for its bounds."""
MORE = 4
"""Times as much that a sample may take before fewer than LEAST_COUNT positions are taken."""
SLOWER = 16
"""Times as long that references take which are no plain products: windows that slide, roots, exponentials."""
Dimensions = tuple[tuple[str, int], ...]
Arrays = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """An axis along which each result follows from the inputs at the same position."""

    axes: tuple[str, ...]
    """The axis, and one that has to be as long as it."""
    inputs: Dimensions
    """Inputs and their dimensions that lie along it."""
    outputs: Dimensions
    """Outputs and theirs."""


def is_large(case: Case, allowed: float = 1) -> bool:
    """Say whether a sample takes more than `allowed` times what it should."""
    products = OPS[case.op].numerics.kind == "contraction" and "kw" not in dict(case.axes)
    most = allowed if products else allowed / SLOWER
    return size_bytes(case) > most * MOST_BYTES or sum(work_of(case).flop.values()) > most * MOST_FLOP


def resized(case: Case, extents: Mapping[str, int]) -> Case:
    """Return the case with other extents, whose inputs lie densely."""
    return replace(case, axes=tuple((name, extents.get(name, extent)) for name, extent in case.axes), memory=())


@lru_cache(maxsize=64)
def free_axes(case: Case, output: str = "") -> tuple[Free, ...]:
    """Return the axes along which results follow from their own inputs alone, as small cases of the kind show it.

    Args:
        output: of a gradient, the one that is meant: others are sums along its axes.

    >>> from nearpeak.ops import case
    >>> [free.axes for free in free_axes(case("softmax", rows=4096, columns=4096, dtype="fp32"))]
    [('rows',)]
    """
    operator = OPS[case.op]
    if operator.draws:
        return ()
    small, joined = _shrunk(case)
    if is_large(small, MORE):
        return ()
    try:
        inputs = _given(small)
        outputs = _computed(small, inputs, output)
    except Exception:  # extents that do not fit each other raise whatever a reference raises
        return ()
    found = (_free(small, axes, inputs, outputs, output) for axes in joined)
    return tuple(one for one in found if one is not None)


def _shrunk(case: Case) -> tuple[Case, list[tuple[str, ...]]]:
    """Return a small case of the kind, and the axes that were cut for it: some have to be as long as another."""
    small = resized(case, {})
    joined: list[tuple[str, ...]] = []
    for axis, extent in case.axes:
        if extent <= max(SMALL) or any(axis in axes for axes in joined):
            continue
        equal = [other for other, length in case.axes if length == extent and other != axis]
        for axes in ((axis,), *((axis, other) for other in equal)):
            cut = next((one for size in SMALL if _fits(one := resized(small, dict.fromkeys(axes, size)))), None)
            if cut is not None:
                small = cut
                joined.append(axes)
                break
    return small, joined


def _fits(case: Case) -> bool:
    try:
        OPS[case.op].inputs(**forward_arguments(case))
        work_of(case)
    except Exception:  # rules raise where extents do not fit each other
        return False
    return True


def _given(case: Case) -> dict[str, Any]:
    """Return inputs of a small case, and of a gradient what comes from above."""
    arrays = {name: np.asarray(array) for name, array in drawn(case)[0].items()}
    if case.phase == "forward":
        return arrays
    generator = np.random.default_rng(random.Random(case.digest).getrandbits(64))
    return arrays | {name: generator.standard_normal(shape) for name, shape in _above(case, arrays).items()}


def _above(case: Case, arrays: Arrays) -> dict[str, tuple[int, ...]]:
    """Return the shapes of what comes from above: those of float results."""
    outputs = _computed(OPS[case.op].forward_case(case), arrays)
    return {f"grad_{name}": one.shape for name, one in outputs.items() if one.dtype.kind == "f"}


def _computed(case: Case, arrays: Arrays, output: str = "") -> dict[str, Any]:
    """Return the results in float64, or the gradient that is meant."""
    wide = {name: one.astype(np.float64) if one.dtype.kind == "f" else one.copy() for name, one in arrays.items()}
    with np.errstate(all="ignore"):
        if case.phase != "forward":
            return {output: np.asarray(_gradients(case, wide)[output])}
        return {name: np.asarray(y) for name, y in OPS[case.op].expected(wide, **forward_arguments(case)).items()}


def _gradients(case: Case, arrays: Arrays) -> dict[str, Any]:
    from nearpeak.measure.validation._autograd import gradients_in_fp64
    from nearpeak.measure.validation._oracle import Question, arguments_of

    forward = OPS[case.op].forward_case(case)
    arguments = arguments_of(forward)
    tensors = {name: arrays[name] for name in OPS[case.op].inputs(**arguments)}
    asked = Question(case=forward, arguments=arguments, tensors=tensors, expected={}, distribution="small")
    return gradients_in_fp64(asked, arrays)


def _free(small: Case, axes: tuple[str, ...], inputs: Arrays, outputs: Arrays, output: str) -> Free | None:
    """Return the dimensions along the axes; none where part of the inputs does not give that part of the results."""
    extent = dict(small.axes)[axes[0]]
    half = resized(small, dict.fromkeys(axes, extent // 2))
    there: Dimensions = ()
    try:
        shapes = {name: spec.shape for name, spec in OPS[small.op].inputs(**forward_arguments(half)).items()}
        shapes |= {name: np.shape(array) for name, array in _given(half).items() if name not in shapes}
        along = _along(inputs, shapes, extent)
        for chosen in (np.arange(1, extent, 2), np.array([0, *range(extent - extent // 2 + 1, extent)])):
            parts = _computed(half, taken_at(inputs, along, chosen), output)
            there = _along(outputs, {name: np.shape(one) for name, one in parts.items()}, extent)
            wanted = taken_at(outputs, there, chosen)
            if not there or not all(np.allclose(parts[n], wanted[n], 1e-9, 1e-12, equal_nan=True) for n in outputs):
                return None
    except Exception:  # positions that lie in what was cut off, extents that do not fit
        return None
    return Free(axes=axes, inputs=along, outputs=there)


def _along(arrays: Arrays, shapes: Mapping[str, tuple[int, ...]], extent: int) -> Dimensions:
    """Return the dimensions that are half as long in `shapes`.

    Raises:
        ValueError: some have become another length.
    """
    found = []
    for name, array in arrays.items():
        for dimension, (whole, part) in enumerate(zip(np.shape(array), shapes[name], strict=True)):
            if whole != part and (whole, part) != (extent, extent // 2):
                raise ValueError(f"{name}: dimension {dimension} is {part} where half of {whole} was asked for")
            found += [(name, dimension)] if whole != part else []
    return tuple(found)


def taken_at(arrays: Arrays, along: Dimensions, chosen: Any) -> dict[str, Any]:
    """Return the arrays at the positions that were chosen along some dimensions."""
    found = dict(arrays)
    for name, dimension in along:
        found[name] = np.take(found[name], chosen, axis=dimension)
    return found
