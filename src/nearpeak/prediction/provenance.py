"""What predictions stand on beside their form: the scalars that answer, and the bounds of their times."""

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
from nearpeak.prediction.calibration.source_spread import seen_elsewhere
from nearpeak.prediction.kernel_model import CaseColumns, Form, Setting

BOUND = "bound"
"""Part of a predicted time by which the bound exceeds the form."""
LIBRARY = "library"
"""Part that the bounded correction adds or takes."""
CLASSICAL, ANY = Policy(), Policy(algorithm="any")
"""What bounds times: of all cases, and of those that libraries run by other than classical algorithms."""
FARTHEST = 3
"""Most steps from the data that are told apart."""


def grounds_of_one(
    target: Target, form: Form, cases: CaseColumns, setting: Setting, file: Path | None
) -> Calibration:  # fmt: skip
    """Return the scalars that answer for one case: the same object for all cases of an operator and its formats."""
    if file is not None or form.calibration is not None:
        return grounds_of(target, form, cases, setting, file)
    return _shared(Same(target), Same(form), cases.op, tuple(cases.dtypes.items()), _grounding(setting))


def grounds_of(target: Target, form: Form, cases: CaseColumns, setting: Setting, file: Path | None) -> Calibration:
    """Return the scalars that answer, with the interval of whoever measures."""
    found = calibration_for(target, form, cases, file, corrected=setting.is_corrected, without=setting.leaves_out)
    return seen_elsewhere(found, setting.measured_by) if setting.measured_by else found


def beyond(calibration: Calibration, more: tuple[Any, Any] | None) -> tuple[tuple[Any, Any], Any]:
    """Return by what rows are apart from those measured, faster and slower, and their further steps from the data.

    Args:
        more: by how much they are faster and slower, in logarithms, for lying beyond what was measured, see `Form`.
    """
    if more is None:
        return calibration.apart_ratio, 0
    faster, slower = (farther(known, one) for known, one in zip(calibration.apart_ratio, more, strict=True))
    return (faster, slower), (np.maximum(*more) > 0).astype(np.int8)


@lru_cache(maxsize=1 << 10)
def _shared(
    target: "Same[Target]", form: "Same[Form]", op: str, dtypes: tuple[tuple[str, str], ...], setting: Setting
) -> Calibration:
    """Return the scalars that answer for an operator and its formats, whatever the extents: one object for all."""
    cases = CaseColumns(op=op, phase="", dtypes=dict(dtypes), axes={})
    return grounds_of(target.held, form.held, cases, setting, None)


@lru_cache(maxsize=64)
def _grounding(setting: Setting) -> Setting:
    """Return what of a setting chooses scalars."""
    return Setting(
        is_corrected=setting.is_corrected, measured_by=setting.measured_by, leaves_out=setting.leaves_out
    )  # fmt: skip
