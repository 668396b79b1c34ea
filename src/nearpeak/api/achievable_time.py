"""The public function predict: how long good software is expected to take."""

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
    from nearpeak.core.answers.prediction import Prediction
    from nearpeak.ops.shared.tables.case_table import CaseTable
    from nearpeak.prediction.case_prediction import PredictionTable
    from nearpeak.prediction.kernel_model import Setting


@overload
def predict(
    cases: Case, target: str | Target, *, calibration: Path | None = ..., correction: bool = ..., elsewhere: bool = ...
) -> "Prediction": ...
@overload
def predict(
    cases: Workload,
    target: str | Target,
    *,
    calibration: Path | None = ...,
    correction: bool = ...,
    elsewhere: bool = ...,
) -> StepPrediction: ...
@overload
def predict(
    cases: "CaseTable | Mapping[str, Any] | Iterable[Case]",
    target: str | Target,
    *,
    calibration: Path | None = ...,
    correction: bool = ...,
    elsewhere: bool = ...,
) -> "PredictionTable": ...


def predict(
    cases: Any,
    target: str | Target,
    *,
    calibration: Path | None = None,
    correction: bool = True,
    elsewhere: bool = False,
) -> Any:
    """Return the time that good software is expected to reach.

    Args:
        cases: a Case (gives a Prediction), a Workload (a StepPrediction: the sum of its calls), or several cases, a
            CaseTable, or columns as `case_table` takes them (a PredictionTable).
        calibration: file of coefficients of the user's own, used instead of those that ship with nearpeak.
        correction: whether the bounded correction on top of the scalars (at most 25 %, the term `library`) is applied
            where a device has one.
        elsewhere: whether intervals are those of other software and another way of timing than behind the scalars.

    Raises:
        NotModelledError: no form answers for an operator, or the device states too little.

    >>> from nearpeak.api.questions import case
    >>> found = predict(case("gemm", m=4096, n=4096, k=4096, dtype="bf16"), "h100_sxm")
    >>> found.bound_s <= found.time_s <= found.high_s, found.limiter
    (True, 'tensor')
    """
    device_of, predict_case, predict_table = _functions()
    device, calibration = device_of(target), _file(calibration)
    setting = _setting(correction, elsewhere)
    if isinstance(cases, Case):
        return predict_case(cases, device, setting, calibration)
    from nearpeak.ops.shared.tables.case_table import CaseTable, table_of_cases
    from nearpeak.ops.shared.tables.case_table import case_table as table_of

    if isinstance(cases, Workload):
        return _predict_step(cases, device, setting, calibration)
    if not isinstance(cases, (CaseTable, Iterable)) or isinstance(cases, str):
        raise SpecError(f"predict: takes a case, several, a table or a workload, got {cases!r}")
    if not isinstance(cases, CaseTable):
        cases = table_of(cases) if isinstance(cases, Mapping) else table_of_cases(list(cases))
    return predict_table(cases, device, setting, calibration)


@lru_cache
def _functions() -> tuple[Any, Any, Any]:
    """Return what predictions need, imported once: looking for it at each call would cost more than the rest."""
    from nearpeak.api import questions
    from nearpeak.prediction.case_prediction import predict_case, predict_table

    return questions.device_of, predict_case, predict_table


@lru_cache(maxsize=4)
def _setting(correction: bool, elsewhere: bool) -> "Setting":
    from nearpeak.prediction.calibration.source_spread import OTHER_SOURCE
    from nearpeak.prediction.kernel_model import Setting

    return Setting(is_corrected=correction, measured_by=OTHER_SOURCE if elsewhere else "")


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

    found = step_of(workload, device, setting, calibration)
    if found is None:
        raise NotModelledError(f"predict: {workload.name}: none of its calls can be predicted on {device.name}")
    return found
