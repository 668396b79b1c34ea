"""Predicted time of a step: its calls against their bounds, their sum, and the parts of the difference."""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import fsum
from pathlib import Path

from nearpeak.base.identity_key import Same
from nearpeak.bounds.step.step_rows import Part, parts_of
from nearpeak.bounds.terms.bound_terms import proved_s
from nearpeak.core.answers.analysis import Analysis, CaseRow, CaseTime
from nearpeak.core.answers.prediction import BURST, Prediction
from nearpeak.core.answers.step_prediction import CallPrediction, StepPrediction
from nearpeak.core.work.case import Case
from nearpeak.core.work.distinct_calls import distinct_calls
from nearpeak.core.work.target import Target
from nearpeak.core.work.workload import Workload
from nearpeak.errors import NotModelledError
from nearpeak.ops import work_of
from nearpeak.prediction.case_prediction import predict_case
from nearpeak.prediction.kernel_model import USUAL, KernelModel, Setting
from nearpeak.prediction.model_choice import model_for
from nearpeak.prediction.power.predicted_energy import POWER_TERM, energy_sum
from nearpeak.prediction.power.sustained_clock import sustained_predictions
from nearpeak.prediction.provenance import BOUND, CLASSICAL

_OF_REGIME = {"launch": "launch", "dram": "bandwidth", "l2": "bandwidth", "tensor": "library"}
_OF_TERM = {"wave_tail": "wave tail", "clock": "power", POWER_TERM: "power", BOUND: "bound"}
"""Cause by term, where the regime of the term does not tell it."""


def with_predictions(
    analysis: Analysis, targets: Sequence[Target], file: Path | None = None, setting: Setting = USUAL
) -> Analysis:
    """Return `analysis` with predictions in addition to bounds; calls without a kernel model keep none.

    Args:
        targets: those of the analysis, in its order.
        file: coefficients of the user's own.
    """
    new = []
    for answer, device in zip(analysis.targets, targets, strict=True):
        times, step = _predicted_rows(analysis.rows, answer.times, device, as_step(setting, analysis.step), file)
        new.append(dataclasses.replace(answer, times=times, prediction=step))
    return dataclasses.replace(analysis, targets=tuple(new))


def step_of(
    workload: Workload, target: Target, setting: Setting = USUAL, file: Path | None = None
) -> StepPrediction | None:
    """Return the sum over the calls of a step without the rest of its analysis; none where no call is predicted.

    Sums of the last steps on the last targets are kept.
    """
    if file is not None:
        return _step(workload, target, setting, file)
    return _remembered(Same(workload), Same(target), setting)


@lru_cache(maxsize=64)
def _remembered(workload: "Same[Workload]", target: "Same[Target]", setting: Setting) -> StepPrediction | None:
    return _step(workload.held, target.held, setting, None)


def _step(workload: Workload, target: Target, setting: Setting, file: Path | None) -> StepPrediction | None:
    return calls_of(workload, target, setting, file)[1]


def calls_of(
    workload: Workload, target: Target, setting: Setting = USUAL, file: Path | None = None
) -> tuple[Mapping[Case, tuple[float, CallPrediction]], StepPrediction | None]:
    """Return bound and prediction of a call of each predicted case of a step, and the sum over its calls."""
    parts = _parts(Same(workload))
    rows = [part.row for part in parts]
    works = {id(part.work): part.work for part in parts}  # calls that touch all of their operands share one
    bounds = {key: proved_s(work, target, CLASSICAL) for key, work in works.items()}
    times = [CaseTime(bound_s=bounds[id(part.work)], limiter="", terms_s={}) for part in parts]
    predicted, step = _predicted_rows(rows, times, target, as_step(setting, workload.step), file)
    pairs = zip(rows, predicted, strict=True)
    return {row.case: (time.bound_s, time.prediction) for row, time in pairs if time.prediction is not None}, step


def as_step(setting: Setting, step: str) -> Setting:
    """Return a setting in which steps are sustained where it leaves that open; a list of cases is none."""
    if setting.is_sustained is not None:
        return setting
    return dataclasses.replace(setting, is_sustained=step != "sweep")


@lru_cache(maxsize=2)  # one step is predicted on many targets in a row
def _parts(workload: "Same[Workload]") -> tuple[Part, ...]:
    cases = {call.case for call in distinct_calls(workload.held.calls)}
    return parts_of(workload.held, {case: work_of(case) for case in cases})


def _predicted_rows(
    rows: Sequence[CaseRow], bounds: Sequence[CaseTime], target: Target, setting: Setting, file: Path | None
) -> tuple[tuple[CaseTime, ...], StepPrediction | None]:
    """Return the times of the rows with their predictions, and the sum over all calls."""
    predictions: dict[Case, Prediction | str] = {}  # or why there is none
    bursts = dataclasses.replace(setting, is_sustained=None)  # as of single cases, which are remembered
    for case in dict.fromkeys(row.case for row in rows):
        try:
            predictions[case] = predict_case(case, target, bursts, file)
        except NotModelledError as error:
            predictions[case] = str(error)
    if setting.is_sustained:
        predictions |= _sustained(rows, predictions, target)
    energies = {case: None if isinstance(outcome, str) else outcome.energy for case, outcome in predictions.items()}
    calls: dict[tuple[Case, float], CallPrediction] = {}  # modules share cases, and mostly their bounds
    times, missing = list[CaseTime](), list[tuple[CaseRow, float, str]]()
    for row, time in zip(rows, bounds, strict=True):
        answer, key = predictions[row.case], (row.case, time.bound_s)
        if isinstance(answer, str):
            times.append(time)
            missing.append((row, time.bound_s, answer))
            continue
        if key not in calls:
            prediction = answer
            low_s, time_s, high_s = (  # a call's bound may be below that of the case
                max(end_s, time.bound_s) for end_s in (prediction.low_s, prediction.time_s, prediction.high_s)
            )
            gap_s = gap_of(prediction, model_for(row.case, target), time.bound_s)
            calls[key] = CallPrediction(
                time_s=time_s, low_s=low_s, high_s=high_s, gap_s=gap_s, energy=energies[row.case],
                distance_count=prediction.distance_count,
            )  # fmt: skip
        times.append(dataclasses.replace(time, prediction=calls[key]))
    return tuple(times), _sum(rows, times, missing, _holds_for(predictions))


def _sustained(
    rows: Sequence[CaseRow], predictions: Mapping[Case, Prediction | str], target: Target
) -> dict[Case, Prediction]:
    """Return the predictions at the clock that the board sustains over all calls of the step."""
    counts: dict[Case, int] = {}
    for row in rows:
        counts[row.case] = counts.get(row.case, 0) + row.call_count
    calls = [(case, burst, counts[case]) for case, burst in predictions.items() if not isinstance(burst, str)]
    sustained = sustained_predictions(target, calls)
    return {case: prediction for (case, _, _), prediction in zip(calls, sustained, strict=True)}


def _holds_for(predictions: Mapping[Case, Prediction | str]) -> str:
    """Return the duration and duty of predictions: of the sustained ones, where some of their boards have no limit."""
    stated = [prediction.holds_for for prediction in predictions.values() if not isinstance(prediction, str)]
    return next((text for text in stated if text != BURST), BURST)


def gap_of(prediction: Prediction, model: KernelModel, bound_s: float) -> Mapping[str, float]:
    """Return the time beyond the bound by cause; it adds up to the predicted time less `bound_s`, or to nothing.

    The bound is subtracted from the largest part, whose rest is its resource below the documented rate. A step is
    held to the bounds of classical algorithms: what a library's other algorithm is expected to save below them is left.
    """
    parts = {term.name: term.time_s for term in prediction.terms}
    parts[prediction.limiter] -= min(bound_s, prediction.time_s)
    gap: dict[str, float] = {}
    for name, time_s in parts.items():
        cause = _OF_TERM.get(name) or _OF_REGIME.get(model.regimes.get(name, ""), "library")
        gap[cause] = gap.get(cause, 0.0) + time_s
    return gap


def _sum(
    rows: Sequence[CaseRow], times: Sequence[CaseTime], missing: Sequence[tuple[CaseRow, float, str]], holds_for: str
) -> StepPrediction | None:
    """Return the sum over calls; none where no call is predicted.

    Args:
        missing: rows without a prediction, with the bound of a call and why there is none.
        holds_for: duration and duty of the times.
    """
    calls = [
        (row.call_count, time.bound_s, time.prediction)
        for row, time in zip(rows, times, strict=True)
        if time.prediction is not None
    ]
    if not calls:
        return None
    gap: dict[str, float] = {}
    by_distance: dict[str, list[float]] = {}
    for count, _, call in calls:
        by_distance.setdefault(str(call.distance_count), []).append(call.time_s * count)
        for cause, time_s in call.gap_s.items():
            gap[cause] = gap.get(cause, 0.0) + time_s * count
    unpredicted: dict[str, int] = {}
    for row, _, reason in missing:
        unpredicted[reason] = unpredicted.get(reason, 0) + row.call_count
    time_s = fsum(call.time_s * count for count, _, call in calls)  # the same in any order of the rows
    energies = [(call.energy, count) for count, _, call in calls if call.energy is not None]
    return StepPrediction(
        time_s=time_s, energy=energy_sum(energies, time_s) if len(energies) == len(calls) else None,
        low_s=fsum(call.low_s * count for count, _, call in calls),
        high_s=fsum(call.high_s * count for count, _, call in calls),
        bound_s=fsum(bound_s * count for count, bound_s, _ in calls), gap_s=gap,
        call_count=sum(count for count, _, _ in calls), unpredicted=unpredicted,
        grounds_s={steps: fsum(some) for steps, some in by_distance.items()},
        unpredicted_bound_s=fsum(bound_s * row.call_count for row, bound_s, _ in missing), holds_for=holds_for,
    )  # fmt: skip
