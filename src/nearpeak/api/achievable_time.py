"""The public functions predict, explain and simulate: expected times of cases and steps on a device."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from nearpeak.core.answers.step_prediction import StepPrediction
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.core.work.workload import Workload
from nearpeak.errors import NotModelledError, SpecError

if TYPE_CHECKING:
    from nearpeak.core.answers.explanation import Explanation
    from nearpeak.core.answers.prediction import Prediction
    from nearpeak.core.answers.simulation import Run
    from nearpeak.ops.shared.tables.case_table import CaseTable
    from nearpeak.prediction.case_prediction import PredictionTable
    from nearpeak.prediction.kernel_model import Setting
    from nearpeak.simulation.step_simulation import StepRun


@overload
def predict(
    cases: Case,
    target: str | Target,
    *,
    calibration: Path | None = ...,
    correction: bool = ...,
    elsewhere: bool = ...,
    sustained: bool | None = ...,
    software: str = ...,
) -> "Prediction": ...
@overload
def predict(
    cases: Workload,
    target: str | Target,
    *,
    calibration: Path | None = ...,
    correction: bool = ...,
    elsewhere: bool = ...,
    sustained: bool | None = ...,
    software: str = ...,
) -> StepPrediction: ...
@overload
def predict(
    cases: "CaseTable | Mapping[str, Any] | Iterable[Case]",
    target: str | Target,
    *,
    calibration: Path | None = ...,
    correction: bool = ...,
    elsewhere: bool = ...,
    sustained: bool | None = ...,
    software: str = ...,
) -> "PredictionTable": ...


def predict(
    cases: Any,
    target: str | Target,
    *,
    calibration: Path | None = None,
    correction: bool = True,
    elsewhere: bool = False,
    sustained: bool | None = None,
    software: str = "best",
) -> Any:
    """Return the time that good software is expected to reach.

    Args:
        cases: a Case (gives a Prediction), a Workload (a StepPrediction: the sum of its calls), or several cases, a
            CaseTable, or columns or a data frame as `case_table` takes them (a PredictionTable).
        calibration: file of coefficients of the user's own, used instead of those that ship with nearpeak.
        correction: whether the bounded correction on top of the coefficients (at most 25 %, the term `library`) is
            applied where a device has one.
        elsewhere: whether intervals are those of other software and another way of timing than behind the coefficients.
        sustained: whether such work goes on for seconds, at the clock that the board's power allows over the mix, or
            comes in bursts of milliseconds; by default steps are sustained, cases and tables of them are bursts.
        software: `best` of the frameworks measured, case by case, or one of them: `vllm`, `trtllm`, `sglang`. In a step
            calls of operators without data of it keep the best.

    Raises:
        SpecError: no such software is known.
        NotModelledError: no form answers for an operator, the device states too little, or the software has no data.

    >>> from nearpeak.api.questions import case
    >>> found = predict(case("gemm", m=4096, n=4096, k=4096, dtype="bf16"), "h100_sxm")
    >>> found.bound_s <= found.time_s <= found.high_s, found.limiter
    (True, 'tensor')
    """
    device_of, predict_case, predict_table = _functions()
    device, calibration = device_of(target), _file(calibration)
    setting = _setting(correction, elsewhere, sustained, software, isinstance(cases, Workload))
    if isinstance(cases, Case):
        return predict_case(cases, device, setting, calibration)
    from nearpeak.ops.shared.tables.case_table import table_from

    if isinstance(cases, Workload):
        return _predict_step(cases, device, setting, calibration)
    return predict_table(table_from(cases, "predict"), device, setting, calibration)


def explain(
    first: Case, second: Case | None = None, *, target: str | Target, other_target: str | Target | None = None
) -> "Explanation":
    """Return the difference of two predicted times, part by part: two cases, two targets, or both.

    Args:
        second: the case of the second prediction; `first` again when not given.
        other_target: the target of the second prediction; `target` again when not given.

    Raises:
        SpecError: one case on one target has nothing to differ from.

    >>> from nearpeak.api.questions import case
    >>> whole, ragged = (case("gemm", m=m, n=4096, k=4096, dtype="bf16") for m in (4096, 4097))
    >>> parts = explain(whole, ragged, target="a100_sxm_80gb").parts_s
    >>> next(iter(parts))
    'tile_padding'
    """
    from nearpeak.core.answers.explanation import Explanation

    if second is None and other_target is None:
        raise SpecError("explain: one case on one target has nothing to differ from; add a case or a target")
    device_of = _functions()[0]
    cases = (first, first if second is None else second)
    devices = (device_of(target), device_of(target if other_target is None else other_target))
    earlier, later = (predict(case, device) for case, device in zip(cases, devices, strict=True))
    names = dict.fromkeys((*earlier.waterfall_s, *later.waterfall_s))
    parts = {name: (earlier.waterfall_s.get(name, 0.0), later.waterfall_s.get(name, 0.0)) for name in names}
    return Explanation(
        cases=cases, targets=devices, predictions=(earlier, later), figures=_differing_figures(*devices),
        parts_s=dict(sorted(parts.items(), key=lambda item: -abs(item[1][1] - item[1][0]))),
    )  # fmt: skip


def _differing_figures(first: Target, second: Target) -> dict[str, tuple[float, float, str]]:
    """Return the figures in which two devices differ, each with its unit."""
    figures = {
        "multiprocessors": (first.sm_count, second.sm_count, ""),
        "memory bandwidth": (first.dram.bandwidth_bytes_per_s, second.dram.bandwidth_bytes_per_s, "B/s"),
        "last cache": (first.l2.capacity_bytes, second.l2.capacity_bytes, "B"),
        "clock": (first.clock_hz or None, second.clock_hz or None, "Hz"),
        "power limit": (first.power_w, second.power_w, "W"),
    }
    for unit in sorted(set(first.peaks) & set(second.peaks)):
        figures[f"{unit} rate"] = (first.peaks[unit].flop_per_s, second.peaks[unit].flop_per_s, "FLOP/s")
    return {
        name: (float(left), float(right), unit)
        for name, (left, right, unit) in figures.items()
        if left is not None and right is not None and left != right
    }


@overload
def simulate(work: Case, target: str | Target) -> "Run": ...
@overload
def simulate(work: Workload, target: str | Target) -> "StepRun": ...


def simulate(work: Case | Workload, target: str | Target) -> Any:
    """Return the simulated run of a case alone on a device, or of all calls of a step one after the other.

    Thread blocks are placed on multiprocessors and share units, caches and memory; durations come from their phases
    and the device's resources. A target may be edited into a device that does not exist.

    >>> from nearpeak.api.questions import case
    >>> simulate(case("gemm", m=4096, n=4096, k=4096, dtype="bf16"), "h100_sxm").cta_count
    132
    """
    from nearpeak.api.questions import device_of
    from nearpeak.simulation.step_simulation import simulate_case, simulate_step

    if isinstance(work, Case):
        return simulate_case(work, device_of(target))
    if isinstance(work, Workload):
        return simulate_step(work, device_of(target))
    raise SpecError(f"simulate: takes a Case or a Workload, got {type(work).__name__}")


@lru_cache
def _functions() -> tuple[Any, Any, Any]:
    """Return what predictions need, imported once: looking for it at each call would cost more than the rest."""
    from nearpeak.api import questions
    from nearpeak.prediction.case_prediction import predict_case, predict_table

    return questions.device_of, predict_case, predict_table


@lru_cache(maxsize=64)
def _setting(correction: bool, elsewhere: bool, sustained: bool | None, software: str, is_step: bool) -> "Setting":
    from nearpeak.prediction.calibration.source_spread import OTHER_SOURCE
    from nearpeak.prediction.kernel_model import Setting
    from nearpeak.prediction.software_ratio import checked_software

    return Setting(
        is_corrected=correction, measured_by=OTHER_SOURCE if elsewhere else "", is_sustained=sustained,
        software=checked_software(software), software_or_best=is_step,
    )  # fmt: skip


def _file(calibration: Any) -> Path | None:
    """Return the file of coefficients that a caller names.

    Raises:
        SpecError: it is no path.
    """
    if calibration is None:
        return None
    if not isinstance(calibration, (str, Path)) or not str(calibration):
        raise SpecError(f"predict: calibration={calibration!r} is no path; give a coefficient file, e.g. 'mine.toml'")
    return Path(calibration)


def _predict_step(workload: Workload, device: Target, setting: "Setting", calibration: Path | None) -> StepPrediction:
    from nearpeak.prediction.step_time import step_of

    step_prediction = step_of(workload, device, setting, calibration)
    if step_prediction is None:
        raise NotModelledError(f"predict: {workload.name}: none of its calls can be predicted on {device.name}")
    return step_prediction
