"""Coefficients that a prediction rests on, with the interval of the measurement source."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from nearpeak.base.identity_key import Same
from nearpeak.core.answers.bound import Policy
from nearpeak.core.answers.prediction import Calibration
from nearpeak.core.work.target import Target
from nearpeak.prediction.calibration.coefficient_store import calibration_for
from nearpeak.prediction.calibration.intervals import farther
from nearpeak.prediction.calibration.source_spread import with_source_spread
from nearpeak.prediction.kernel_model import CaseColumns, KernelModel, Setting

BOUND = "bound"
"""Part of a predicted time by which the bound exceeds the model."""
LIBRARY = "library"
"""Part that the bounded correction adds or takes."""
CLASSICAL, ANY = Policy(), Policy(algorithm="any")
"""What bounds times: of all cases, and of those that libraries run by other than classical algorithms."""
FARTHEST = 3
"""Most steps from the data that are distinguished."""


def case_calibration(
    target: Target, model: KernelModel, cases: CaseColumns, setting: Setting, file: Path | None
) -> Calibration:  # fmt: skip
    """Return the coefficients for one case: the same object for all cases of an operator and its formats."""
    if file is not None or model.calibration is not None:
        return group_calibration(target, model, cases, setting, file)
    return _shared(Same(target), Same(model), cases.op, tuple(cases.dtypes.items()), _grounding(setting))


def group_calibration(
    target: Target, model: KernelModel, cases: CaseColumns, setting: Setting, file: Path | None
) -> Calibration:
    """Return the coefficients for a group of cases, with the interval of the measurement source."""
    calibration = calibration_for(
        target, model, cases, file, corrected=setting.is_corrected, without=setting.excluded_device
    )
    return with_source_spread(calibration, setting.measured_by) if setting.measured_by else calibration


def beyond(calibration: Calibration, more: tuple[Any, Any] | None) -> tuple[tuple[Any, Any], Any]:
    """Return by what rows are apart from those measured, faster and slower, and their further steps from the data.

    Args:
        more: by how much they are faster and slower, in logarithms, for lying beyond what was measured.
    """
    if more is None:
        return calibration.apart_ratio, 0
    faster, slower = (farther(known, extra) for known, extra in zip(calibration.apart_ratio, more, strict=True))
    return (faster, slower), (np.maximum(*more) > 0).astype(np.int8)


@lru_cache(maxsize=1 << 10)
def _shared(
    target: "Same[Target]", model: "Same[KernelModel]", op: str, dtypes: tuple[tuple[str, str], ...], setting: Setting
) -> Calibration:
    """Return the coefficients for an operator and its formats: one object for all extents."""
    cases = CaseColumns(op=op, phase="", dtypes=dict(dtypes), axes={})
    return group_calibration(target.held, model.held, cases, setting, None)


@lru_cache(maxsize=64)
def _grounding(setting: Setting) -> Setting:
    """Return the part of a setting that selects coefficients."""
    return Setting(
        is_corrected=setting.is_corrected, measured_by=setting.measured_by, excluded_device=setting.excluded_device
    )  # fmt: skip
