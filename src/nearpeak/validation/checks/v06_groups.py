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
from nearpeak.validation.oracle.expected_results import Expected, contract_of
from nearpeak.validation.oracle.float64_oracle import Question, question
from nearpeak.validation.oracle.format_limits import UNIT_ROUNDOFF
from nearpeak.validation.running.trial import Trial

BIAS_LIMIT = 8.0
"""Standard errors that the mean error may have. Correct results pass 4 once in 16,000 cases; many thousands are run."""


STAGES = (128, 512)
"""Further results that are asked for where few are further off than they should be and not yet too far for luck."""
MOST_SEEN = 100
"""Draws that no other check goes beyond."""


def groups(trial: Trial) -> CheckResult:
    """Return whether broad small damage shows in a row's norm, truncation in the mean error, or lost bits in all.

    Over fresh inputs, errors average out. Lost bits are judged as good as PyTorch's own: operators whose bound is
    propagated are permitted to store intermediates in their own format, and few make use of all of it.
    """
    largest = {"bias_z": 0.0, "row_norm": 0.0, "error_of_usual": 0.0}
    for asked, ran in zip(trial.questions, trial.runs, strict=True):
        if ran.error or not comparable(ran.outputs, asked.expected):
            return CheckResult(check="V6", status=SKIPPED, reason="V1 failed")
        for name, got in values_of(ran.outputs).items():
            if name not in asked.expected or asked.distribution == "integer":
                continue  # the same few values again and again have the same errors
            fault, figures = _judged(trial, asked, name, got)
            largest = {key: max(value, figures.get(key, 0.0)) for key, value in largest.items()}
            if fault:
                reason = f"{asked.distribution} inputs: {name}: {fault}"
                return CheckResult(check="V6", status="NUMERIC_FAIL", reason=reason)
    shown = {name: f"{value:.2g}" for name, value in largest.items()}
    fault = _pooled(trial) or _pooled_of_usual(trial) or _systematic(trial)
    return CheckResult(check="V6", status="NUMERIC_FAIL" if fault else PASS, reason=fault, figures=shown)


def _pooled(trial: Trial) -> str:
    """Return what is wrong with small results of all rounds together, of sums whose bound is proved."""
    pairs = [(asked, ran) for asked, ran in zip(trial.questions, trial.runs, strict=True) if not _chained(asked)]
    drawn = [pair for pair in pairs if pair[0].distribution in POOLED]
    for name in trial.questions[0].expected if drawn else ():
        found = [(values_of(ran.outputs)[name], asked.expected[name]) for asked, ran in drawn]
        ratio, most = pooled_errors(found)
        for count in STAGES:
            if not 1 < ratio <= most:
                break
            asked = _more(trial.case, trial.seed, count // max(found[0][0].size, 1))
            answered = [(one, trial.answer(one)) for one in asked]
            found += [
                (values_of(ran.outputs)[name], one.expected[name])
                for one, ran in answered
                if not ran.error and comparable(ran.outputs, one.expected)
            ]
            ratio, most = pooled_errors(found)
        if ratio > most:
            return f"{name}: over all rounds, errors are {ratio:.2g} times what they should be"
    return ""


@lru_cache(maxsize=4)
def _more(case: Case, seed: int, count: int) -> tuple[Question, ...]:
    """Return further draws of inputs: others for each count."""
    found = (question(case, seed + SEED_STEP * (MOST_SEEN + count + number), "normal") for number in range(count))
    return tuple(one for one in found if one is not None)


def _pooled_of_usual(trial: Trial) -> str:
    """Return the same of chains, whose errors are compared with those of PyTorch's own way."""
    for name, first in trial.questions[0].expected.items():
        if not _chained(trial.questions[0]) or first.dtype not in UNIT_ROUNDOFF:
            continue
        found = [
            (values_of(ran.outputs)[name], baseline_of(asked)[name], asked.expected[name])
            for asked, ran in zip(trial.questions, trial.runs, strict=True)
            if asked.distribution in POOLED and name in baseline_of(asked)
        ]
        ratio = pooled_ratio(found) if first.values.dtype.kind == "f" else 0.0
        if ratio > 1:
            return f"{name}: over all rounds, the error is {ratio:.2g} times what is as good as PyTorch's own"
    return ""


def _systematic(trial: Trial) -> str:
    """Return what is systematically off where outputs are narrow."""
    if not any(narrow(one.dtype) for one in trial.questions[0].expected.values()):
        return ""
    at = trial.case, trial.implementation, trial.seed
    return systematic_fault(*at) or shared_fault(*at)


def _judged(trial: Trial, asked: Question, name: str, got: Any) -> tuple[str, dict[str, float]]:
    """Return what is wrong with one output, empty where nothing is, and what was seen."""
    one = asked.expected[name]
    figures = {"row_norm": relative_norm(got, one), "error_of_usual": _error_of_usual(asked, name, got, one)}
    fault = group_fault(got, one) if figures["error_of_usual"] > 1 or not _chained(asked) else ""
    fault = "" if fault and _is_as_stored(asked, name, got, one) else fault
    # Rounding a mean that is far from 0 moves whole groups, of which there may be few.
    moved = asked.distribution == "offset" and OPS[asked.case.op].subtracted is not None
    score = bias_z(got, one) if (narrow(one.dtype) and not contract_of(trial.case).steps_count) and not moved else 0.0
    figures["bias_z"] = abs(score)
    if not fault and abs(score) > BIAS_LIMIT and not _usual_bias(asked, name, score):
        fault = f"the mean error is {score:.1f} standard errors from 0"
    if not fault and figures["error_of_usual"] > 1 and not _is_luck(trial, name, got, one):
        fault = f"the error is {figures['error_of_usual']:.2g} times what is as good as PyTorch's own"
    return fault, figures


def _is_luck(trial: Trial, name: str, got: Any, one: Expected) -> bool:
    """Say whether few results are no further off than twice what PyTorch's own are in some round: those of all count.

    Of one result of many roundings PyTorch's own is right by luck in some round, where it is no measure.
    """
    ratio = ratios(got, one)
    return ratio.size < FEW and bool(ratio.max() <= AS_WIDE * usual_of_few(name, trial.questions))


def _is_as_stored(asked: Question, name: str, got: Any, one: Expected) -> bool:
    """Say whether PyTorch's own products have such errors too, where they may be stored on the way."""
    usual = baseline_of(asked).get(name) if contract_of(asked.case).steps_count and not _chained(asked) else None
    return usual is not None and bool(group_fault(usual, one)) and error_ratio(got, usual, one) <= 1


def _usual_bias(asked: Question, name: str, score: float) -> bool:
    """Say whether PyTorch's own result has such a bias too: changes below half a last place are always lost."""
    usual = baseline_of(asked).get(name)
    return usual is not None and abs(score) <= 2 * abs(bias_z(usual, asked.expected[name]))


def _chained(asked: Question) -> bool:
    return contract_of(asked.case).kind in CHAINS


def _error_of_usual(asked: Question, name: str, got: Any, one: Expected) -> float:
    """Return the error of all elements over what is as good as PyTorch's own; 0 where that is no measure."""
    usual = baseline_of(asked).get(name) if _chained(asked) and one.dtype in UNIT_ROUNDOFF else None
    if usual is None or got.dtype.kind != "f" or not one.values.size:
        return 0.0
    ratio = error_ratio(got, usual, one)
    return ratio if math.isfinite(ratio) else 0.0


CHECK = groups
