"""V9, gradients: they agree with the oracle for random, non-uniform upstream gradients."""

import traceback
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from nearpeak.core.runs.validation import PASS, SKIPPED, CheckResult
from nearpeak.core.work.case import Case
from nearpeak.validation.comparison.output_comparison import comparable, compared, values_of
from nearpeak.validation.comparison.systematic_gradient_error import systematic_gradient_fault
from nearpeak.validation.comparison.torch_baseline import as_good
from nearpeak.validation.inputs.rounds import SEED_STEP
from nearpeak.validation.oracle.expected_results import Expected
from nearpeak.validation.oracle.float64_oracle import Draw, draw_inputs
from nearpeak.validation.oracle.gradient_oracle import (
    NamedPositions,
    as_a_sum_gives,
    differentiated,
    expected_gradients,
    gradients_of,
    leaves_of,
    named_by,
    upstream_of,
    without_gradient,
)
from nearpeak.validation.running.aliased_outputs import changed_by_a_later_call, without_host_copies
from nearpeak.validation.running.implementation_run import pytorch_of, status_of, words_of
from nearpeak.validation.running.trial import Trial


def gradients(trial: Trial) -> CheckResult:
    """Return whether the gradients are right for two upstream gradients, the second with a zero first and a one last.

    A uniform upstream gradient, as of a summed loss, hides transposed and wrongly scaled gradients; it is used as a
    third one, because it has no strides.
    """
    first = next((number for number, draw in enumerate(trial.draws) if _is_something(draw)), 0)
    draw, ran = trial.draws[first], trial.runs[first]
    missing = without_gradient(trial.case, draw)
    if not missing and trial.implementation.arrays != "torch" and trial.implementation.backward is None:
        return CheckResult(check="V9", status=_without(trial), reason="the implementation has no gradient")
    if not missing and (ran.error or not comparable(ran.outputs, draw.expected)):
        missing = "V1 failed"
    if missing:
        return CheckResult(check="V9", status=SKIPPED, reason=missing)
    results = [_of_round(trial, round_draw) for round_draw in gradient_rounds(trial)]
    results += [_of_round(trial, draw, of_sum=True)] if _of_pytorch(draw, trial.seed, of_sum=True) else []
    failed = [result for result in results if result.failed]
    if failed or results[0].status != PASS:
        return failed[0] if failed else results[0]
    if lost := _overwritten(trial):
        reason = f"a later call changes {', '.join(lost)} of an earlier one, where memory of its own is due to each"
        return CheckResult(check="V9", status="ALIASED_OUTPUT", reason=reason)
    fault = systematic_gradient_fault(trial.case, trial.implementation, trial.seed)
    return replace(results[0], status="NUMERIC_FAIL", reason=fault) if fault else results[0]


def _is_something(draw: Draw) -> bool:
    """Return whether outputs have an element: operators that select may return none."""
    return any(expected.values.size for expected in draw.expected.values())


def _overwritten(trial: Trial) -> list[str]:
    """Return the gradients that a later call of the implementation changes."""
    implementation = without_host_copies(trial.implementation)
    device = None if implementation.there is None else "cuda"

    def call(draw: Draw) -> Mapping[str, Any]:
        upstream = upstream_of(draw, trial.seed)
        assert upstream is not None  # gradients were compared
        return gradients_of(implementation, draw, upstream, device)

    return changed_by_a_later_call(call, tuple(filter(_is_something, trial.draws)))


def gradient_rounds(trial: Trial) -> tuple[Draw, ...]:
    """Return the rounds whose gradients are checked: the first two, the one with gaps, and repeated normal rounds.

    Where none of them could expose a wrong gradient, rounds of smaller inputs are added: long recurrences with large
    weights saturate, or their gradients overflow; and the norm of one or two numbers is -1 or 1 except for epsilon,
    which shows only for inputs of its own size.
    """
    held = tuple(filter(_is_something, trial.draws))
    again = (draw for draw in held[2:] if draw.distribution in ("normal", "gaps"))
    first = (*held[:2], *again)
    return (*first, *_gentler(trial.case, trial.seed, first))


@lru_cache(maxsize=24)
def _gentler(case: Case, seed: int, draws: tuple[Draw, ...]) -> tuple[Draw, ...]:
    """Return rounds of smaller inputs that expose wrong gradients which no round of `draws` exposes."""
    known = [_exposed(entry, seed) for entry in draws]
    missing = set().union(*(entry.keys() for entry in known)) - {
        name for entry in known for name, exposed in entry.items() if exposed
    }
    further_draws = []
    for further, distribution in _GENTLER:
        drawn = draw_inputs(case, seed + further, distribution) if missing else None
        exposed = set() if drawn is None else {name for name, is_told in _exposed(drawn, seed).items() if is_told}
        if drawn is not None and exposed & missing:
            further_draws.append(drawn)
            missing -= exposed
    return tuple(further_draws)


_GENTLER = ((0, "gentle"), *((SEED_STEP * number, "small") for number in range(3)), (0, "tiny"))
"""Further seeds and distributions: among a few small numbers none may be small enough."""
LEAST_EXPOSED = 8.0
"""Least ratio of a gradient's largest element to its bound: an error of a quarter is then two bounds."""


def _exposed(draw: Draw, seed: int) -> dict[str, bool]:
    """Return by gradient whether the round would expose a wrong one."""
    if upstream_of(draw, seed) is None:
        return {}
    names = tuple(f"grad_{name}" for name in leaves_of(draw))
    # The same arguments as in the check, so that the cached values are used there.
    expected = expected_gradients(draw, seed, names, (), of_sum=False)
    with np.errstate(all="ignore"):
        return {
            name: bool(np.nanmax(np.abs(output.values) / output.bound, initial=0.0) >= LEAST_EXPOSED)
            for name, output in expected.items()
        }


def _of_round(trial: Trial, draw: Draw, *, of_sum: bool = False) -> CheckResult:
    """Return the comparison for one round, with random upstream gradients or those of the sum."""
    upstream = upstream_of(draw, trial.seed)
    if upstream is None:
        return CheckResult(check="V9", status=SKIPPED, reason="no output has a gradient")
    upstream = as_a_sum_gives(upstream) if of_sum else upstream
    try:
        got, outputs = differentiated(trial.implementation, draw, upstream)
    except Exception as error:  # whatever an implementation raises is its result
        without = "derivative" in str(error) and "not implemented" in str(error)
        status = _without(trial) if without else status_of(error)
        return CheckResult(check="V9", status=status, reason=f"its gradient: {_into_numpy(error) or words_of(error)}")
    if not got and trial.gradient is None:
        return CheckResult(check="V9", status=SKIPPED, reason="results carry no gradient")
    named = named_by(draw, outputs, got)
    expected = expected_gradients(draw, trial.seed, tuple(got), named, of_sum=of_sum)
    if misshapen := _misshapen(trial, draw, got, named, expected):
        return CheckResult(check="V9", status="SHAPE_FAIL", reason=misshapen)
    if not expected:
        return CheckResult(check="V9", status=SKIPPED, reason="the case asks for no gradient")
    return _judged(values_of(got), expected, draw, upstream, "the sum" if of_sum else f"{draw.distribution} inputs")


def _without(trial: Trial) -> str:
    """Return the status of an implementation without any gradient: only a case of the gradient needs one."""
    return SKIPPED if trial.gradient is None else "UNSUPPORTED"


def _misshapen(
    trial: Trial, draw: Draw, got: Mapping[str, Any], named: NamedPositions, expected: Mapping[str, Expected]
) -> str:
    """Return which gradients are missing, or that some have other shapes than their inputs; empty if neither."""
    if lacking := _lacking(trial, draw, got, named):
        return f"{', '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} missing"
    return "" if comparable(got, expected) else "gradients have other shapes than their inputs"


def _lacking(trial: Trial, draw: Draw, got: Mapping[str, Any], named: NamedPositions) -> list[str]:
    """Return the missing gradients: those that the case names and PyTorch's own call gives.

    A forward pass names none. There, autograd takes a missing gradient as 0, which is wrong where the oracle's exceeds
    its bound: kernels for inference have no gradient at all, but none has only some of them.
    """
    left = [f"grad_{name}" for name in leaves_of(draw) if f"grad_{name}" not in got]
    stated = {} if trial.gradient is None else dict(trial.gradient.attributes)
    left = [name for name in left if stated.get(name, True)]
    usual = _of_pytorch(draw, trial.seed) if left else frozenset()
    if trial.gradient is not None or not left:
        return [name for name in left if name in usual]
    wanted = expected_gradients(
        draw, trial.seed, tuple(f"grad_{name}" for name in leaves_of(draw)), named, of_sum=False
    )
    return [k for k in left if k in usual and k in wanted and bool((abs(wanted[k].values) > wanted[k].bound).any())]


@lru_cache(maxsize=24)
def _of_pytorch(draw: Draw, seed: int, *, of_sum: bool = False) -> frozenset[str]:
    """Return the gradients that PyTorch's own call gives in the formats of the case, of the sum if `of_sum`."""
    upstream = upstream_of(draw, seed)
    assert upstream is not None  # there are gradients to compare
    upstream = as_a_sum_gives(upstream) if of_sum else upstream
    try:
        return frozenset(gradients_of(pytorch_of(draw.case), draw, upstream))
    except (NotImplementedError, RuntimeError, TypeError, ValueError):  # it has no derivative in this format
        return frozenset()


def _into_numpy(error: Exception) -> str:
    """Return advice for a function that converts tensors with a gradient to NumPy; empty for other errors."""
    if "numpy()" not in str(error) or "requires grad" not in str(error):
        return ""
    step = next(
        (frame for frame in reversed(traceback.extract_tb(error.__traceback__)) if "torch" not in frame.filename), None
    )
    where = "" if step is None else f" at {Path(step.filename).name}:{step.lineno} ({step.line})"
    return (
        f"numpy() of a tensor that requires grad{where}; a function of NumPy arrays is given them, and asked for no "
        'gradient, with the attribute arrays = "numpy"; one of tensors that has none takes tensor.detach().numpy()'
    )


def _judged(
    got: Mapping[str, Any], expected: Mapping[str, Expected], draw: Draw, upstream: Mapping[str, Any], of: str
) -> CheckResult:
    """Return the comparison, which passes where PyTorch's own gradients are about as far from the oracle."""
    result = compared("V9", got, expected, f"gradients of {of}")
    if not result.failed or result.worst is None:
        return result
    usual = gradients_of(pytorch_of(draw.case), draw, upstream)
    return as_good(result, values_of(usual), expected) if comparable(usual, expected) else result


CHECK = gradients
