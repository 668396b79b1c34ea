"""Sentences on the expected time of a step: its length, distance from the bounds, and breakdown."""

import json
from collections.abc import Iterator

from nearpeak.core.answers.analysis import Analysis, TargetAnalysis
from nearpeak.core.answers.expected_energy import ExpectedEnergy
from nearpeak.core.answers.step_prediction import StepPrediction
from nearpeak.reports import figure_text as words
from nearpeak.reports.analysis.json import RECORDS
from nearpeak.units import counted, show

LEAST_SHARE = 0.005
"""Causes with less of the time beyond the bounds are not named."""
DISTANCE = (
    "measured on this device",
    "no data of this device for such a case: coefficients of another format, of fewer ranks, of the device as it is "
    "without '--set', or of another device of its architecture",
    "no data of this architecture: coefficients of its maker's devices, by the size of their multiprocessors; or of "
    "another device of its architecture, of fewer ranks",
    "no data of this maker: coefficients of another maker's devices together",
)
"""Description of each distance from the calibration data."""
NEARNESS = (
    "measured on this device",
    "not measured on this device for such a case: from its architecture, so the interval is wider",
    "not measured on this architecture: from its maker's other devices, so the interval is wider",
    "not measured on its maker's devices: from another maker's, so the interval is wide",
)
"""The same in one short line."""


def lines_of(analysis: Analysis, target: TargetAnalysis) -> Iterator[str]:
    """Yield the expected time on a target; one sentence with the reason where there is no prediction."""
    prediction = target.prediction
    if prediction is None:
        yield "expected time: no call of the step can be predicted on this target"
        return
    mode = ", graph" if target.executions else ""  # the modes differ in what the host adds, and in fused calls
    yield (
        f"expected, kernel after kernel{mode}: about {show(prediction.time_s, 's')} "
        f"({show(prediction.low_s, 's')} to {show(prediction.high_s, 's')}), "
        f"{words.times(prediction.time_s / prediction.bound_s)} "
        f"the {show(prediction.bound_s, 's')} of the same calls' bounds"
    )
    yield f"beyond the bounds: {shares_of(prediction)}"
    if prediction.energy is not None:
        yield f"energy per step{mode}: {energy_line(prediction.energy)}"
    if prediction.holds_for:
        yield f"holds for {prediction.holds_for}"
    yield f"provenance: {_provenance(prediction)}"
    if prediction.unpredicted:
        count = sum(prediction.unpredicted.values())
        yield (
            f"not in it: {words.count(count)} of {words.count(analysis.covered_count)} calls, whose bounds add up to "
            f"{show(prediction.unpredicted_bound_s, 's')}"
        )
        yield from (f"left out, {counted(count, 'call')}: {why}" for why, count in prediction.unpredicted.items())


def _provenance(prediction: StepPrediction) -> str:
    """Return the provenance of the coefficients, with the share of time of each source where they differ."""
    steps = sorted(prediction.grounds_s, key=lambda grade: -prediction.grounds_s[grade])
    if len(steps) == 1:
        return DISTANCE[int(steps[0])]
    return "; ".join(
        f"{100 * prediction.grounds_s[grade] / prediction.time_s:.0f} % of the time {DISTANCE[int(grade)]}"
        for grade in steps
    )


def energy_line(energy: ExpectedEnergy) -> str:
    """Return energy, power and what they go to, and whether they were measured on this device."""
    named = [name for name in energy.parts_j if energy.parts_j[name] >= LEAST_SHARE * energy.energy_j]
    order = sorted(named, key=lambda name: -energy.parts_j[name])
    parts = ", ".join(f"{name} {100 * energy.parts_j[name] / energy.energy_j:.0f} %" for name in order)
    assumed = (
        "" if energy.distance_count == 0 else "; no power of this device was measured, shares of its limit assumed"
    )
    return (
        f"about {show(energy.energy_j, 'J')} ({show(energy.low_j, 'J')} to {show(energy.high_j, 'J')}), "
        f"{show(energy.power_w, 'W')} on average: {parts}{assumed}"
    )


def total(prediction: StepPrediction | None) -> str:
    """Return the expected time, marked ≥ where it does not hold every call; a dash where nothing is predicted."""
    return "–" if prediction is None else ("≥ " if prediction.unpredicted else "") + show(prediction.time_s, "s")


def shares_of(prediction: StepPrediction) -> str:
    """Return the causes of the time beyond the bounds with their shares, largest first."""
    whole = prediction.time_s - prediction.bound_s
    if whole <= 0:
        return "nothing"
    order = sorted(prediction.gap_s, key=lambda cause: -prediction.gap_s[cause])
    return ", ".join(
        f"{cause} {100 * prediction.gap_s[cause] / whole:.0f} %"
        for cause in order
        if abs(prediction.gap_s[cause]) >= LEAST_SHARE * whole
    )


def to_json(analysis: Analysis) -> str:
    """Return the predictions of all targets as JSON, one line each."""
    return "\n".join(
        json.dumps(
            {
                "workload": analysis.name, "step": analysis.step, "target": target.target,
                "bound_s": target.unfused_s, "covered": analysis.covered_count, "execution": analysis.execution,
                "executions": [RECORDS.plain(execution) for execution in target.executions],
                "prediction": None if target.prediction is None else RECORDS.plain(target.prediction),
            }
        )
        for target in analysis.targets
    )  # fmt: skip
