"""V11, timed loop: a call in the middle of a loop, with new values at the same addresses, is still correct."""

import numpy as np

from nearpeak.core.runs.validation import PASS, SKIPPED, CheckResult
from nearpeak.validation.comparison.output_comparison import comparable
from nearpeak.validation.comparison.torch_baseline import judged
from nearpeak.validation.running.implementation_run import run_repeatedly
from nearpeak.validation.running.trial import Trial

CALLS = 6


def timed(trial: Trial) -> CheckResult:
    """Return whether a random call of a loop is right, while inputs change in place from call to call.

    Implementations that return cached results, by address or after the first calls, fail here.
    """
    if trial.runs[0].error:
        return CheckResult(check="V11", status=SKIPPED, reason="V1 failed")
    chosen = int(np.random.default_rng(trial.seed).integers(1, CALLS))
    order = [trial.draws[number % len(trial.draws)] for number in range(CALLS)]
    if len({tuple(t.shape for t in draw.tensors.values()) for draw in order}) > 1:
        return CheckResult(check="V11", status=SKIPPED, reason="rounds differ in shape")
    draw = order[chosen]
    ran = run_repeatedly(
        trial.implementation,
        [expected.tensors for expected in order[: chosen + 1]],
        draw.arguments,
        trial.templates(draw),
    )
    ran = trial.with_ties_broken(ran, draw.tensors, {name: expected.values for name, expected in draw.expected.items()})
    if ran.error:
        return CheckResult(check="V11", status=ran.status, reason=f"call {chosen + 1} of a loop: {ran.error}")
    if not comparable(ran.outputs, draw.expected):
        return CheckResult(check="V11", status=SKIPPED, reason="V1 failed")
    result = judged("V11", ran.outputs, draw, f"call {chosen + 1} of a loop", trial.draws)
    return result if result.failed else CheckResult(check="V11", status=PASS, worst=result.worst)


CHECK = timed
