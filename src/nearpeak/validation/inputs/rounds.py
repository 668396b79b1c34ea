"""Selection of the input rounds of a validation, so that every part of inputs and outputs matters in some round."""

from collections.abc import Hashable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from nearpeak.core.work.case import Case
from nearpeak.core.work.dtype import dtype_of
from nearpeak.ops import OPS
from nearpeak.validation.comparison.ties import ranked, settled
from nearpeak.validation.inputs.distributions import ALWAYS
from nearpeak.validation.oracle.expected_results import arguments_of, contract_of
from nearpeak.validation.oracle.float64_oracle import Question, declared_formats, question
from nearpeak.validation.oracle.format_limits import widened
from nearpeak.validation.running.implementation_run import imported_torch

MOST_TRIED, MOST_KEPT = 14, 8
"""Further draws that are tried on the oracle, and rounds that are added."""
MOST_LOOKED_AT = 2**25
"""Elements of inputs, over all evaluations of the reference, up to which further draws are tried: no small case has so
many, and of large ones little is hidden."""
SINGLE = 6
"""Draws of one whole number: of a table of few rows each may be the one that is left alone."""
ENOUGH, MOST_REPEATED = 48, 36
"""Results of a kind that are looked at over all rounds, and rounds that are added for them: few leave room for luck."""
SMALL = 20_000
"""Elements of inputs up to which every case is looked at."""
POOLED = ("normal", "positive", "wide")
"""Distributions whose errors are taken together over all rounds."""
KINDS = ("jumps", "jumps_first", "nonfinite")
"""Distributions that hold numbers of the kinds that an operator tells apart."""
SEED_STEP = 1000
"""Apart from each other are the seeds of further draws, so that none is another case's first."""


@lru_cache(maxsize=2)
def rounds_of(case: Case, seed: int) -> tuple[Question, ...]:
    """Return the questions of all rounds; distributions on which the operator is not defined are left out.

    Operators that select hide what was not selected: the oracle says which slices of inputs mattered in some round, and
    which neighbouring results were unlike. Where some never did, sorted inputs and further seeds are added that help.
    """
    asked = [one for name in distributions_of(case) if (one := question(case, seed, name)) is not None]
    further = _further(case, seed, asked) if _selects(case, asked) else ()
    return (*asked, *further, *_repeated(case, seed, asked))


def distributions_of(case: Case) -> tuple[str, ...]:
    """Return the distributions that the contract asks about."""
    numerics = contract_of(case)
    # Of whole numbers, matrices are singular too often, and tiny numbers are 0 in fp16.
    left_out = {"integer"} if numerics.kind == "decomposition" else set()
    declared = OPS[case.op].inputs(**arguments_of(case)).values()
    floats = {one.dtype for one in declared if dtype_of(one.dtype).kind == "float"}
    left_out |= {"tiny"} if floats == {"fp16"} else set()
    return tuple(one for one in (*ALWAYS, *numerics.rounds) if one not in left_out)


def _repeated(case: Case, seed: int, asked: list[Question]) -> Iterator[Question]:
    """Give normal inputs again and again where results are few: what is off by a little shows in some of them only.

    What tells numbers of a kind apart gets such numbers again. Elsewhere, as many are needed as errors are pooled of.
    """
    if not asked or sum(tensor.numel() for tensor in asked[0].tensors.values()) > SMALL:
        return
    again = next((one for one in contract_of(case).rounds if one in KINDS), "normal")
    counted = [one for one in asked if again in KINDS or one.distribution in POOLED]
    seen = min((one.values.size for one in asked[0].expected.values()), default=ENOUGH) * len(counted)
    for number in range(MOST_REPEATED):
        if seen >= ENOUGH:
            return
        drawn = question(case, seed + SEED_STEP * (2 * MOST_TRIED + number), again)
        if drawn is not None:
            seen += min((one.values.size for one in drawn.expected.values()), default=ENOUGH)
            yield drawn


def _selects(case: Case, asked: list[Question]) -> bool:
    """Say whether results may leave parts of the inputs out: where they are chosen, and in small cases anywhere."""
    if not asked:
        return False
    whole = any(one.values.dtype.kind not in "fc" for one in asked[0].expected.values())
    small = sum(tensor.numel() for tensor in asked[0].tensors.values()) <= SMALL
    return small or whole or contract_of(case).kind == "exact"


def _further(case: Case, seed: int, asked: list[Question]) -> Iterator[Question]:
    missing = _wanted(asked[0])
    kept, looked = 0, sum(tensor.numel() for tensor in asked[0].tensors.values())
    spent = looked * len(missing) * len(asked)
    for one in asked:
        missing -= _shown(one, missing)
    for further, distribution in _candidates(case, seed):
        spent += looked * len(missing)
        if not missing or kept == MOST_KEPT or spent > MOST_LOOKED_AT:
            return
        drawn = question(case, further, distribution)
        new = set() if drawn is None else _shown(drawn, missing)
        if drawn is not None and new:
            missing -= new
            kept += 1
            yield drawn


def _candidates(case: Case, seed: int) -> Iterator[tuple[int, str]]:
    """Give seeds and distributions to try; equal values only where it is declared which of them counts."""
    yield from ((seed, "ascending"), (seed, "descending"))
    numerics = contract_of(case)
    positions = any(str(dtype).startswith("torch.int") for dtype in declared_formats(case).values())
    if not positions or "ties" in numerics.rounds or numerics.picks:
        yield from ((seed, "ends"), (seed + SEED_STEP, "ends"), (seed, "last"))
        yield from ((seed + SEED_STEP * number, "single") for number in range(SINGLE))
    others = ["normal", "ties" if "ties" in numerics.rounds or numerics.picks else "integer"]
    if any(tensor.dtype == "bool" for tensor in OPS[case.op].inputs(**arguments_of(case)).values()):
        others += ["integer", "wide"]  # few true, few false: rows that are none or all
    # A zero point shows in what is clipped alone, whether there is any in rows of zeros, and the last of many bins at
    # its edge.
    others += [one for one in numerics.rounds if one in ("saturated", "sparse", "edges")]
    others += [f"{one}_sorted" for one in numerics.rounds if one in ("small_first", "small_last")]
    others = [one for one in numerics.rounds if one in KINDS] or others
    for number in range(2, MOST_TRIED):
        yield seed + SEED_STEP * number, others[number % len(others)]


Obligations = set[Hashable]


def _wanted(asked: Question) -> Obligations:
    """Return everything that should matter in some round."""
    found = {(name, part) for name, tensor in asked.tensors.items() for part in _parts(tensor)}
    pairs = {(name, pair) for name, one in asked.expected.items() for pair in _pairs(one.values)}
    whole = {(name, NOT_ZERO) for name, one in asked.expected.items() if one.values.dtype.kind not in "fc"}
    truths = {(name, NOT_TRUE) for name, one in asked.expected.items() if one.dtype == "bool"}
    return found | pairs | whole | truths


NOT_ZERO = "not zero"
"""What whole-number results should be in some round: positions that are never any but the first hide what is lost."""
NOT_TRUE = "not true"
"""What truth values should be in some round, beside true ones in another."""


def _shown(asked: Question, missing: Obligations) -> Obligations:
    """Return what of `missing` matters in this round: slices that change a result, unlike neighbouring results."""
    found: Obligations = set()
    for name, one in asked.expected.items():
        if _is_not_zero(asked, name):
            found.add((name, NOT_ZERO))
        if not np.all(one.values):
            found.add((name, NOT_TRUE))
        for dimension, index in _pairs(one.values):
            first, second = (np.take(one.values, place, axis=dimension) for place in (index, index + 1))
            if not np.array_equal(first, second):
                found.add((name, (dimension, index)))
    arrays = {name: widened(tensor) for name, tensor in asked.tensors.items()}
    before = _results(asked, arrays)
    for name, tensor in asked.tensors.items():
        for part in _parts(tensor):
            if (name, part) not in missing:
                continue
            if _shows(asked, before, _results(asked, {**arrays, name: _changed(arrays[name], *part)})):
                found.add((name, part))
    return found & missing


def _is_not_zero(asked: Question, name: str) -> bool:
    """Say whether a result is not zero somewhere; a position, whether zero would be wrong there."""
    values, source = asked.expected[name].values, contract_of(asked.case).picks.get(name)
    if source is None:
        return bool(np.any(values))
    taken = np.asarray(widened(ranked(asked.case, asked.tensors, source)))
    places = values if values.ndim == taken.ndim else values[..., None]
    return bool(np.any(np.take_along_axis(taken, places, -1) != taken[..., :1])) if taken.size else False


Part = tuple[int, int, float]


def _parts(tensor: Any) -> Iterator[Part]:
    """Give slices of a float input at the edges and in the middle, each to be dropped and to be counted twice.

    A single number is a slice too; other extents of 1 are all of what is there.
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


def _results(asked: Question, arrays: Mapping[str, Any]) -> dict[str, Any]:
    try:
        with np.errstate(all="ignore"):
            found = OPS[asked.case.op].expected({name: one.copy() for name, one in arrays.items()}, **asked.arguments)
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return {}
    return {name: np.asarray(value) for name, value in found.items()}


def _shows(asked: Question, left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    """Say whether results differ by more than a right one may: what is less would not be seen."""
    if left.keys() != right.keys() or any(left[name].shape != right[name].shape for name in left):
        return True
    if contract_of(asked.case).picks:
        right = _settled(asked, left, right)
    for name, value in left.items():
        one = asked.expected.get(name)
        with np.errstate(all="ignore"):
            apart = np.abs(value * 1.0 - right[name]) > (0.0 if one is None else one.bound)
        if np.any(apart | (np.isfinite(value) != np.isfinite(right[name]))):
            return True
    return False


def _settled(asked: Question, left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    """Return `right` with positions as in `left` where either is right: the order of equal values tells nothing."""
    torch = imported_torch()
    outputs = {name: torch.as_tensor(value) for name, value in right.items()}
    found = settled(asked.case, asked.tensors, outputs, left, asked)
    return {name: one.numpy() for name, one in found.items()}
