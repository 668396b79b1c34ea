"""V6: the error of each row has the norm of rounding errors, and no bias."""

from nearpeak.core.validation import PASS, SKIPPED, CheckResult
from nearpeak.measure.validation._compare import bias_z, comparable, group_fault, values_of
from nearpeak.measure.validation._formats import UNIT_ROUNDOFF
from nearpeak.measure.validation._oracle import contract_of
from nearpeak.measure.validation._trial import Trial

BIAS_LIMIT = 8.0
"""Standard errors that the mean error may have. Correct results pass 4 once in 16,000 cases; many thousands are run."""


def groups(trial: Trial) -> CheckResult:
    """Return whether broad small damage shows in a row's norm, or truncation in the mean error."""
    largest = 0.0
    for asked, ran in zip(trial.questions, trial.runs, strict=True):
        if ran.error or not comparable(ran.outputs, asked.expected):
            return CheckResult(check="V6", status=SKIPPED, reason="V1 failed")
        for name, got in values_of(ran.outputs).items():
            if name not in asked.expected or asked.distribution == "integer":
                continue  # the same few values again and again have the same errors
            one, where = asked.expected[name], f"{asked.distribution} inputs: {name}"
            fault = group_fault(got, one)
            if fault:
                return CheckResult(check="V6", status="NUMERIC_FAIL", reason=f"{where}: {fault}")
            score = bias_z(got, one) if _rounding_dominates(trial, one.dtype) else 0.0
            largest = max(largest, abs(score))
            if abs(score) > BIAS_LIMIT:
                reason = f"{where}: the mean error is {score:.1f} standard errors from 0"
                return CheckResult(check="V6", status="NUMERIC_FAIL", reason=reason)
    return CheckResult(check="V6", status=PASS, figures={"bias_z": f"{largest:.2g}"})


def _rounding_dominates(trial: Trial, dtype: str) -> bool:
    """Say whether the last rounding is what errors consist of, which has no bias; sums in fp32 may have one."""
    return UNIT_ROUNDOFF.get(dtype, 0.0) > 2.0**-20 and not contract_of(trial.case).steps_count


CHECK = groups
