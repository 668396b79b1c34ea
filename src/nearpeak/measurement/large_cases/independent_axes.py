"""Axes along which results depend on their own inputs alone, found on small cases of the same kind."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from nearpeak.case_tensors.random_inputs import drawn, forward_arguments, size_bytes
from nearpeak.core.work.case import Case
from nearpeak.ops import OPS, work_of

SMALL = (6, 8)
"""Extents of the small cases on which the independence of axes is tested."""
LEAST_SHARED = 4
"""Least extent of an axis that is cut together with another one that is a multiple as long."""
MOST_BYTES, MOST_FLOP = 2**24, 5 * 10**8
"""Most bytes and FLOP of a sample: the reference is evaluated some fifteen times for its bounds."""
MORE = 4
"""Factor by which a sample may exceed these before fewer than LEAST_COUNT positions are taken."""
SLOWER = 16
"""Slowdown of references that are no plain products: sliding windows, roots, exponentials."""
Dimensions = tuple[tuple[str, int, int], ...]
"""Array name, dimension, and number of its positions per position of the axis."""
Arrays = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """An axis along which each result depends only on the inputs at the same position."""

    axes: tuple[str, ...]
    """The axis, and others of equal or multiple extent: several query heads share the keys of one."""
    each_count: tuple[int, ...]
    """Positions along each axis per position of the first one."""
    inputs: Dimensions
    """Inputs and their dimensions that lie along it."""
    outputs: Dimensions
    """Outputs and theirs."""


def is_large(case: Case, allowed: float = 1) -> bool:
    """Return whether a sample exceeds `allowed` times its limits."""
    products = OPS[case.op].tolerance.kind == "contraction" and "kw" not in dict(case.axes)
    most = allowed if products else allowed / SLOWER
    return size_bytes(case) > most * MOST_BYTES or sum(work_of(case).flop.values()) > most * MOST_FLOP


def resized(case: Case, extents: Mapping[str, int]) -> Case:
    """Return the case with other extents, whose inputs lie densely."""
    return replace(case, axes=tuple((name, extents.get(name, extent)) for name, extent in case.axes), memory=())


@lru_cache(maxsize=64)
def free_axes(case: Case, output: str = "") -> tuple[Free, ...]:
    """Return the axes along which results depend only on their own inputs, tested on small cases.

    Args:
        output: for gradients, the examined one: others are sums along its axes.

    >>> from nearpeak.ops import case
    >>> [free.axes for free in free_axes(case("softmax", rows=4096, columns=4096, dtype="fp32"))]
    [('rows',)]
    """
    answer = _small_answer(case, output)
    if answer is None:
        return ()
    small, joined, inputs, outputs = answer
    candidates = (_free(small, axes, (1,) * len(axes), inputs, outputs, output) for axes in joined)
    alone = tuple(free for free in candidates if free is not None)
    return (*alone, *_shared(case, small, alone, output))


def _small_answer(case: Case, output: str) -> tuple[Case, list[tuple[str, ...]], Arrays, Arrays] | None:
    """Return a small case of the kind, groups of equal axes, its inputs and results; none where it cannot run."""
    small, joined = _shrunk(case)
    if OPS[case.op].draws or is_large(small, MORE):
        return None
    try:
        inputs = _given(small)
        return small, joined, inputs, _computed(small, inputs, output)
    except Exception:  # extents that do not fit each other raise whatever a reference raises
        return None


def _shared(case: Case, small: Case, alone: tuple[Free, ...], output: str) -> Iterator[Free]:
    """Yield axes that are independent together with one of multiple extent: key heads with their query heads."""
    taken = {axis for free in alone for axis in free.axes}
    for first, length in case.axes:
        for other, longer in case.axes:
            times = longer // max(length, 1)
            if taken & {first, other} or length < LEAST_SHARED or times == 1 or longer != times * length:
                continue
            extents = (min(length, extent) for extent in SMALL)
            candidates = (resized(small, {first: extent, other: extent * times}) for extent in extents)
            cut = next(filter(_fits, candidates), None)
            free = None if cut is None else _free_pair(cut, (first, other), (1, times), output)
            if free is not None:
                taken |= {first, other}
                yield free


def _free_pair(small: Case, axes: tuple[str, ...], times: tuple[int, ...], output: str) -> Free | None:
    if is_large(small, MORE):
        return None
    try:
        inputs = _given(small)
        return _free(small, axes, times, inputs, _computed(small, inputs, output), output)
    except Exception:  # extents that do not fit each other raise whatever a reference raises
        return None


@lru_cache(maxsize=64)
def added_axes(case: Case, output: str) -> tuple[Free, ...]:
    """Return the axes along which a gradient is the sum over parts of its inputs, tested on small cases.

    >>> from nearpeak.ops import case
    >>> gradient = case("layer_norm", "backward", rows=4096, hidden=4096, dtype="fp32")
    >>> [free.axes for free in added_axes(gradient, "grad_weight")], added_axes(gradient, "grad_input")
    ([('rows',)], ())
    """
    answer = _small_answer(case, output)
    if answer is None:
        return ()
    small, joined, inputs, whole = answer
    candidates = (_added(small, axes, inputs, whole, output) for axes in joined)
    return tuple(free for free in candidates if free is not None)


def _added(small: Case, axes: tuple[str, ...], inputs: Arrays, whole: Arrays, output: str) -> Free | None:
    """Return the input dimensions along the axes; none where two halves do not add up to the result."""
    extent, ones = dict(small.axes)[axes[0]], (1,) * len(axes)
    half = resized(small, dict.fromkeys(axes, extent // 2))
    try:
        shapes = {name: np.shape(array) for name, array in _given(half).items()}
        along = _along(inputs, shapes, extent, ones)
        sides = (np.arange(extent // 2), np.arange(extent // 2, extent))
        first, last = (_computed(half, parts_at(inputs, along, side), output)[output] for side in sides)
    except Exception:  # positions beyond the cut, extents that do not fit
        return None
    adds_up = first.shape == whole[output].shape and np.allclose(first + last, whole[output], 1e-9, 1e-12)
    return Free(axes=axes, each_count=ones, inputs=along, outputs=()) if adds_up else None


def _shrunk(case: Case) -> tuple[Case, list[tuple[str, ...]]]:
    """Return a small case of the kind and the groups of axes that were cut: some axes must stay equal."""
    small = resized(case, {})
    joined: list[tuple[str, ...]] = []
    for axis, extent in case.axes:
        if extent <= max(SMALL) or any(axis in axes for axes in joined):
            continue
        equal = [other for other, length in case.axes if length == extent and other != axis]
        for axes in ((axis,), *((axis, other) for other in equal)):
            cut = next(
                (candidate for size in SMALL if _fits(candidate := resized(small, dict.fromkeys(axes, size)))), None
            )
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
    """Return inputs of a small case, with upstream gradients for a gradient's case."""
    arrays = {name: np.asarray(array) for name, array in drawn(case)[0].items()}
    if case.phase == "forward":
        return arrays
    generator = np.random.default_rng(random.Random(case.digest).getrandbits(64))
    outputs = _computed(OPS[case.op].forward_case(case), arrays)
    floats = {name: array for name, array in outputs.items() if array.dtype.kind == "f"}
    return arrays | {f"grad_{name}": generator.standard_normal(array.shape) for name, array in floats.items()}


def _computed(case: Case, arrays: Arrays, output: str = "") -> dict[str, Any]:
    """Return the results in float64, or the examined gradient."""
    wide = {
        name: array.astype(np.float64) if array.dtype.kind == "f" else array.copy() for name, array in arrays.items()
    }
    with np.errstate(all="ignore"):
        if case.phase != "forward":
            return {output: np.asarray(_gradients(case, wide)[output])}
        return {name: np.asarray(y) for name, y in OPS[case.op].expected(wide, **forward_arguments(case)).items()}


def _gradients(case: Case, arrays: Arrays) -> dict[str, Any]:
    from nearpeak.validation.oracle.autograd_gradients import gradients_in_fp64
    from nearpeak.validation.oracle.expected_results import arguments_of
    from nearpeak.validation.oracle.float64_oracle import Draw

    forward = OPS[case.op].forward_case(case)
    arguments = arguments_of(forward)
    tensors = {name: arrays[name] for name in OPS[case.op].inputs(**arguments)}
    draw = Draw(case=forward, arguments=arguments, tensors=tensors, expected={}, distribution="small")
    return gradients_in_fp64(draw, arrays)


def _free(
    small: Case, axes: tuple[str, ...], times: tuple[int, ...], inputs: Arrays, outputs: Arrays, output: str
) -> Free | None:
    """Return the dimensions along the axes; none where some inputs do not determine the same part of the results."""
    extent = dict(small.axes)[axes[0]]
    half = resized(small, {axis: extent // 2 * count for axis, count in zip(axes, times, strict=True)})
    there: Dimensions = ()
    try:
        shapes = {name: spec.shape for name, spec in OPS[small.op].inputs(**forward_arguments(half)).items()}
        shapes |= {name: np.shape(array) for name, array in _given(half).items() if name not in shapes}
        along = _along(inputs, shapes, extent, times)
        for chosen in (np.arange(1, extent, 2), np.array([0, *range(extent - extent // 2 + 1, extent)])):
            parts = _computed(half, parts_at(inputs, along, chosen), output)
            there = _along(outputs, {name: np.shape(count) for name, count in parts.items()}, extent, times)
            wanted = parts_at(outputs, there, chosen)
            if not there or not all(np.allclose(parts[n], wanted[n], 1e-9, 1e-12, equal_nan=True) for n in outputs):
                return None
    except Exception:  # positions that lie in what was cut off, extents that do not fit
        return None
    return Free(axes=axes, each_count=times, inputs=along, outputs=there)


def _along(arrays: Arrays, shapes: Mapping[str, tuple[int, ...]], extent: int, times: tuple[int, ...]) -> Dimensions:
    """Return the dimensions that are half as long in `shapes`.

    Raises:
        ValueError: some have become another length.
    """
    dimensions = []
    for name, array in arrays.items():
        for dimension, (whole, part) in enumerate(zip(np.shape(array), shapes[name], strict=True)):
            each = next((count for count in times if (whole, part) == (extent * count, extent // 2 * count)), 0)
            if whole != part and not each:
                raise ValueError(f"{name}: dimension {dimension} is {part} where half of {whole} was asked for")
            dimensions += [(name, dimension, each)] if whole != part else []
    return tuple(dimensions)


def parts_at(arrays: Arrays, along: Dimensions, chosen: Any) -> dict[str, Any]:
    """Return the arrays at the chosen positions along some dimensions."""
    parts = dict(arrays)
    for name, dimension, times in along:
        parts[name] = np.take(parts[name], spread(chosen, times), axis=dimension)
    return parts


def spread(chosen: Any, times: int) -> Any:
    """Return the positions along an axis `times` as long that correspond to the chosen ones.

    >>> spread(np.array([0, 3]), 2).tolist()
    [0, 1, 6, 7]
    """
    return (np.asarray(chosen)[:, None] * times + np.arange(times)).ravel()
