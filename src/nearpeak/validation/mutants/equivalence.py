"""Classification of surviving mutants: equivalent by proof, equivalent on samples, or undetected."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from nearpeak.core.work.case import Case
from nearpeak.ops import OPS
from nearpeak.validation.checks.v04_special import inputs_with_nan
from nearpeak.validation.inputs.distributions import drawn
from nearpeak.validation.inputs.nonfinite_values import special_draw
from nearpeak.validation.inputs.rounds import distributions_of
from nearpeak.validation.mutants.equivalence_proofs import argument_for, argument_for_all
from nearpeak.validation.mutants.mutant import Mutant, fitted, right_call
from nearpeak.validation.oracle.autograd_gradients import widened_case
from nearpeak.validation.oracle.expected_results import arguments_of
from nearpeak.validation.oracle.float64_oracle import Draw, unbounded_draw
from nearpeak.validation.oracle.format_limits import widened
from nearpeak.validation.oracle.gradient_oracle import gradients_of, upstream_of
from nearpeak.validation.running.implementation_run import Implementation, imported_torch, run

SEEDS = 5
"""Further seeds on which an equivalent mutant must answer the same."""


def reason_for_equivalence(case: Case, mutant: Mutant, *, seed: int) -> str:
    """Return why `mutant` is equivalent to the right implementation; empty where it is not.

    An argument from the definition and the axes of the case is a proof. Otherwise, on every kind of inputs and several
    seeds, the float64 reference gives the same results for the changed inputs, or the mutant's formula is right in
    float64, or its results and gradients are bit-identical. For analytic operators that is a proof too; for others the
    reason begins with `sampled:`.
    """
    argument = argument_for(case, mutant)
    if argument:
        return f"{PROVED} {argument}"
    shown = _shown(case, mutant, seed)
    if not shown:
        return ""
    analytic = argument_for_all(case, mutant)
    return f"{PROVED} {shown}; {analytic}" if analytic else f"{SAMPLED} {shown}"


PROVED, SAMPLED = "proved:", "sampled:"


def _shown(case: Case, mutant: Mutant, seed: int) -> str:
    """Return the agreement on drawn inputs; empty where the mutant's results differ."""
    draws = _test_draws(case, seed)
    ways: dict[str, Callable[[], bool]] = {
        IDENTITY: lambda: mutant.inputs is not None and all(_identity(case, draw, mutant) for draw, _ in draws),
        ELSEWHERE: lambda: mutant.other is not None and all(_same_elsewhere(case, draw, mutant) for draw, _ in draws),
        ALIKE: lambda: (
            (mutant.moves is not None and mutant.inputs is None and not mutant.of_gradient)
            and all(_alike(draw, mutant) for draw, _ in draws)
        ),
        RIGHT_FORM: lambda: mutant.algebraic and _right_in_float64(case, mutant, seed),
        RIGHT_GRADIENTS: lambda: (
            (mutant.moves is not None and mutant.of_gradient) and _same_gradients_in_float64(case, mutant, seed)
        ),
        SAME_BITS: lambda: _same_answers(case, mutant, draws),
    }
    return next((reason for reason, holds in ways.items() if holds()), "")


RIGHT_FORM = "computed in float64 it gives the reference's results"
IDENTITY = "the reference gives the same for the changed inputs"
ELSEWHERE = "the reference gives the same for the changed arguments"
ALIKE = "the reference's results are the same in the places that change"
RIGHT_GRADIENTS = "its gradients are the right ones where they are computed in float64"
SAME_BITS = "it answers the same bits"


def _right_in_float64(case: Case, mutant: Mutant, seed: int) -> bool:
    """Return whether the mutant agrees with the reference in float64, so that its formula is equivalent."""
    wide = widened_case(case)
    if wide is None:
        return False
    for draw, _ in _test_draws(wide, seed):
        if draw.distribution == "special":
            continue
        ran = run(mutant.implementation(), draw.tensors, arguments_of(wide))
        if ran.error or not all(
            name in ran.outputs and _near(widened(ran.outputs[name]), answer.values, 1e-9)
            for name, answer in draw.expected.items()
        ):
            return False
    return True


def _same_gradients_in_float64(case: Case, mutant: Mutant, seed: int) -> bool:
    """Return whether the mutant has the right gradients in float64, where it only reorders sums."""
    wide = widened_case(case)
    if wide is None:
        return False
    right = Implementation(name="right", call=right_call(wide))
    for draw, one_seed in _test_draws(wide, seed):
        if draw.distribution == "special":
            continue
        left, other = (_answers(who, draw, one_seed, mutant) for who in (right, mutant.implementation()))
        if (
            not left
            or left.keys() != other.keys()
            or not all(_near(widened(left[name]), widened(other[name]), 1e-11) for name in left)
        ):
            return False
    return True


def _identity(case: Case, draw: Draw, mutant: Mutant) -> bool:
    """Return whether the reference gives the same results for the inputs that the mutant changes."""
    assert mutant.inputs is not None
    before = {name: tensor.clone() for name, tensor in draw.tensors.items()}
    after = {**before, **mutant.inputs({name: tensor.clone() for name, tensor in before.items()})}
    expected = OPS[case.op].expected
    try:
        with np.errstate(all="ignore"):
            left, right = (
                expected({k: widened(t).copy() for k, t in tensors.items()}, **draw.arguments)
                for tensors in (before, after)
            )
    except (ArithmeticError, LookupError, ValueError):
        return False
    near = 1e-7 if OPS[case.op].tolerance.kind == "decomposition" else 1e-11
    return left.keys() == right.keys() and all(_near(left[name], right[name], near) for name in left)


def _same_elsewhere(case: Case, draw: Draw, mutant: Mutant) -> bool:
    """Return whether the reference gives the same results for the mutant's arguments, fitted to the same shapes."""
    assert mutant.other is not None
    arrays = {name: widened(tensor) for name, tensor in draw.tensors.items()}
    try:
        with np.errstate(all="ignore"):
            results = OPS[case.op].expected(arrays, **{**draw.arguments, **mutant.other})
    except (ArithmeticError, LookupError, ValueError):
        return False
    torch, expected = imported_torch(), draw.expected
    return results.keys() >= expected.keys() and all(
        _near(output.values, fitted(torch.as_tensor(np.array(results[name])), output.values.shape).numpy(), 1e-11)
        for name, output in expected.items()
    )


def _alike(draw: Draw, mutant: Mutant) -> bool:
    """Return whether the reference's results stay the same, up to rounding, when they are permuted."""
    assert mutant.moves is not None
    before = np.asarray(draw.expected[mutant.where].values)
    return _near(before, mutant.moves(imported_torch().as_tensor(before.copy())).numpy(), 1e-11)


def _near(left: Any, right: Any, near: float) -> bool:
    left, right = np.asarray(left), np.asarray(right)
    if left.shape != right.shape:
        return False
    scale = np.abs(left[np.isfinite(left)]).max(initial=0.0) if left.dtype.kind in "fc" else 0.0
    return bool(np.allclose(left, right, rtol=near, atol=near * scale, equal_nan=True))


@lru_cache(maxsize=2)
def _test_draws(case: Case, seed: int) -> tuple[tuple[Draw, int], ...]:
    """Return the draws for both: every kind of inputs with several seeds, and NaN where the tolerance covers it."""
    draws = []
    for further in range(seed, seed + SEEDS):
        for distribution in distributions_of(case):
            tensors = drawn(case.op, arguments_of(case), (further,), distribution)
            if tensors is not None:
                draws.append((unbounded_draw(case, tensors, distribution), further))
    special = (special_draw(case, seed, name, float("nan")) for name in inputs_with_nan(case))
    return (*draws, *((draw, seed) for draw in special if draw is not None))


def _same_answers(case: Case, mutant: Mutant, draws: Sequence[tuple[Draw, int]]) -> bool:
    right = Implementation(name="right", call=right_call(case))
    both = (right, mutant.implementation())
    answers = ([_answers(who, draw, seed, mutant) for who in both] for draw, seed in draws)
    return all(
        left.keys() == right.keys() and all(_bits(left[name]) == _bits(right[name]) for name in left)
        for left, right in answers
    )


def _answers(implementation: Implementation, draw: Draw, seed: int, mutant: Mutant) -> dict[str, Any]:
    if mutant.of_gradient:
        upstream = upstream_of(draw, seed)
        try:
            return {} if upstream is None else gradients_of(implementation, draw, upstream)
        except (NotImplementedError, RuntimeError):
            return {}
    first = run(implementation, draw.tensors, draw.arguments)
    ran = run(implementation, draw.tensors, draw.arguments)
    memory = {"changed": ran.changed, "overrun": ran.overrun, "error": ran.error}
    return {**first.outputs, **{f"again {name}": y for name, y in ran.outputs.items()}, **memory}


def _bits(value: Any) -> Any:
    """Return a value that compares equal for bit-identical results: format, shape and bytes of tensors."""
    return (str(value.dtype), tuple(value.shape), widened(value).tobytes()) if hasattr(value, "dtype") else value
