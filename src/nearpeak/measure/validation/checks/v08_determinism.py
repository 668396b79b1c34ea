"""V8: the same inputs give the same answer, wherever they lie in memory and however often they are asked."""

import numpy as np

from nearpeak.core.validation import PASS, SKIPPED, CheckResult
from nearpeak.measure.validation._compare import comparable, values_of
from nearpeak.measure.validation._trial import Trial
from nearpeak.ops import OPS

RUNS = 3


def determinism(trial: Trial) -> CheckResult:
    """Return whether runs at other alignments differ by more than the bound; whether they differ at all is recorded."""
    if OPS[trial.case.op].draws:
        return CheckResult(check="V8", status=SKIPPED, reason="the operator draws random numbers")
    asked = trial.questions[0]
    runs = [trial.runs[0], *(trial.answer(asked, shift=shift) for shift in range(1, RUNS))]
    if any(ran.error or not comparable(ran.outputs, asked.expected) for ran in runs):
        error = next((ran.error for ran in runs[1:] if ran.error), "")
        if error and not runs[0].error:
            return CheckResult(check="V8", status="NONDET", reason=f"a later call fails: {error}")
        return CheckResult(check="V8", status=SKIPPED, reason="V1 failed")
    first, bitwise = values_of(runs[0].outputs), True
    for ran in runs[1:]:
        again = values_of(ran.outputs)
        for name, one in asked.expected.items():
            same = (again[name] == first[name]) | (np.isnan(again[name]) & np.isnan(first[name]))
            bitwise &= bool(same.all())
            with np.errstate(all="ignore"):
                apart = ~same & ~(np.abs(again[name].astype(complex) - first[name]) <= one.bound)
            if apart.any():
                where = tuple(int(i) for i in np.argwhere(apart)[0])
                reason = f"{name}{list(where)} is {first[name][where]}, and {again[name][where]} when asked again"
                return CheckResult(check="V8", status="NONDET", reason=reason)
    return CheckResult(check="V8", status=PASS, figures={"bitwise": "yes" if bitwise else "no"})


CHECK = determinism
