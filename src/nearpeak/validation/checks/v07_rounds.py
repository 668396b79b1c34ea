"""V7, further rounds: results hold for other seeds and distributions, and sums of small integers are exact."""

import numpy as np

from nearpeak.core.runs.validation import PASS, SKIPPED, CheckResult
from nearpeak.validation.comparison.output_comparison import comparable, values_of
from nearpeak.validation.comparison.torch_baseline import judged
from nearpeak.validation.oracle.expected_results import tolerance_of
from nearpeak.validation.oracle.float64_oracle import Draw
from nearpeak.validation.running.trial import Trial

EXACT_BELOW = 2**24
"""Integers below it are exact in fp32, and so is every partial sum, in any order."""


def rounds(trial: Trial) -> CheckResult:
    """Return the worst result of the rounds after the first; integers are compared bit by bit where they are exact."""
    results = []
    for draw, ran in zip(trial.draws[1:], trial.runs[1:], strict=True):
        if ran.error or not comparable(ran.outputs, draw.expected):
            return CheckResult(check="V7", status=SKIPPED, reason="V1 failed")
        got, where = values_of(ran.outputs), f"{draw.distribution} inputs"
        results.append(judged("V7", ran.outputs, draw, where, trial.draws))
        fault = _inexact(trial, draw, got) if draw.distribution == "integer" else ""
        if fault:
            results.append(CheckResult(check="V7", status="NUMERIC_FAIL", reason=f"{where}: {fault}"))
    failed = [result for result in results if result.failed]
    return failed[0] if failed else max(results, key=_ratio, default=CheckResult(check="V7", status=PASS))


def _ratio(result: CheckResult) -> float:
    return 0.0 if result.worst is None else result.worst.bound_ratio


def _inexact(trial: Trial, draw: Draw, got: dict[str, np.ndarray]) -> str:
    """Return the first integer result that is not the exact sum rounded once."""
    if tolerance_of(trial.case).kind != "contraction":
        return ""
    for name, expected in draw.expected.items():
        values = expected.values
        if values.dtype.kind != "f" or not np.all(np.isfinite(values)):
            continue
        if np.any(values != np.rint(values)) or np.abs(values).max(initial=0.0) >= EXACT_BELOW:
            continue
        wrong = got[name] != expected.rounded
        if wrong.any():
            where = tuple(int(i) for i in np.argwhere(wrong)[0])
            return f"{name}{list(where)} is {got[name][where]}, exactly {expected.rounded[where]}"
    return ""


CHECK = rounds
