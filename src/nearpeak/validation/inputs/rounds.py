"""Selection of the input rounds of a validation, so that every part of inputs and outputs matters in some round."""

from collections.abc import Hashable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from nearpeak.core.work.case import Case
from nearpeak.core.work.dtype import dtype_of
from nearpeak.ops import OPS
from nearpeak.validation.comparison.ties import ranked, with_ties_broken
from nearpeak.validation.inputs.distributions import ALWAYS
from nearpeak.validation.oracle.expected_results import arguments_of, tolerance_of
from nearpeak.validation.oracle.float64_oracle import Draw, declared_formats, draw_inputs
from nearpeak.validation.oracle.format_limits import widened
from nearpeak.validation.running.implementation_run import imported_torch

MOST_TRIED, MOST_KEPT = 14, 8
"""Further draws that are tried on the oracle, and most rounds that are added."""
MOST_LOOKED_AT = 2**25
"""Input elements over all evaluations of the reference up to which further draws are tried: more than any small case
    has, and large cases hide little."""
SINGLE = 6
"""Draws of one repeated integer: in a table of few rows each may be the untouched one."""
ENOUGH, MOST_REPEATED = 48, 36
"""Results needed over all rounds, and most rounds added to reach them: few results may pass by chance."""
SMALL = 20_000
"""Input elements up to which every case gets further rounds."""
POOLED = ("normal", "positive", "wide")
"""Distributions whose errors are pooled over all rounds."""
KINDS = ("jumps", "jumps_first", "nonfinite")
"""Distributions with numbers of the kinds that an operator distinguishes."""
SEED_STEP = 1000
"""Distance of the seeds of further draws, so that none is another case's first seed."""


@lru_cache(maxsize=2)
def rounds_of(case: Case, seed: int) -> tuple[Draw, ...]:
    """Return the inputs of all rounds; distributions on which the operator is not defined are left out.

    Operators that select hide the rest: the oracle shows which input slices mattered in some round, and which
    neighbouring results differed. Where some never did, sorted inputs and further seeds that show them are added.
    """
    draws = [draw for name in distributions_of(case) if (draw := draw_inputs(case, seed, name)) is not None]
    if not draws:
        return ()
    whole = any(output.values.dtype.kind not in "fc" for output in draws[0].expected.values())
    small = sum(tensor.numel() for tensor in draws[0].tensors.values()) <= SMALL
    # Results may leave parts of the inputs out: where they are chosen, and in small cases anywhere.
    selects = small or whole or tolerance_of(case).kind == "exact"
    return (*draws, *(_further(case, seed, draws) if selects else ()), *_repeated(case, seed, draws))


def distributions_of(case: Case) -> tuple[str, ...]:
    """Return the distributions that the operator's tolerance requires."""
    numerics = tolerance_of(case)
    # Integer matrices are singular too often, and tiny numbers are 0 in fp16.
    left_out = {"integer"} if numerics.kind == "decomposition" else set()
    declared = OPS[case.op].inputs(**arguments_of(case)).values()
    floats = {spec.dtype for spec in declared if dtype_of(spec.dtype).kind == "float"}
    left_out |= {"tiny"} if floats == {"fp16"} else set()
    return tuple(spec for spec in (*ALWAYS, *numerics.rounds) if spec not in left_out)


def _repeated(case: Case, seed: int, draws: list[Draw]) -> Iterator[Draw]:
    """Yield repeated normal draws where results are few: a small error shows in some of them only.

    Operators that distinguish kinds of numbers get those kinds again; others as many results as pooling needs.
    """
    if not draws or sum(tensor.numel() for tensor in draws[0].tensors.values()) > SMALL:
        return
    again = next((expected for expected in tolerance_of(case).rounds if expected in KINDS), "normal")
    counted = [expected for expected in draws if again in KINDS or expected.distribution in POOLED]
    seen = min((expected.values.size for expected in draws[0].expected.values()), default=ENOUGH) * len(counted)
    for number in range(MOST_REPEATED):
        if seen >= ENOUGH:
            return
        drawn = draw_inputs(case, seed + SEED_STEP * (2 * MOST_TRIED + number), again)
        if drawn is not None:
            seen += min((expected.values.size for expected in drawn.expected.values()), default=ENOUGH)
            yield drawn


Obligations = set[Hashable]


def obligations_of(draw: Draw) -> Obligations:
    """Return every part of inputs and outputs that should matter in some round."""
    obligations: Obligations = {(name, part) for name, tensor in draw.tensors.items() for part in _parts(tensor)}
    for name, output in draw.expected.items():
        obligations |= {(name, pair) for pair in _pairs(output.values)}
        obligations |= {(name, NOT_ZERO)} if output.values.dtype.kind not in "fc" else set()
        obligations |= {(name, NOT_TRUE)} if output.dtype == "bool" else set()
    return obligations


def _further(case: Case, seed: int, draws: list[Draw]) -> Iterator[Draw]:
    missing = obligations_of(draws[0])
    added_count, looked = 0, sum(tensor.numel() for tensor in draws[0].tensors.values())
    spent = looked * len(missing) * len(draws)
    for draw in draws:
        missing -= _shown(draw, missing)
    for further, distribution in _candidates(case, seed):
        spent += looked * len(missing)
        if not missing or added_count == MOST_KEPT or spent > MOST_LOOKED_AT:
            return
        drawn = draw_inputs(case, further, distribution)
        new = set() if drawn is None else _shown(drawn, missing)
        if drawn is not None and new:
            missing -= new
            added_count += 1
            yield drawn


def _candidates(case: Case, seed: int) -> Iterator[tuple[int, str]]:
    """Yield seeds and distributions to try; equal values only where the operator declares how ties are broken."""
    yield from ((seed, "ascending"), (seed, "descending"))
    numerics = tolerance_of(case)
    positions = any(str(dtype).startswith("torch.int") for dtype in declared_formats(case).values())
    if not positions or "ties" in numerics.rounds or numerics.picks:
        yield from ((seed, "ends"), (seed + SEED_STEP, "ends"), (seed, "last"))
        yield from ((seed + SEED_STEP * number, "single") for number in range(SINGLE))
    others = ["normal", "ties" if "ties" in numerics.rounds or numerics.picks else "integer"]
    if any(tensor.dtype == "bool" for tensor in OPS[case.op].inputs(**arguments_of(case)).values()):
        others += ["integer", "wide"]  # few true or few false: rows without any, or of all
    # A zero point shows only in clipped values and in rows of zeros, the last of many bins only at its edge.
    others += [distribution for distribution in numerics.rounds if distribution in ("saturated", "sparse", "edges")]
    others += [
        f"{distribution}_sorted" for distribution in numerics.rounds if distribution in ("small_first", "small_last")
    ]
    others = [distribution for distribution in numerics.rounds if distribution in KINDS] or others
    for number in range(2, MOST_TRIED):
        yield seed + SEED_STEP * number, others[number % len(others)]


NOT_ZERO = "not zero"
"""Integer results must be non-zero in some round: positions that are always the first would hide errors."""
NOT_TRUE = "not true"
"""Boolean results must be false in some round and true in another."""


def _shown(draw: Draw, missing: Obligations) -> Obligations:
    """Return the part of `missing` that this round shows: slices that change a result, differing neighbours."""
    shown: Obligations = set()
    for name, expected in draw.expected.items():
        if _is_not_zero(draw, name):
            shown.add((name, NOT_ZERO))
        if not np.all(expected.values):
            shown.add((name, NOT_TRUE))
        for dimension, index in _pairs(expected.values):
            first, second = (np.take(expected.values, place, axis=dimension) for place in (index, index + 1))
            if not np.array_equal(first, second):
                shown.add((name, (dimension, index)))
    arrays = {name: widened(tensor) for name, tensor in draw.tensors.items()}
    before = _results(draw, arrays)
    for name, tensor in draw.tensors.items():
        for part in _parts(tensor):
            if (name, part) not in missing:
                continue
            if _shows(draw, before, _results(draw, {**arrays, name: _changed(arrays[name], *part)})):
                shown.add((name, part))
    return shown & missing


def _is_not_zero(draw: Draw, name: str) -> bool:
    """Return whether a result is non-zero somewhere; for positions, whether zero would be wrong there."""
    values, source = draw.expected[name].values, tolerance_of(draw.case).picks.get(name)
    if source is None:
        return bool(np.any(values))
    taken = np.asarray(widened(ranked(draw.case, draw.tensors, source)))
    places = values if values.ndim == taken.ndim else values[..., None]
    return bool(np.any(np.take_along_axis(taken, places, -1) != taken[..., :1])) if taken.size else False


Part = tuple[int, int, float]


def _parts(tensor: Any) -> Iterator[Part]:
    """Yield slices of a float input at the edges and in the middle, each to be dropped and to be counted twice.

    A single number is a slice too; other extents of 1 have no slices.
    """
    if not tensor.is_floating_point():
        return
    for dimension, extent in enumerate(tensor.shape):
        several = extent > 1 or (tensor.numel() == 1 and dimension == 0)
        for index in sorted({0, 1, extent // 2, extent - 2, extent - 1}) if several else ():
            if 0 <= index < extent:
                yield from ((dimension, index, factor) for factor in (0.0, 2.0))


def _pairs(values: Any) -> Iterator[tuple[int, int]]:
    for dimension, extent in enumerate(np.shape(values)):
        yield from ((dimension, index) for index in sorted({0, extent // 2, extent - 2}) if 0 <= index < extent - 1)


def _changed(array: Any, dimension: int, index: int, factor: float) -> Any:
    changed = array.copy()
    changed[(*(slice(None),) * dimension, index)] *= factor
    return changed


def _results(draw: Draw, arrays: Mapping[str, Any]) -> dict[str, Any]:
    try:
        with np.errstate(all="ignore"):
            results = OPS[draw.case.op].expected(
                {name: array.copy() for name, array in arrays.items()}, **draw.arguments
            )
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return {}
    return {name: np.asarray(value) for name, value in results.items()}


def _shows(draw: Draw, left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Return whether results differ by more than the bound, so that the check would see it."""
    if left.keys() != right.keys() or any(left[name].shape != right[name].shape for name in left):
        return True
    if tolerance_of(draw.case).picks:
        torch = imported_torch()
        tensors = {name: torch.as_tensor(value) for name, value in right.items()}
        matched = with_ties_broken(
            draw.case, draw.tensors, tensors, left, draw
        )  # the order of equal values shows nothing
        right = {name: tensor.numpy() for name, tensor in matched.items()}
    for name, value in left.items():
        expected = draw.expected.get(name)
        with np.errstate(all="ignore"):
            apart = np.abs(value * 1.0 - right[name]) > (0.0 if expected is None else expected.bound)
        if np.any(apart | (np.isfinite(value) != np.isfinite(right[name]))):
            return True
    return False
