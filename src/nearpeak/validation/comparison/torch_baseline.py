"""PyTorch's own error as a baseline: results about as accurate as PyTorch's pass where bounds are not proved."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from nearpeak.core.runs.validation import PASS, CheckResult
from nearpeak.validation.comparison.output_comparison import comparable, compared, values_of, worst_of
from nearpeak.validation.comparison.ties import canonical
from nearpeak.validation.oracle.expected_results import Expected, tolerance_of
from nearpeak.validation.oracle.float64_oracle import Draw
from nearpeak.validation.oracle.format_limits import UNIT_ROUNDOFF
from nearpeak.validation.running.implementation_run import pytorch_of, run

CHAINS = ("normalisation", "reduction", "pointwise", "sampling", "decomposition")
"""Kinds of tolerance whose bound is propagated by probes, not proved."""
MOST_RATIO = 8.0
"""Bounds beyond which PyTorch's own result is wrong, and no baseline."""
FEW = 32
"""Elements below which single errors dominate the pooled error."""
AS_WIDE = 2.0
"""Factor over PyTorch's worst error in any round, at most the bound, within which an error of few results is chance."""


def margin(dtype: str, count: int) -> float:
    """Return the factor by which an error may exceed the baseline's: two, three in narrow formats, more for few.

    >>> margin("fp32", 1000), margin("bf16", 1000), margin("fp32", 4)
    (2.0, 3.0, 10.0)
    """
    if count < FEW:
        return 10.0
    return 3.0 if UNIT_ROUNDOFF.get(dtype, 0.0) > 2.0**-20 else 2.0


@lru_cache(maxsize=24)
def baseline_of(draw: Draw) -> Mapping[str, Any]:
    """Return PyTorch's own results for `draw`, as arrays by name; empty where it fails.

    They are cached, as many implementations get the same inputs.
    """
    ran = run(pytorch_of(draw.case), draw.tensors, draw.arguments)
    usable = not ran.error and comparable(ran.outputs, draw.expected)
    wanted = {name: expected.values for name, expected in draw.expected.items()}
    return values_of(canonical(draw.case, ran.outputs, wanted)) if usable else {}


def judged(check: str, outputs: Mapping[str, Any], draw: Draw, where: str, rounds: Sequence[Draw] = ()) -> CheckResult:
    """Return the element-wise comparison of tensors with the expected results of `draw`.

    Where PyTorch's own result exceeds a propagated bound too, an implementation with about the same error passes. So do
    products whose intermediates may be stored, because the number of roundings is open, as of transposed convolutions.

    Args:
        rounds: all draws of the trial. A single result may exceed its bound by chance in some round: it passes if the
            error is less than twice PyTorch's own in another round.
    """
    result = compared(check, values_of(outputs), draw.expected, where)
    numerics = tolerance_of(draw.case)
    if not result.failed or result.worst is None or not (numerics.kind in CHAINS or numerics.steps_count):
        return result
    verdict = as_good(result, baseline_of(draw), draw.expected)
    return as_wide(verdict, rounds) if verdict.failed and numerics.kind in CHAINS else verdict


def as_wide(result: CheckResult, rounds: Sequence[Draw]) -> CheckResult:
    """Return the failed comparison `result`, or a pass where results are few and PyTorch's error is about as large.

    A result that may be rounded only once and was rounded twice never passes.
    """
    worst = result.worst
    if worst is None or not 1 < worst.bound_ratio <= AS_WIDE:
        return result
    usual = usual_of_few(worst.output, rounds)
    if worst.bound_ratio > AS_WIDE * usual:
        return result
    return replace(result, status=PASS, reason=f"PyTorch's own is {usual:.2g} bounds away in another round")


def usual_of_few(name: str, rounds: Sequence[Draw]) -> float:
    """Return PyTorch's largest error in any round, in bounds and at most 1, where results of `name` are few."""
    if any(draw.expected[name].once for draw in rounds):
        return 0.0
    few = [draw for draw in rounds if draw.expected[name].values.size < FEW]
    worst_elements = (worst_of(baseline_of(draw), draw.expected) for draw in few)
    return max((min(worst.bound_ratio, 1.0) for worst in worst_elements if worst is not None), default=0.0)


def as_good(result: CheckResult, baseline: Mapping[str, Any], expected: Mapping[str, Expected]) -> CheckResult:
    """Return the failed comparison `result`, or a pass where the baseline is about as far from the oracle."""
    if result.worst is None or not baseline or not expected.keys() <= baseline.keys():
        return result
    worst = worst_of(baseline, expected)
    if worst is None or not 1 < worst.bound_ratio <= MOST_RATIO:
        return result
    output = expected[result.worst.output]
    if result.worst.bound_ratio > margin(output.dtype, output.values.size) * worst.bound_ratio:
        return result
    return replace(result, status=PASS, reason=f"PyTorch's own is {worst.bound_ratio:.2g} bounds away, too")


def pooled_ratio(answers: Sequence[tuple[Any, Any, Expected]]) -> float:
    """Return the pooled root mean square error of few results over the margin around PyTorch's own.

    Errors are in units of the average error of a correct result. 0 where there are still too few results, or enough in
    each round by itself.
    """
    if not answers or any(got.size >= FEW for got, _, _ in answers):
        return 0.0
    with np.errstate(all="ignore"):
        columns = [
            [
                np.ravel(part / expected.spread)
                for part in (got - expected.values, usual - expected.values, expected.floor)
            ]
            for got, usual, expected in answers
        ]
    error, usual, floor = (np.concatenate(part) for part in zip(*columns, strict=True))
    finite = np.isfinite(error) & np.isfinite(usual) & np.isfinite(floor)
    if finite.sum() < FEW:
        return 0.0
    size, baseline, least = (float(np.sqrt((part[finite] ** 2).mean())) for part in (error, usual, floor))
    return size / (margin(answers[0][2].dtype, FEW) * baseline + least)


def error_ratio(got: Any, baseline: Any, expected: Expected) -> float:
    """Return the root mean square error over the permitted one: a multiple of the baseline's, plus rounding.

    With few elements the baseline may be exact by chance, so that errors of stored intermediates are permitted too.
    """
    finite = np.isfinite(got) & np.isfinite(baseline) & np.isfinite(expected.values) & np.isfinite(expected.floor)
    if not finite.any():
        return 0.0
    count = int(finite.sum())
    least = expected.spread if count < FEW else expected.floor
    error, usual, floor = (
        float(np.sqrt((array[finite] ** 2).mean()))
        for array in (got - expected.values, baseline - expected.values, least)
    )
    permitted = margin(expected.dtype, count) * usual + floor
    return error / permitted if permitted else float(error > 0)
