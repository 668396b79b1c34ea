"""V2: inputs are as they were, and nothing is written beside a tensor."""

from nearpeak.core.validation import PASS, CheckResult
from nearpeak.measure.validation._trial import Trial


def memory(trial: Trial) -> CheckResult:
    """Return whether guard bands are intact and inputs unchanged; an input that is also an output may change."""
    for asked, ran in zip(trial.questions, trial.runs, strict=True):
        if ran.overrun:
            reason = f"{asked.distribution} inputs: wrote beside {', '.join(ran.overrun)}"
            return CheckResult(check="V2", status="OOB_WRITE", reason=reason)
        changed = [name for name in ran.changed if name not in asked.expected]
        if changed:
            reason = f"{asked.distribution} inputs: changed {', '.join(changed)}"
            return CheckResult(check="V2", status="MUTATED_INPUT", reason=reason)
    return CheckResult(check="V2", status=PASS)


CHECK = memory
