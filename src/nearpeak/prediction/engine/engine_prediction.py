"""Prediction of one kernel as an engine builds it on a small board."""

from functools import lru_cache, partial

from nearpeak.base.identity_key import Same
from nearpeak.bounds.terms.bound_terms import proved_s
from nearpeak.core.answers.bound import Policy
from nearpeak.core.answers.prediction import Calibration, Coefficient, Prediction, Provenance
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.ops import work_of
from nearpeak.prediction.documented_target import stock_of
from nearpeak.prediction.engine.engine_coefficients import engine_calibration
from nearpeak.prediction.engine.engine_kernels import engine_kernels
from nearpeak.prediction.engine.engine_time import kernel_times
from nearpeak.prediction.kernel_model import case_columns
from nearpeak.prediction.power.predicted_energy import energy_of, format_of, has_power
from nearpeak.prediction.power.unit_activity import busy_times

_PARTS = ("products", "memory", "launch", "bound")


def engine_prediction(case: Case, target: Target) -> Prediction:
    """Return the prediction of a kernel of TensorRT, submitted within a graph, with the interval of held-out models."""
    calibration = engine_calibration()
    times = kernel_times(engine_kernels({case: 1}), target, calibration.coefficients)
    bound_s = proved_s(work_of(case), target, Policy(dtype="tf32"))
    cases = case_columns(case)
    busy = busy_times(target, stock_of(target), cases, is_one=True) if has_power(target) else ()
    parts_s = float(times.products_s[0]), float(times.memory_s[0]), times.start_s
    model_s = sum(parts_s)
    time_s, ratio = max(model_s, bound_s), calibration.ratio_of(target)
    return Prediction(
        time_s=time_s, low_s=max(bound_s, time_s / ratio), high_s=time_s * ratio, bound_s=bound_s,
        regime="tensor", parts_s=(*parts_s, time_s - model_s), busy=tuple(busy),
        provenance=_provenance(Same(target), format_of(cases), calibration.distance_of(target)),
    )  # fmt: skip


@lru_cache(maxsize=64)
def _provenance(target: "Same[Target]", dtype: str, distance: int) -> Provenance:
    calibration = engine_calibration()
    values = calibration.coefficients
    ratio = calibration.far_ratio if distance else calibration.interval_ratio
    stated = tuple(
        Coefficient(name=name, value=getattr(values, name), low_value=0.0, high_value=float("inf"), identified=True)
        for name in values.__slots__
    )
    return Provenance(
        calibration=Calibration(
            name="jetson_tensorrt", coefficients=stated, low_ratio={"tensor": 1 / ratio}, high_ratio={"tensor": ratio},
            row_count=calibration.row_count, source=calibration.source, version="engine-1", distance_count=distance,
        ),
        part_names=_PARTS, drawn=partial(energy_of, target.held, dtype) if has_power(target.held) else None,
    )  # fmt: skip
