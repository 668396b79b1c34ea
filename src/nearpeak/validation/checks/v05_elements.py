"""V5, elements: every element lies within its error bound of the float64 oracle."""

import numpy as np

from nearpeak.core.runs.validation import SKIPPED, CheckResult
from nearpeak.validation.comparison.output_comparison import comparable, last_places, values_of
from nearpeak.validation.comparison.torch_baseline import judged
from nearpeak.validation.running.trial import Trial


def elements(trial: Trial) -> CheckResult:
    """Return the result with the element that is nearest to its bound, or furthest beyond it, for normal inputs."""
    draw, ran = trial.draws[0], trial.runs[0]
    if ran.error or not comparable(ran.outputs, draw.expected):
        return CheckResult(check="V5", status=SKIPPED, reason="V1 failed")
    got = values_of(ran.outputs)
    result = judged("V5", ran.outputs, draw, f"{draw.distribution} inputs", trial.draws)
    places = np.concatenate(
        [last_places(got[name], expected) for name, expected in draw.expected.items()] or [np.zeros(0)]
    )
    floats = [array for array in got.values() if array.dtype.kind in "fc"]
    tests = (("nan", np.isnan), ("inf", np.isinf))
    figures = {name: str(sum(int(test(array).sum()) for array in floats)) for name, test in tests}
    if len(places):
        figures |= {"ulp_max": f"{places.max():.3g}", "ulp_p99.9": f"{np.quantile(places, 0.999):.3g}"}
    return CheckResult(check="V5", status=result.status, reason=result.reason, worst=result.worst, figures=figures)


CHECK = elements
