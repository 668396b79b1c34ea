"""V5: every element lies within its bound of the float64 oracle."""

import numpy as np

from nearpeak.core.validation import SKIPPED, CheckResult
from nearpeak.measure.validation._compare import comparable, compared, last_places, values_of
from nearpeak.measure.validation._trial import Trial


def elements(trial: Trial) -> CheckResult:
    """Return the element nearest to its bound, or furthest beyond it, for normal inputs."""
    asked, ran = trial.questions[0], trial.runs[0]
    if ran.error or not comparable(ran.outputs, asked.expected):
        return CheckResult(check="V5", status=SKIPPED, reason="V1 failed")
    got = values_of(ran.outputs)
    result = compared("V5", got, asked.expected, f"{asked.distribution} inputs")
    places = np.concatenate([last_places(got[name], one) for name, one in asked.expected.items()] or [np.zeros(0)])
    figures = (
        {"ulp_max": f"{places.max():.3g}", "ulp_p99.9": f"{np.quantile(places, 0.999):.3g}"} if len(places) else {}
    )
    return CheckResult(check="V5", status=result.status, reason=result.reason, worst=result.worst, figures=figures)


CHECK = elements
