"""The float64 oracle of a case: expected results and error bounds, element by element."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np

from nearpeak.case_tensors.memory_placement import placed
from nearpeak.core.work.case import Case
from nearpeak.errors import MeasureError, NotModelledError
from nearpeak.ops import OPS, Tolerance
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
"""Intermediate results that a gradient may store in its format: it is a chain even where the forward pass is none."""
WIDER = 4
"""Factor of the probe step for integer results: probes see only some of the ways to another position."""
ORACLE = 2.0**-50
"""Error of the oracle itself, in units of its largest result."""
STORED_RMS = 0.5
"""Root mean square error of rounding to nearest, in roundoffs: 0.42 for uniformly distributed significands."""
GATE_RMS = 0.25
"""Root mean square error of gates, in units of the largest permitted one."""
ONCE = (*SUMS, "pointwise")
"""Kinds whose results are rounded to the output format once, unless a tolerance permits stored intermediates."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Draw:
    """Seeded inputs of one round with the oracle's expected results; compared by identity."""

    case: Case
    """Case of the forward pass."""
    arguments: Mapping[str, Any]
    """Arguments of reference and implementation."""
    tensors: Arrays
    """Torch tensors by input name; implementations get copies."""
    expected: Mapping[str, Expected]
    """By output name."""
    distribution: str
    """Distribution of the inputs."""
    seed: int = 0
    """Seed of the inputs."""


@lru_cache(maxsize=24)
def draw_inputs(case: Case, seed: int, distribution: str) -> Draw | None:
    """Return the inputs and expected results of one round; none where the operator has no such inputs.

    They are cached, as many implementations get the same ones.
    """
    tensors = drawn(case.op, arguments_of(case), (seed,), distribution)
    return None if tensors is None else replace(bounded_draw(case, tensors, distribution), seed=seed)


def unbounded_draw(case: Case, tensors: Arrays, distribution: str) -> Draw:
    """Return `tensors` with expected results but infinite bounds: for masks of NaN and infinities, and for shapes.

    Raises:
        MeasureError: the oracle fails on them.
    """
    arguments, formats = arguments_of(case), declared_formats(case)
    tensors = placed(imported_torch(), case, tensors)
    arrays = {name: widened(tensor) for name, tensor in tensors.items()}
    results = evaluated(lambda inputs: OPS[case.op].expected(inputs, **arguments), arrays, case.label())
    masks = Tolerance(kind="masks")
    expected = {
        name: _expected(value, formats[name], masks, 1.0, 0.0, _Moves(reach=np.inf)) for name, value in results.items()
    }
    return Draw(case=case, arguments=arguments, tensors=tensors, expected=expected, distribution=distribution)


def bounded_draw(case: Case, tensors: Arrays, distribution: str) -> Draw:
    """Return `tensors` with expected results and error bounds.

    Raises:
        MeasureError: the oracle fails on them.
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
    chained: Tolerance | None = None, passed: Reference | None = None,
) -> dict[str, Expected]:  # fmt: skip
    """Return the expected gradients, with the tolerance of a chain of operations, whatever the forward pass has.

    Args:
        passed: magnitude of added and subtracted intermediates, where the operator states it.
        chained: a tolerance that replaces the default one.
    """
    if chained is not None:
        return answers(reference, tensors, formats, chained, length, f"gradient of {case.label()}")
    numerics = tolerance_of(case)
    steps = max(2 * numerics.steps_count, GRADIENT_STEPS)
    kind = "sampling" if numerics.kind == "sampling" else "normalisation"
    above = [tensor for name, tensor in tensors.items() if name.startswith("grad_")]
    # The chain rule of fp32 results is computed in fp32, whatever the format of the inputs.
    coarsest_ratio = max((arithmetic_roundoff(format_name(tensor.dtype)) for tensor in above), default=0.0)
    # A mean over many rows scales all gradients down; without a reduction the upstream gradient keeps its size.
    single = all(tensor.numel() <= 1 for tensor in above)
    gates = {"always": "largest" if single else "always", "targets": "targets"}.get(numerics.gates, "")
    chained = Tolerance(
        kind=kind, ulp_count=numerics.ulp_count, steps_count=steps, gates=gates,
        gate_error_count=2 * numerics.gate_error_count,
    )  # fmt: skip
    # Selections do not depend on the last places of the inputs; at stated positions nothing is selected.
    selects = (numerics.picks or numerics.kind == "exact") and OPS[case.op].at_positions is None
    still = [name for name in tensors if selects and not name.startswith("grad_")]
    return answers(
        reference, tensors, formats, chained, length, f"gradient of {case.label()}", still=still, passed=passed,
        coarsest_ratio=coarsest_ratio, derived=True,
    )  # fmt: skip


def answers(
    reference: Reference, tensors: Arrays, formats: Mapping[str, Any], numerics: Tolerance, length: float, where: str,
    stored: Stored | None = None, still: Collection[str] = (),
    passed: Reference | None = None, coarsest_ratio: float = 0.0, derived: bool = False, stores_scores: bool = False,
) -> dict[str, Expected]:  # fmt: skip
    """Return the expected value and bound of each output of `reference` that has a format.

    Args:
        still: inputs whose rounding errors change no result.
        passed: magnitude of added and subtracted intermediates, where inputs do not show it.
        length: of the longest sum.
        coarsest_ratio: roundoff of intermediate arithmetic, where it is coarser than the output format's.
        where: label of the case, for errors.
        stored: the reference with intermediates stored in stated formats, where it has such ones.
        derived: whether terms cancel for all inputs, as in gradients: then every arithmetic step is perturbed too.
        stores_scores: whether stored scores may be far larger than perturbed inputs show.
    """
    arrays = {name: widened(tensor) for name, tensor in tensors.items()}
    results, names = evaluated(reference, arrays, where), set(map(format_name, formats.values()))
    finest_ratio = min(map(arithmetic_roundoff, names & UNIT_ROUNDOFF.keys()), default=2.0**-24)
    step = 4 * max(finest_ratio, coarsest_ratio)
    fixed, moving = ({k: a for k, a in arrays.items() if (k in still) is held} for held in (True, False))

    def beside(changed: dict[str, Any]) -> dict[str, Any]:
        return reference({**{name: array.copy() for name, array in fixed.items()}, **changed})

    exact, spread_over = numerics.kind == "exact", numerics.kind == "decomposition" and not numerics.by_element
    near = {} if exact else moved(beside, probes(moving, step, whole=spread_over), results, where)
    shifted = {} if exact or spread_over else moved(beside, shifts(moving, step), results, where)
    chained = not exact and not still and not spread_over and numerics.kind not in SUMS
    inside = erring(reference, arrays, results, where, rounding(step)) if chained and derived else {}
    sizes = {} if passed is None else evaluated(passed, arrays, where)
    magnitudes, store = magnitudes_of(reference, arrays, where, numerics, results) | sizes, _store(tensors, numerics)
    # A subtracted mean may be stored: no later step removes its rounding error.
    means = {} if derived else {name: STORED_RMS * numerics.steps_count * store * size for name, size in sizes.items()}
    # The best position, or the cell of a sample, may depend on intermediates stored in few bits.
    reach = {name: values / step for name, values in near.items()}
    coarse_step = 0.0 if numerics.kind == "contraction" else numerics.steps_count * store  # products do not jump
    coarse = moved(beside, probes(moving, coarse_step, whole=spread_over), results, where) if coarse_step else {}
    if coarse_step and any(values.dtype.kind not in "fc" for values in results.values()):
        for factor in (WIDER, 2 * WIDER):
            wider = moved(beside, probes(moving, factor * coarse_step, whole=spread_over), results, where)
            reach |= {n: np.fmax(v, reach[n]) for n, v in wider.items() if results[n].dtype.kind not in "fc"}
    stored_error, stored_ratio = ({}, 0.0) if stored is None else stored_errors(stored, arrays, results)
    coarse = _sums({name: SPREAD * errors for name, errors in stored_error.items()}, coarse) if stored_error else coarse
    for nudge in _storage_nudges(store, chained=chained, stores_scores=stores_scores) if coarse_step else ():
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


def _storage_nudges(store: float, *, chained: bool, stores_scores: bool) -> list[Nudge]:
    """Return the errors of storing intermediates: underflow of fp16, whose exponents are short, and rounding."""
    rounded_scores = [rounding(store)] if stores_scores else []
    is_short = chained and store == UNIT_ROUNDOFF["fp16"]
    return (
        [underflow(2 * HALF_STEP["fp16"], HALF_STEP["fp16"] / store), *rounded_scores] if is_short else rounded_scores
    )


def _sums(left: Arrays, right: Arrays) -> dict[str, Any]:
    return {name: values + right.get(name, 0.0) for name, values in left.items()}


def _store(tensors: Arrays, numerics: Tolerance) -> float:
    """Return the roundoff of the format in which intermediates may be stored, 0 where it is fp32 or wider.

    It is the narrowest input's; for products, whose operands are converted to one format, the widest input's.
    """
    floats = [tensor for tensor in tensors.values() if tensor.is_floating_point()]
    if numerics.kind in SUMS and not all(map(_narrow, floats)):
        return 0.0
    return max((UNIT_ROUNDOFF.get(format_name(tensor.dtype), 0.0) for tensor in floats if _narrow(tensor)), default=0.0)


def _narrow(tensor: Any) -> bool:
    return bool(tensor.is_floating_point() and tensor.element_size() == 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moves:
    """Sensitivity of one result to its inputs, per unit of their relative error."""

    reach: Any
    """Change for errors with random signs."""
    magnitude: Any = None
    """Magnitude that errors of intermediates are proportional to, where inputs do not show it."""
    coarse: Any = 0.0
    """Jump when inputs change by the roundoff of stored intermediates."""
    kept: Any = 0.0
    """Average change by intermediates in the format of the arithmetic, which every implementation has."""
    shift: Any = 0.0
    """Change for errors of one sign."""
    inside: Any = 0.0
    """Change for errors with random signs in every arithmetic step, where these are evaluated."""
    operands_count: int = 1
    """Number of perturbed inputs."""
    coarsest_ratio: float = 0.0
    """Roundoff of intermediate arithmetic, where it is coarser than the output format's."""


def _expected(values: Any, dtype: Any, numerics: Tolerance, length: float, store: float, moves: "_Moves") -> Expected:
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
    # Positions and interpolation weights are computed in fp32; stored intermediates err by their own size.
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
    if numerics.kind == "contraction":  # a stored product is rounded once, while the probes perturbed every operand
        stored = STORED_RMS * store * np.fmax(size, reach / np.sqrt(moves.operands_count))
        usual = np.sqrt(floor**2 + numerics.steps_count * stored**2)
    return Expected(
        values=values, rounded=near, bound=np.asarray(last + way), spread=np.asarray(usual), floor=floor,
        inner=way, once=numerics.kind in ONCE and not numerics.steps_count and unit > arithmetic, dtype=name,
    )  # fmt: skip
