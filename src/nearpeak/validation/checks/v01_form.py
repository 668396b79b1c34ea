"""V1, form: outputs have the declared names, shapes and dtypes."""

from nearpeak.core.runs.validation import PASS, CheckResult
from nearpeak.validation.running.trial import Trial


def form(trial: Trial) -> CheckResult:
    """Return whether the outputs of every round have their declared form; a call that raised fails here."""
    for draw, ran in zip(trial.draws, trial.runs, strict=True):
        if ran.error:
            return CheckResult(check="V1", status=ran.status, reason=f"{draw.distribution} inputs: {ran.error}")
        for name, wanted in trial.templates(draw).items():
            if name not in ran.outputs:
                reason = f"output {name} is missing; got {', '.join(ran.outputs) or 'none'}"
                return CheckResult(check="V1", status="SHAPE_FAIL", reason=reason)
            got = ran.outputs[name]
            if got.shape != wanted.shape:
                reason = f"{name} is {list(got.shape)}, declared {list(wanted.shape)}"
                return CheckResult(check="V1", status="SHAPE_FAIL", reason=reason)
            if got.dtype != wanted.dtype:
                return CheckResult(
                    check="V1", status="DTYPE_FAIL", reason=f"{name} is {got.dtype}, declared {wanted.dtype}"
                )
    return CheckResult(check="V1", status=PASS)


CHECK = form
