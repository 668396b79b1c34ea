"""What a case too large for the contract is judged by: a seeded sample of its results, which is a smaller case."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from nearpeak.core.case import Case
from nearpeak.core.measurement import Prepared
from nearpeak.core.validation import CheckResult, Validation
from nearpeak.errors import SpecError
from nearpeak.measure.inputs import drawn, forward_arguments, size_bytes
from nearpeak.measure.reverified import reverified, timed_result
from nearpeak.ops import OPS, work_of

SMALL = (6, 8)
"""Extents at which it is tried whether results along an axis follow from their own inputs alone."""
MOST_COUNT, LEAST_COUNT = 4096, 64
"""Positions along an axis that a sample has at most, and to which axes are cut before any is cut further."""
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


def spot_checked(case: Case, inputs: Arrays, outputs: Arrays) -> tuple[CheckResult | None, str]:
    """Return the comparison of a sample of `outputs` with float64, and what the sample is; none where there is none.

    Along each axis that is cut, the first and the last position are in the sample.
    """
    positions = positions_of(case) if case.phase == "forward" and not outputs.keys() & inputs.keys() else {}
    if not positions:
        return None, ""
    extents, found, given = dict(case.axes), dict(outputs), dict(inputs)
    for free, chosen in positions.items():
        extent = extents[free.axes[0]]
        for name, dimension in free.outputs:
            shape = np.shape(found[name]) if name in found else ()
            if len(shape) <= dimension or shape[dimension] != extent:
                reason = f"a timed call gives {name}{list(shape)}; dimension {dimension} is {free.axes[0]}, {extent}"
                return CheckResult(check="V11", status="SHAPE_FAIL", reason=reason), ""
            found[name] = np.take(np.asarray(found[name]), chosen, axis=dimension)
        for name, dimension in free.inputs:
            given[name] = np.take(np.asarray(given[name]), chosen, axis=dimension)
    try:
        result = timed_result(_cut(case, {free: len(chosen) for free, chosen in positions.items()}), given, found, None)
    except SpecError:  # how many inputs differ is stated, and more than the sample has
        return None, ""
    said = ", ".join(f"{len(at)} of {extents[free.axes[0]]} {free.axes[0]}" for free, at in positions.items())
    return _in_place(result, positions), said


def _in_place(result: CheckResult | None, positions: Mapping[Free, Any]) -> CheckResult | None:
    """Return the result with the element that it names where it stands among all results."""
    worst = result.worst if result is not None else None
    if result is None or worst is None:
        return result
    offset = list(worst.offset)
    for free, at in positions.items():
        for name, dimension in free.outputs:
            if name == worst.output:
                offset[dimension] = int(at[offset[dimension]])
    there = replace(worst, offset=tuple(offset))
    return replace(result, worst=there, reason=result.reason.replace(str(list(worst.offset)), str(offset)))


def judged_again(
    record: Validation | None, case: Case, prepared: Prepared, seen: tuple[int, Arrays], inputs: Arrays, *,
    runner: str, why: str,
) -> tuple[Validation | None, str]:  # fmt: skip
    """Return the record with what a timed call's outputs say, and what is to be said where the contract did not run.

    Args:
        record: of the contract, none where it did not run.
        seen: which set of inputs was timed, and its outputs.
        inputs: that set.
        why: the contract did not run.
    """
    if record is not None:
        return reverified(record, case, prepared, seen, inputs), ""
    if not why:
        return None, ""
    note = f"unchecked by the contract: {why}"
    result, sample = spot_checked(case, inputs, seen[1])
    if result is None:
        return None, note
    if not result.failed:
        return None, f"{note}; a sample of a timed call's results agrees with float64 ({sample})"
    from nearpeak.measure.validation import recorded_as_timed

    return recorded_as_timed(case, runner, result), note


def positions_of(case: Case) -> dict[Free, Any]:
    """Return the positions of the sample along each axis; none where no sample is small enough.

    >>> from nearpeak.ops import case
    >>> large = positions_of(case("gemm", m=2048, n=2048, k=2048, dtype="fp32"))
    >>> {free.axes: (len(at), int(at[0]), int(at[-1])) for free, at in large.items()}
    {('m',): (256, 0, 2047), ('n',): (256, 0, 2047)}
    """
    extents = dict(case.axes)
    counts = {free: min(extents[free.axes[0]], MOST_COUNT) for free in free_axes(case)}
    for least, allowed in ((LEAST_COUNT, 1), (2, MORE)):
        while counts and _is_large(_cut(case, counts), allowed):
            longest = max(counts, key=lambda free: counts[free])
            if counts[longest] // 2 < least:
                break
            counts[longest] //= 2
    if not counts or _is_large(_cut(case, counts), MORE):
        return {}
    generator = np.random.default_rng(random.Random(case.digest).getrandbits(64))
    return {free: _chosen(generator, extents[free.axes[0]], count) for free, count in counts.items()}


def _chosen(generator: np.random.Generator, extent: int, count: int) -> Any:
    """Return so many positions in order, the first and the last among them."""
    if count >= extent:
        return np.arange(extent)
    return np.sort(np.concatenate([[0, extent - 1], 1 + generator.choice(extent - 2, count - 2, replace=False)]))


def _is_large(case: Case, allowed: float = 1) -> bool:
    products = OPS[case.op].numerics.kind == "contraction" and "kw" not in dict(case.axes)
    most = allowed if products else allowed / SLOWER
    return size_bytes(case) > most * MOST_BYTES or sum(work_of(case).flop.values()) > most * MOST_FLOP


def _cut(case: Case, counts: Mapping[Free, int]) -> Case:
    return _with(case, {axis: count for free, count in counts.items() for axis in free.axes})


def _with(case: Case, extents: Mapping[str, int]) -> Case:
    """Return the case with other extents, whose inputs lie densely."""
    return replace(case, axes=tuple((name, extents.get(name, extent)) for name, extent in case.axes), memory=())


@lru_cache(maxsize=64)
def free_axes(case: Case) -> tuple[Free, ...]:
    """Return the axes along which results follow from their own inputs alone, as small cases of the kind show it.

    >>> from nearpeak.ops import case
    >>> [free.axes for free in free_axes(case("softmax", rows=4096, columns=4096, dtype="fp32"))]
    [('rows',)]
    """
    operator = OPS[case.op]
    if operator.draws:
        return ()
    small, joined = _shrunk(case)
    if _is_large(small, MORE):
        return ()
    try:
        inputs, outputs = _computed(small, drawn(small)[0])
    except Exception:  # extents that do not fit each other raise whatever a reference raises
        return ()
    found = (_free(small, axes, inputs, outputs) for axes in joined)
    return tuple(one for one in found if one is not None)


def _shrunk(case: Case) -> tuple[Case, list[tuple[str, ...]]]:
    """Return a small case of the kind, and the axes that were cut for it: some have to be as long as another."""
    small = _with(case, {})
    joined: list[tuple[str, ...]] = []
    for axis, extent in case.axes:
        if extent <= max(SMALL) or any(axis in axes for axes in joined):
            continue
        equal = [other for other, length in case.axes if length == extent and other != axis]
        for axes in ((axis,), *((axis, other) for other in equal)):
            cut = next((one for size in SMALL if _fits(one := _with(small, dict.fromkeys(axes, size)))), None)
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


def _computed(case: Case, inputs: Arrays) -> tuple[dict[str, Any], dict[str, Any]]:
    arrays = {name: np.asarray(array) for name, array in inputs.items()}
    wide = {name: one.astype(np.float64) if one.dtype.kind == "f" else one.copy() for name, one in arrays.items()}
    with np.errstate(all="ignore"):
        return arrays, {
            name: np.asarray(y) for name, y in OPS[case.op].expected(wide, **forward_arguments(case)).items()
        }


def _free(small: Case, axes: tuple[str, ...], inputs: Arrays, outputs: Arrays) -> Free | None:
    """Return the dimensions along the axes; none where part of the inputs does not give that part of the results."""
    extent = dict(small.axes)[axes[0]]
    half = _with(small, dict.fromkeys(axes, extent // 2))
    there: Dimensions = ()
    try:
        shapes = {name: spec.shape for name, spec in OPS[small.op].inputs(**forward_arguments(half)).items()}
        along = _along(inputs, shapes, extent)
        for chosen in (np.arange(1, extent, 2), np.array([0, *range(extent - extent // 2 + 1, extent)])):
            _, parts = _computed(half, _taken(inputs, along, chosen))
            there = _along(outputs, {name: np.shape(one) for name, one in parts.items()}, extent)
            wanted = _taken(outputs, there, chosen)
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


def _taken(arrays: Arrays, along: Dimensions, chosen: Any) -> dict[str, Any]:
    found = dict(arrays)
    for name, dimension in along:
        found[name] = np.take(found[name], chosen, axis=dimension)
    return found
