"""V0, sensitivity: results exceed the error bound and vary with the inputs, so that a constant would not pass."""

import numpy as np

from nearpeak.core.runs.validation import PASS, CheckResult
from nearpeak.validation.running.trial import Trial


def sensitivity(trial: Trial) -> CheckResult:
    """Return whether the results change by more than the bound from round to round, and exceed it themselves."""
    first = trial.draws[0].expected
    change, size = 0.0, 0.0
    for name, output in first.items():
        for draw in trial.draws:
            second = draw.expected.get(name)
            if not output.values.size or second is None:
                continue
            size = max(size, _largest(np.abs(second.values), second.bound))
            if second.values.shape != output.values.shape:
                change = np.inf
            else:
                change = max(change, _largest(np.abs(output.values.astype(complex) - second.values), output.bound))
    figures = {"sensitivity": f"{change:.3g}", "size": f"{size:.3g}"}
    if size < 1 or (change < 1 and trial.draws[0].tensors):
        reason = f"results vary by {change:.3g} and reach {size:.3g} bounds; a constant would pass"
        return CheckResult(check="V0", status="DEGENERATE_CASE", reason=reason, figures=figures)
    return CheckResult(check="V0", status=PASS, figures=figures)


def _largest(difference: "np.ndarray", bound: "np.ndarray") -> float:
    with np.errstate(all="ignore"):
        ratio = np.where(difference == 0, 0.0, difference / bound)
    return float(np.nanmax(ratio, initial=0.0))


CHECK = sensitivity
