"""V3, uninitialised memory: every output element is written, whatever the allocated memory held before."""

from nearpeak.core.runs.validation import PASS, SKIPPED, CheckResult
from nearpeak.validation.comparison.output_comparison import comparable
from nearpeak.validation.comparison.torch_baseline import judged
from nearpeak.validation.running.trial import Trial


def poison(trial: Trial) -> CheckResult:
    """Return whether results are right when uninitialised memory holds NaN, and when it holds a large finite value.

    max(…, 0) would hide NaN, and results near the finite value would hide that.
    """
    draw, worst = trial.draws[0], None
    for kind in ("nan", "finite"):
        ran = trial.answer(draw, poison=kind)
        if ran.error or not comparable(ran.outputs, draw.expected):
            return CheckResult(check="V3", status=SKIPPED, reason="V1 failed")
        worst = judged("V3", ran.outputs, draw, f"memory held {kind}", trial.draws)
        if worst.failed and kind == "nan":
            # Results that are wrong in the same way with another poison do not depend on uninitialised memory.
            finite = trial.answer(draw, poison="finite").outputs
            if all(name in finite and output.equal(finite[name]) for name, output in ran.outputs.items()):
                return judged("V3", ran.outputs, draw, "whatever memory held", trial.draws)
        if worst.failed:
            return worst
    return worst or CheckResult(check="V3", status=PASS)


CHECK = poison
