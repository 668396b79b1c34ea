"""Results of fitting kernel-model coefficients to measurements, and plans of which cases to measure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nearpeak.core.answers.prediction import Calibration
from nearpeak.core.work.case import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class RejectedRow:
    """A row of a table that cannot be used."""

    row: int
    """Number of the row, 1 for the first below the header."""
    column: str
    """Column at fault; empty where it is not one alone."""
    text: str
    """Description of the fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnidentifiedCoefficient:
    """A coefficient that measurements do not identify: it keeps its value, or shares the deviation with another."""

    name: str
    """The coefficient."""
    reason: str
    """Reason for which the measurements do not identify it."""
    pinned_by: str
    """Measurements that would."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """Residual of a fit at one of its rows."""

    row: int
    """Number of the row, 1 for the first below the header."""
    case: Case
    """Its case."""
    measured_s: float
    """Its time."""
    predicted_s: float
    """Time by the fitted coefficients."""

    @property
    def error_ratio(self) -> float:
        """Predicted over measured time, minus 1."""
        return self.predicted_s / self.measured_s - 1

    @property
    def factor(self) -> float:
        """The longer of both times over the shorter: a half is as far off as a double."""
        return max(self.predicted_s / self.measured_s, self.measured_s / self.predicted_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFit:
    """Coefficients of one model, kind of case and device, with what the measurements say about them."""

    name: str
    """Group, e.g. `gemm.bf16`."""
    start: Calibration
    """Coefficients before."""
    values: Mapping[str, float]
    """Coefficients after."""
    held: tuple[UnidentifiedCoefficient, ...]
    """Coefficients that the measurements do not identify."""
    case_count: int
    """Cases fitted on."""
    before_ratio: float
    """Mean absolute error before, on all cases."""
    fitted_ratio: float
    """Mean absolute error after, on the same cases."""
    unseen_ratio: float
    """Mean absolute error on cases left out of the fit, over five folds."""
    bias_ratio: float
    """Mean signed error on cases left out."""
    entry: Mapping[str, Any]
    """The group as coefficient files hold it."""
    residuals: tuple[Residual, ...]
    """Residual of each fitted row, in the order of the table."""

    def worst(self, count: int) -> tuple[Residual, ...]:
        """Return the rows that the fit is farthest off, the farthest first."""
        return tuple(sorted(self.residuals, key=lambda residual: -residual.factor)[:count])


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignPoint:
    """One case to measure."""

    case: Case
    """The case."""
    predicted_s: float
    """Its expected time with the coefficients known so far."""
    pins: str
    """Coefficient that it identifies best, given the cases before it."""
    error_ratio: float
    """Expected error of all cases due to coefficients, once this case and those before it are measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """Cases to measure and what they buy."""

    points: tuple[DesignPoint, ...]
    """The cases, most useful first."""
    candidate_count: int
    """Cases among which they were chosen, over which errors are taken."""
    before_ratio: float
    """Expected error due to coefficients when nothing is measured."""
    start: str
    """Coefficients that are used so far."""
    distance_count: int
    """Steps of these from the device."""

    @property
    def after_ratio(self) -> float:
        """Expected error due to coefficients when all are measured."""
        return self.points[-1].error_ratio
