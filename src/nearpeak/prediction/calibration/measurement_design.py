"""Optimal experimental design: the few cases whose measurement makes all other predictions most certain."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np

from nearpeak.core.answers.calibration import Design, DesignPoint
from nearpeak.core.work.case import Case
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.target import Target
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.ops import OPS
from nearpeak.ops import case as case_of
from nearpeak.prediction.calibration.case_times import times_of
from nearpeak.prediction.calibration.coefficient_store import calibration_for
from nearpeak.prediction.calibration.device_fit import NOISE_RATIO, slopes, spread_of
from nearpeak.prediction.kernel_model import USUAL, CaseColumns, KernelModel, Setting
from nearpeak.prediction.model_choice import model_of
from nearpeak.prediction.refinement import coefficients_of

MOST_CASES = 30
"""Cases beyond which a design is no longer an afternoon's work."""
LONGEST_S = 0.1
"""Cases that would take longer are left out: a clock at its limit shows within it."""
MISFIT_RATIO = 0.07
"""Model deviation shared by similar shapes, with the device's own coefficients: 0.4 of the variance of 0.11 in total,
from the residuals of the products of eleven devices and formats for matrix units."""
ALIKE_OCTAVES = 1.3
"""Distance of two cases, in octaves of their axes, at which that deviation correlates by 1/e; same residuals."""
LONG_S = 50e-6
"""Cases that take longer make up most of a step: all of them together count as much as all cases."""
_MEAN_OF_NORMAL = float(np.sqrt(2 / np.pi))
"""Mean absolute value of a normal deviation over its standard deviation."""


def design(
    target: Target, op: str, dtypes: Mapping[str, str], count: int = MOST_CASES, setting: Setting = USUAL
) -> Design:
    """Return at most `count` cases to measure on `target`.

    Each is the candidate that most reduces the mean variance of all candidates' predictions, given those before it
    (I-optimal, greedily), with coefficients spread as over measured devices, and with the models' own deviations.

    Raises:
        SpecError: `count` is not from 1 to 30, or a name is not known.
        NotModelledError: no model, or one without candidates, answers for the operator.

    >>> from nearpeak.targets import target_of
    >>> found = design(target_of("h20"), "gemm", {"dtype": "bf16"}, count=8)
    >>> len(found.points), found.after_ratio < found.before_ratio
    (8, True)
    """
    if not 1 <= count <= MOST_CASES:
        raise SpecError(f"calibrate plan: {count} cases; 1 to {MOST_CASES} is right")
    OPS[op].rule("forward")
    for dtype in dtypes.values():
        dtype_of(dtype)
    model = model_of(op, "forward")
    start = calibration_for(target, model, CaseColumns(op=op, phase="forward", dtypes=dict(dtypes), axes={}))
    values = coefficients_of(start)
    spread = spread_of(model, model.groups(op, dtypes)[0], values)
    cases, times_s = _candidates(model, op, dtypes, target, values, setting)
    effects = slopes(times_of(cases, model, target, setting), model, values) * spread
    points = tuple(_points(model, cases, times_s, effects, count))
    return Design(
        points=points, candidate_count=len(cases), before_ratio=_error(effects, np.eye(len(values))),
        start=start.name, distance_count=start.distance_count,
    )  # fmt: skip


def _candidates(
    model: KernelModel, op: str, dtypes: Mapping[str, str], target: Target, values: Any, setting: Setting
) -> tuple[list[Case], Any]:
    """Return the model's candidate cases of at most LONGEST_S, with their expected times."""
    stated: Mapping[str, Any] = model.grids.get(op) or model.grid
    if not stated:
        others = f"; its model has those of {', '.join(model.grids)}" if model.grids else ""
        raise NotModelledError(f"calibrate plan: no candidates of {op} to choose from{others}")
    grid: list[dict[str, Any]] = [dict(zip(stated, each, strict=True)) for each in product(*stated.values())]
    cases = [case_of(op, **axes, **dtypes) for axes in grid]
    times_s = times_of(cases, model, target, setting)(values)
    short = np.flatnonzero(times_s <= LONGEST_S)
    if not len(short):
        raise NotModelledError(f"calibrate plan: every candidate takes more than {LONGEST_S} s on {target.name}")
    return [cases[i] for i in short], times_s[short]


def chosen(effects: Any, count: int, misfit: Any = 0.0, weights: Any = 1.0) -> list[tuple[int, Any]]:
    """Return the rows of the chosen candidates in turn, each with the variance of the coefficients once it is measured.

    Chosen for coefficients alone, cases would be the extremes of the candidates, where models miss most, and bias the
    fit. With the model's deviation in the variance, they spread over the candidates as well.

    Args:
        effects: change of the logarithm of each time when each coefficient is off by its expected deviation.
        misfit: covariance of the model's own deviations, see `misfit_of`; by default none.
        weights: weight of each candidate's variance, see `weights_of`.
    """
    variance, picks, taken = np.eye(effects.shape[1]), [], np.zeros(len(effects), dtype=bool)
    seen, total = effects.T.copy(), effects @ effects.T + misfit
    counts = np.broadcast_to(weights, len(effects))
    for _ in range(min(count, len(effects))):
        noisy = np.diag(total) + NOISE_RATIO**2
        pick = int(np.argmax(np.where(taken, -1.0, counts @ total**2 / noisy)))
        variance = variance - np.outer(seen[:, pick], seen[:, pick]) / noisy[pick]
        seen = seen - np.outer(seen[:, pick], total[pick]) / noisy[pick]
        total = total - np.outer(total[:, pick], total[pick]) / noisy[pick]
        taken[pick] = True
        picks.append((pick, variance))
    return picks


def weights_of(times_s: Any) -> Any:
    """Return the weight of each case's variance; all long cases together weigh as much as all cases.

    >>> weights_of(np.array([1e-6, 1e-6, 1e-6, 1e-3])).tolist()
    [1.0, 1.0, 1.0, 5.0]
    """
    is_long = np.asarray(times_s) > LONG_S
    return 1.0 + is_long * (is_long.size / max(is_long.sum(), 1))


def misfit_of(columns: Sequence[Any]) -> Any:
    """Return the covariance of the model's own deviations between cases, which grows with their similarity.

    Args:
        columns: the cases by axis and choice; numbers are compared by octave, words must agree.

    >>> found = misfit_of([np.array([1, 1, 1024]), np.array(["nn", "nt", "nn"])]) / MISFIT_RATIO**2
    >>> found.round(2).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    count = len(columns[0])
    squares, agree = np.zeros((count, count)), np.ones((count, count))
    for column in map(np.asarray, columns):
        if column.dtype.kind in "biuf":
            places = np.log2(np.maximum(column.astype(float), 1.0))
            squares += (places[:, None] - places[None, :]) ** 2
        else:
            agree *= column[:, None] == column[None, :]
    return MISFIT_RATIO**2 * agree * np.exp(-np.sqrt(squares) / ALIKE_OCTAVES)


def _points(model: KernelModel, cases: Sequence[Case], times_s: Any, effects: Any, count: int) -> Iterator[DesignPoint]:
    before = np.eye(effects.shape[1])
    rows = [{**dict(case.axes), **{key: str(value) for key, value in case.attributes}} for case in cases]
    misfit = misfit_of([np.array([row.get(name, 1) for row in rows]) for name in rows[0]])
    for pick, variance in chosen(effects, count, misfit, weights_of(times_s)):
        pinned = int(np.argmax(1 - np.diag(variance) / np.diag(before)))
        before = variance
        yield DesignPoint(
            case=cases[pick], predicted_s=float(times_s[pick]), pins=model.coefficients[pinned].name,
            error_ratio=_error(effects, variance),
        )  # fmt: skip


def _error(effects: Any, variance: Any) -> float:
    """Return the mean absolute error over all candidates that is due to the coefficients."""
    return float(np.sqrt(np.einsum("ij,jk,ik->i", effects, variance, effects)).mean() * _MEAN_OF_NORMAL)
