"""V6, error statistics: row norms, bias and pooled errors are no larger than those of rounding."""

import math
from functools import lru_cache
from typing import Any

from nearpeak.core.runs.validation import PASS, SKIPPED, CheckResult
from nearpeak.core.work.case import Case
from nearpeak.ops import OPS
from nearpeak.validation.comparison.output_comparison import (
    bias_z,
    comparable,
    group_fault,
    pooled_errors,
    ratios,
    relative_norm,
    values_of,
)
from nearpeak.validation.comparison.shared_factors import shared_fault
from nearpeak.validation.comparison.systematic_error import narrow, systematic_fault
from nearpeak.validation.comparison.torch_baseline import (
    AS_WIDE,
    CHAINS,
    FEW,
    baseline_of,
    error_ratio,
    pooled_ratio,
    usual_of_few,
)
from nearpeak.validation.inputs.rounds import POOLED, SEED_STEP
from nearpeak.validation.oracle.expected_results import Expected, tolerance_of
from nearpeak.validation.oracle.float64_oracle import Draw, draw_inputs
from nearpeak.validation.oracle.format_limits import UNIT_ROUNDOFF
from nearpeak.validation.running.trial import Trial

BIAS_LIMIT = 8.0
"""Standard errors that the mean error may have: correct results exceed 4 once in 16,000 cases."""


STAGES = (128, 512)
"""Further results that are drawn while a large error of few results may still be chance."""
MOST_SEEN = 100
"""Draws that other checks may take: seeds beyond them are free."""


def groups(trial: Trial) -> CheckResult:
    """Return whether row norms, the mean error (truncation) and the error of all elements (lost bits) are normal.

    Errors average out over fresh inputs. The error of all elements is compared with PyTorch's own: operators with a
    propagated bound may store intermediates in the output format, and few implementations use all of that.
    """
    largest = {"bias_z": 0.0, "row_norm": 0.0, "error_of_usual": 0.0}
    for draw, ran in zip(trial.draws, trial.runs, strict=True):
        if ran.error or not comparable(ran.outputs, draw.expected):
            return CheckResult(check="V6", status=SKIPPED, reason="V1 failed")
        for name, got in values_of(ran.outputs).items():
            if name not in draw.expected or draw.distribution == "integer":
                continue  # few distinct values repeat the same errors
            fault, figures = _judged(trial, draw, name, got)
            largest = {key: max(value, figures.get(key, 0.0)) for key, value in largest.items()}
            if fault:
                reason = f"{draw.distribution} inputs: {name}: {fault}"
                return CheckResult(check="V6", status="NUMERIC_FAIL", reason=reason)
    shown = {name: f"{value:.2g}" for name, value in largest.items()}
    fault = _pooled(trial) or _pooled_of_usual(trial)
    if not fault and any(narrow(output.dtype) for output in trial.draws[0].expected.values()):
        setting = trial.case, trial.implementation, trial.seed
        fault = systematic_fault(*setting) or shared_fault(*setting)
    return CheckResult(check="V6", status="NUMERIC_FAIL" if fault else PASS, reason=fault, figures=shown)


def _pooled(trial: Trial) -> str:
    """Return the fault of few results pooled over all rounds, for sums with a proved bound; empty where none."""
    pairs = [(draw, ran) for draw, ran in zip(trial.draws, trial.runs, strict=True) if not _chained(draw)]
    drawn = [pair for pair in pairs if pair[0].distribution in POOLED]
    for name in trial.draws[0].expected if drawn else ():
        pairs_of_errors = [(values_of(ran.outputs)[name], draw.expected[name]) for draw, ran in drawn]
        ratio, most = pooled_errors(pairs_of_errors)
        for count in STAGES:
            if not 1 < ratio <= most:
                break
            draw = _more(trial.case, trial.seed, count // max(pairs_of_errors[0][0].size, 1))
            answered = [(further_draw, trial.answer(further_draw)) for further_draw in draw]
            pairs_of_errors += [
                (values_of(ran.outputs)[name], further_draw.expected[name])
                for further_draw, ran in answered
                if not ran.error and comparable(ran.outputs, further_draw.expected)
            ]
            ratio, most = pooled_errors(pairs_of_errors)
        if ratio > most:
            return f"{name}: over all rounds, errors are {ratio:.2g} times what they should be"
    return ""


@lru_cache(maxsize=4)
def _more(case: Case, seed: int, count: int) -> tuple[Draw, ...]:
    """Return further draws, different ones for each count."""
    further = (draw_inputs(case, seed + SEED_STEP * (MOST_SEEN + count + number), "normal") for number in range(count))
    return tuple(draw for draw in further if draw is not None)


def _pooled_of_usual(trial: Trial) -> str:
    """Return the same for chains of operations, whose errors are compared with PyTorch's own."""
    for name, first in trial.draws[0].expected.items():
        if not _chained(trial.draws[0]) or first.dtype not in UNIT_ROUNDOFF:
            continue
        answers = [
            (values_of(ran.outputs)[name], baseline_of(draw)[name], draw.expected[name])
            for draw, ran in zip(trial.draws, trial.runs, strict=True)
            if draw.distribution in POOLED and name in baseline_of(draw)
        ]
        ratio = pooled_ratio(answers) if first.values.dtype.kind == "f" else 0.0
        if ratio > 1:
            return f"{name}: over all rounds, the error is {ratio:.2g} times what is as good as PyTorch's own"
    return ""


def _judged(trial: Trial, draw: Draw, name: str, got: Any) -> tuple[str, dict[str, float]]:
    """Return the fault of one output, empty where it has none, and its figures."""
    expected = draw.expected[name]
    figures = {"row_norm": relative_norm(got, expected), "error_of_usual": _error_of_usual(draw, name, got, expected)}
    fault = group_fault(got, expected) if figures["error_of_usual"] > 1 or not _chained(draw) else ""
    fault = "" if fault and _is_as_stored(draw, name, got, expected) else fault
    # Rounding a mean that is far from 0 moves whole groups, of which there may be few.
    moved = draw.distribution == "offset" and OPS[draw.case.op].subtracted is not None
    score = (
        bias_z(got, expected)
        if (narrow(expected.dtype) and not tolerance_of(trial.case).steps_count) and not moved
        else 0.0
    )
    figures["bias_z"] = abs(score)
    if not fault and abs(score) > BIAS_LIMIT:
        usual = baseline_of(draw).get(name)  # PyTorch too loses changes below half a last place
        if usual is None or abs(score) > 2 * abs(bias_z(usual, expected)):
            fault = f"the mean error is {score:.1f} standard errors from 0"
    if not fault and figures["error_of_usual"] > 1 and not _is_luck(trial, name, got, expected):
        fault = f"the error is {figures['error_of_usual']:.2g} times what is as good as PyTorch's own"
    return fault, figures


def _is_luck(trial: Trial, name: str, got: Any, expected: Expected) -> bool:
    """Return whether few results err by no more than twice PyTorch's largest error in any round.

    In a single round PyTorch's own result may be exact by chance.
    """
    ratio = ratios(got, expected)
    return ratio.size < FEW and bool(ratio.max() <= AS_WIDE * usual_of_few(name, trial.draws))


def _is_as_stored(draw: Draw, name: str, got: Any, expected: Expected) -> bool:
    """Return whether PyTorch's own products have such errors too, where intermediates may be stored."""
    usual = baseline_of(draw).get(name) if tolerance_of(draw.case).steps_count and not _chained(draw) else None
    return usual is not None and bool(group_fault(usual, expected)) and error_ratio(got, usual, expected) <= 1


def _chained(draw: Draw) -> bool:
    return tolerance_of(draw.case).kind in CHAINS


def _error_of_usual(draw: Draw, name: str, got: Any, expected: Expected) -> float:
    """Return the error of all elements over the margin around PyTorch's own; 0 where that does not apply."""
    usual = baseline_of(draw).get(name) if _chained(draw) and expected.dtype in UNIT_ROUNDOFF else None
    if usual is None or got.dtype.kind != "f" or not expected.values.size:
        return 0.0
    ratio = error_ratio(got, usual, expected)
    return ratio if math.isfinite(ratio) else 0.0


CHECK = groups
