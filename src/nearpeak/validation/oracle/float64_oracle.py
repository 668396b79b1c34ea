"""The float64 oracle of a case: expected results and error bounds, element by element."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from nearpeak.case_tensors.memory_placement import placed
from nearpeak.core.work.case import Case
from nearpeak.errors import MeasureError, NotModelledError
from nearpeak.ops import OPS, Numerics
from nearpeak.validation.inputs.adversarial_rows import FACED
from nearpeak.validation.inputs.distributions import drawn
from nearpeak.validation.oracle.double_rounding import in_either_way
from nearpeak.validation.oracle.error_scales import SUMS, magnitudes_of
from nearpeak.validation.oracle.expected_results import SPREAD, Expected, arguments_of, sum_length, tolerance_of
from nearpeak.validation.oracle.format_limits import (
    HALF_STEP,
    SMALLEST_NORMAL,
    UNIT_ROUNDOFF,
    arithmetic_roundoff,
    format_name,
    rounded,
    widened,
    wrapped,
)
from nearpeak.validation.oracle.rounding import Nudge, erring, rounding, underflow
from nearpeak.validation.oracle.sensitivity import (
    Arrays,
    Reference,
    Stored,
    evaluated,
    moved,
    probes,
    shifts,
    stored_errors,
)
from nearpeak.validation.running.implementation_run import imported_torch, refuses

GRADIENT_STEPS = 4
"""Intermediate results that a gradient may store in its own format: it is a chain even where the result is none."""
WIDER = 4
"""Steps of whole-number results beside those of others: probes see only some of the ways to another position."""
ORACLE = 2.0**-50
"""Errors of the oracle itself, in units of its largest result."""
STORED_RMS = 0.5
"""Root mean square error of rounding to nearest, in units of the roundoff: 0.42 where all mantissas are as likely."""
GATE_RMS = 0.25
"""Root mean square error of gates, in units of the largest that they are permitted."""
ONCE = (*SUMS, "pointwise")
"""Kinds whose results are rounded to their own format once, at the end, unless a contract grants steps on the way."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Draw:
    """Inputs of one round with everything that the oracle says about them; each is equal to itself alone."""

    case: Case
    """Case of the forward pass."""
    arguments: Mapping[str, Any]
    """Arguments of reference and implementation."""
    tensors: Arrays
    """Torch tensors by input name; implementations get copies."""
    expected: Mapping[str, Expected]
    """By output name."""
    distribution: str
    """How the inputs were drawn."""
    seed: int = 0
    """Seed with which they were."""


@lru_cache(maxsize=24)
def draw_inputs(case: Case, seed: int, distribution: str) -> Draw | None:
    """Return the question of one round, none where the operator has no such inputs.

    It is kept, as many implementations are asked the same one.
    """
    tensors = drawn(case.op, arguments_of(case), (seed,), distribution)
    return None if tensors is None else replace(bounded_draw(case, tensors, distribution), seed=seed)


def unbounded_draw(case: Case, tensors: Arrays, distribution: str) -> Draw:
    """Return the question that `tensors` are, with open bounds: for where NaN and infinities come out, and for shapes.

    Raises:
        MeasureError: the oracle fails on them.
    """
    arguments, formats = arguments_of(case), declared_formats(case)
    tensors = placed(imported_torch(), case, tensors)
    arrays = {name: widened(tensor) for name, tensor in tensors.items()}
    results = evaluated(lambda inputs: OPS[case.op].expected(inputs, **arguments), arrays, case.label())
    masks = Numerics(kind="masks")
    expected = {
        name: _expected(value, formats[name], masks, 1.0, 0.0, _Moves(reach=np.inf)) for name, value in results.items()
    }
    return Draw(case=case, arguments=arguments, tensors=tensors, expected=expected, distribution=distribution)


def bounded_draw(case: Case, tensors: Arrays, distribution: str) -> Draw:
    """Return the question that `tensors` are.

    Raises:
        MeasureError: the oracle itself fails on them, so that nothing can be judged.
    """
    operator, arguments = OPS[case.op], arguments_of(case)
    formats = declared_formats(case)
    tensors = placed(imported_torch(), case, tensors)

    reference, numerics = partial(operator.expected, **arguments), tolerance_of(case)
    length = sum_length(numerics, arguments)
    passed = None if operator.subtracted is None else partial(operator.subtracted, **arguments)
    stored = None if operator.stored is None else partial(operator.stored, **arguments)
    expected = answers(
        reference, tensors, formats, numerics, length, case.label(), stored, passed=passed,
        stores_scores=distribution == "deep" and not tensors.keys().isdisjoint(FACED),
    )  # fmt: skip
    if operator.kept is not None:
        expected = in_either_way(case, expected, tensors)
    return Draw(case=case, arguments=arguments, tensors=tensors, expected=expected, distribution=distribution)


@lru_cache(maxsize=256)
def declared_formats(case: Case) -> dict[str, Any]:
    """Return PyTorch's format of each output, as the operator's own PyTorch call returns them.

    Raises:
        NotModelledError: PyTorch refuses the case.
    """
    arguments = arguments_of(case)
    tensors = drawn(case.op, arguments, ("formats",), "normal")
    if tensors is None:
        raise MeasureError(f"{case.label()}: no inputs on which the reference is defined were found")
    try:
        outputs = OPS[case.op].torch_call({name: t.clone() for name, t in tensors.items()}, **arguments)
    except Exception as error:
        if isinstance(error, NotModelledError) or not (isinstance(error, RuntimeError | ValueError) or refuses(error)):
            raise
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise NotModelledError(
            f"{case.op}: PyTorch computes no such case, so that the formats of its results are not known ({why})"
        ) from None
    return {name: output.dtype for name, output in outputs.items()}


def gradient_answers(
    case: Case, reference: Reference, tensors: Arrays, formats: Mapping[str, Any], length: float,
    chained: Numerics | None = None, passed: Reference | None = None,
) -> dict[str, Expected]:  # fmt: skip
    """Return what is expected of the gradients: the contract of a chained operator, whatever that of the result is.

    Args:
        passed: the size of what is added and subtracted on the way, where the operator states it.
        chained: another contract than that.
    """
    if chained is not None:
        return answers(reference, tensors, formats, chained, length, f"gradient of {case.label()}")
    numerics = tolerance_of(case)
    steps = max(2 * numerics.steps_count, GRADIENT_STEPS)
    kind = "sampling" if numerics.kind == "sampling" else "normalisation"
    above = [tensor for name, tensor in tensors.items() if name.startswith("grad_")]
    # Of results in fp32 the chain rule is computed in fp32, whatever the format of the inputs.
    coarsest_ratio = max((arithmetic_roundoff(format_name(tensor.dtype)) for tensor in above), default=0.0)
    # A mean over many rows makes all gradients small; what is not reduced to one number comes from above as it is.
    single = all(tensor.numel() <= 1 for tensor in above)
    gates = {"always": "largest" if single else "always", "targets": "targets"}.get(numerics.gates, "")
    chained = Numerics(
        kind=kind, ulp_count=numerics.ulp_count, steps_count=steps, gates=gates,
        gate_error_count=2 * numerics.gate_error_count,
    )  # fmt: skip
    # What is selected does not turn on the last places of what it is selected from; where it is computed at given
    # positions, nothing is selected.
    selects = (numerics.picks or numerics.kind == "exact") and OPS[case.op].at_positions is None
    still = [name for name in tensors if selects and not name.startswith("grad_")]
    return answers(
        reference, tensors, formats, chained, length, f"gradient of {case.label()}", still=still, passed=passed,
        coarsest_ratio=coarsest_ratio, derived=True,
    )  # fmt: skip


def answers(
    reference: Reference, tensors: Arrays, formats: Mapping[str, Any], numerics: Numerics, length: float, where: str,
    stored: Stored | None = None, still: Collection[str] = (),
    passed: Reference | None = None, coarsest_ratio: float = 0.0, derived: bool = False, stores_scores: bool = False,
) -> dict[str, Expected]:  # fmt: skip
    """Return what is expected of each output of `reference` that has a format, with its bound.

    Args:
        still: inputs whose rounding errors move no result.
        passed: the size of what is added and subtracted on the way, where inputs alone do not show it.
        length: of the longest sum.
        coarsest_ratio: roundoff of the arithmetic on the way, where that is less exact than the format asks.
        where: what is judged, for errors.
        stored: the reference with intermediates in formats of their own, where it has such ones.
        derived: whether terms cancel on the way whatever the inputs are, as in gradients: the steps err too, then.
        stores_scores: whether what is stored on the way may be far larger than what errors of inputs make of it.
    """
    arrays = {name: widened(tensor) for name, tensor in tensors.items()}
    results, names = evaluated(reference, arrays, where), set(map(format_name, formats.values()))
    finest_ratio = min(map(arithmetic_roundoff, names & UNIT_ROUNDOFF.keys()), default=2.0**-24)
    step = 4 * max(finest_ratio, coarsest_ratio)
    fixed, moving = ({k: a for k, a in arrays.items() if (k in still) is held} for held in (True, False))

    def beside(changed: dict[str, Any]) -> dict[str, Any]:
        return reference({**{name: array.copy() for name, array in fixed.items()}, **changed})

    spread_over = numerics.kind == "decomposition" and not numerics.by_element
    exact = numerics.kind == "exact"
    near = {} if exact else moved(beside, probes(moving, step, whole=spread_over), results, where)
    shifted = {} if exact or spread_over else moved(beside, shifts(moving, step), results, where)
    chained = not exact and not still and not spread_over and numerics.kind not in SUMS
    inside = erring(reference, arrays, results, where, rounding(step)) if chained and derived else {}
    sizes = {} if passed is None else evaluated(passed, arrays, where)
    magnitudes, store = magnitudes_of(reference, arrays, where, numerics, results) | sizes, _store(tensors, numerics)
    # What is subtracted may be stored: no way to compute the rest takes its rounding away.
    means = {} if derived else {name: STORED_RMS * numerics.steps_count * store * size for name, size in sizes.items()}
    # What is the best position, or in which cell a sample lies, may turn on intermediates stored in few bits.
    reach = {name: values / step for name, values in near.items()}
    coarse_step = 0.0 if numerics.kind == "contraction" else numerics.steps_count * store  # products do not jump
    coarse = moved(beside, probes(moving, coarse_step, whole=spread_over), results, where) if coarse_step else {}
    if coarse_step and any(values.dtype.kind not in "fc" for values in results.values()):
        for factor in (WIDER, 2 * WIDER):
            wider = moved(beside, probes(moving, factor * coarse_step, whole=spread_over), results, where)
            whole = {name: value for name, value in wider.items() if results[name].dtype.kind not in "fc"}
            reach |= {name: np.fmax(value, reach[name]) for name, value in whole.items()}
    stored_error, stored_ratio = ({}, 0.0) if stored is None else stored_errors(stored, arrays, results)
    coarse = _sums({name: SPREAD * errors for name, errors in stored_error.items()}, coarse) if stored_error else coarse
    for nudge in _of_stored(store, chained=chained, scores=stores_scores) if coarse_step else ():
        coarse = _sums(erring(reference, arrays, results, where, nudge), coarse)
    return {
        name: _expected(
            values, formats[name], numerics, length, store,
            _Moves(
                reach=None if name in numerics.picks else reach.get(name), magnitude=magnitudes.get(name),
                coarse=coarse.get(name, 0.0),
                kept=means.get(name, 0.0)
                + (stored_error.get(name, 0.0) if stored_ratio <= UNIT_ROUNDOFF["fp32"] else 0.0),
                shift=shifted.get(name, 0.0) / step, inside=inside.get(name, 0.0) / step, coarsest_ratio=coarsest_ratio,
                operands_count=max(sum(array.dtype.kind in "fc" for array in arrays.values()), 1),
            ),
        )
        for name, values in results.items()
        if name in formats
    }  # fmt: skip


def _of_stored(store: float, *, chained: bool, scores: bool) -> Iterator[Nudge]:
    """Give what storing does to steps on the way that errors of the inputs do not show."""
    if chained and store == UNIT_ROUNDOFF["fp16"]:  # other formats reach as far down as fp32
        yield underflow(2 * HALF_STEP["fp16"], HALF_STEP["fp16"] / store)
    if scores:
        yield rounding(store)


def _sums(left: Arrays, right: Arrays) -> dict[str, Any]:
    return {name: values + right.get(name, 0.0) for name, values in left.items()}


def _store(tensors: Arrays, numerics: Numerics) -> float:
    """Return the roundoff of the format in which intermediates may be stored, 0 where none narrower than fp32 is.

    It is that of the narrowest input; of products, whose operands are brought to one format, that of the widest.
    """
    floats = [tensor for tensor in tensors.values() if tensor.is_floating_point()]
    if numerics.kind in SUMS and not all(map(_narrow, floats)):
        return 0.0
    return max((UNIT_ROUNDOFF.get(format_name(tensor.dtype), 0.0) for tensor in floats if _narrow(tensor)), default=0.0)


def _narrow(tensor: Any) -> bool:
    return bool(tensor.is_floating_point() and tensor.element_size() == 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moves:
    """How strongly one result depends on its inputs, per unit of their relative error."""

    reach: Any
    """By how much it moves for errors with random signs."""
    magnitude: Any = None
    """What errors on the way are proportional to, where inputs alone do not show it."""
    coarse: Any = 0.0
    """By how much it jumps when inputs move by the roundoff of intermediates."""
    kept: Any = 0.0
    """By how much it moves, on average, for intermediates in the format of the arithmetic: no way avoids that."""
    shift: Any = 0.0
    """By how much it moves for errors of one sign."""
    inside: Any = 0.0
    """By how much it moves for errors with random signs of every step on the way, where they are asked for."""
    operands_count: int = 1
    """Inputs that moved."""
    coarsest_ratio: float = 0.0
    """Roundoff of the arithmetic on the way, where that is less exact than the format asks."""


def _expected(values: Any, dtype: Any, numerics: Numerics, length: float, store: float, moves: "_Moves") -> Expected:
    name, reach = format_name(dtype), moves.reach
    if name not in UNIT_ROUNDOFF:
        ambiguous = np.zeros(values.shape) + (0.0 if reach is None else np.where(reach > 0, np.inf, 0.0))
        whole = np.asarray(wrapped(values.astype(np.int64) if values.dtype.kind in "fb" else values, name))
        return Expected(
            values=whole, rounded=whole, bound=ambiguous, spread=ambiguous, floor=ambiguous, inner=ambiguous,
            once=False, dtype=name,
        )  # fmt: skip
    near = rounded(values, dtype)
    if numerics.kind in ("exact", "masks"):
        zero = np.zeros(values.shape)
        return Expected(
            values=near, rounded=near, bound=zero, spread=zero, floor=zero, inner=zero, once=False, dtype=name
        )
    unit, arithmetic = UNIT_ROUNDOFF[name], max(arithmetic_roundoff(name), moves.coarsest_ratio)
    size = np.asarray(np.abs(values))
    weight = reach if moves.magnitude is None else np.fmax(reach, moves.magnitude)
    longest = np.fmax(weight, moves.shift)
    last = unit * size + HALF_STEP[name] + ORACLE * np.nanmax(size, initial=0.0, where=np.isfinite(size))
    # Positions and the weights that follow from them are worked out in fp32; what is stored errs by what it holds.
    passed = reach if numerics.kind in (*SUMS, "sampling") else weight
    chain = numerics.steps_count * (store * (size + passed) + (HALF_STEP[name] if store else 0.0)) + moves.coarse
    inner = arithmetic * numerics.ulp_count * size + SMALLEST_NORMAL[arithmetic]
    gates = arithmetic * numerics.gate_error_count * weight
    cancelled = max(arithmetic, store if numerics.steps_count else 0.0) * moves.inside
    way = np.fmax(chain + inner + gates + arithmetic * SPREAD * np.sqrt(length) * longest, 2 * cancelled)
    floor = np.asarray(
        0.6 * last
        + inner
        + 4 * arithmetic * np.sqrt(length) * np.fmax(reach, longest / np.sqrt(length))
        + moves.kept
        + GATE_RMS * gates
    )
    chain = np.fmax(chain, cancelled)
    usual = floor + chain
    if numerics.kind == "contraction":  # a stored product has one rounding, where the probes moved every operand
        stored = STORED_RMS * store * np.fmax(size, reach / np.sqrt(moves.operands_count))
        usual = np.sqrt(floor**2 + numerics.steps_count * stored**2)
    return Expected(
        values=values, rounded=near, bound=np.asarray(last + way), spread=np.asarray(usual), floor=floor,
        inner=way, once=numerics.kind in ONCE and not numerics.steps_count and unit > arithmetic, dtype=name,
    )  # fmt: skip
