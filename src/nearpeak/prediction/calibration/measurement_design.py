"""Which few cases to measure on a new device: those that make predictions of all others surest."""

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
from nearpeak.prediction.kernel_model import USUAL, CaseColumns, Form, Setting
from nearpeak.prediction.model_choice import form_of
from nearpeak.prediction.refinement import scalars_of

MOST_CASES = 30
"""Cases beyond which a design is no longer an afternoon's work."""
LONGEST_S = 0.1
"""Cases that would take longer are left out: a clock at its limit shows within it."""
MISFIT_RATIO = 0.07
"""Deviation of a form with a device's own scalars that shapes alike share: 0.4 of the variance of 0.11 in total, from
the residuals of the products of eleven devices and formats for matrix units."""
ALIKE_OCTAVES = 1.3
"""Distance of two cases, in octaves of their axes, at which that part is alike by 1/e; from the same residuals."""
LONG_S = 50e-6
"""Cases that take longer make up most of a step: all of them together count as much as all cases."""
_MEAN_OF_NORMAL = float(np.sqrt(2 / np.pi))
"""Mean absolute value of a normal deviation over its standard deviation."""


def design(
    target: Target, op: str, dtypes: Mapping[str, str], count: int = MOST_CASES, setting: Setting = USUAL
) -> Design:
    """Return at most `count` cases to measure on `target`.

    Each is the candidate that most reduces the mean variance of all candidates' predictions, given those before it
    (I-optimal, greedily), with scalars spread as they are over measured devices, and with what forms miss around them.

    Raises:
        SpecError: `count` is not from 1 to 30, or a name is not known.
        NotModelledError: no form, or one without candidates, answers for the operator.

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
    form = form_of(op, "forward")
    start = calibration_for(target, form, CaseColumns(op=op, phase="forward", dtypes=dict(dtypes), axes={}))
    values = scalars_of(start)
    spread = spread_of(form, form.groups(op, dtypes)[0], values)
    cases, times_s = _candidates(form, op, dtypes, target, values, setting)
    effects = slopes(times_of(cases, form, target, setting), form, values) * spread
    points = tuple(_points(form, cases, times_s, effects, count))
    return Design(
        points=points, candidate_count=len(cases), before_ratio=_error(effects, np.eye(len(values))),
        start=start.name, distance_count=start.distance_count,
    )  # fmt: skip


def _candidates(
    form: Form, op: str, dtypes: Mapping[str, str], target: Target, values: Any, setting: Setting
) -> tuple[list[Case], Any]:
    """Return the form's candidates that fit the device's memory and patience, with their expected times."""
    stated: Mapping[str, Any] = form.grids.get(op) or form.grid
    if not stated:
        others = f"; its form has those of {', '.join(form.grids)}" if form.grids else ""
        raise NotModelledError(f"calibrate plan: no candidates of {op} to choose from{others}")
    grid: list[dict[str, Any]] = [dict(zip(stated, each, strict=True)) for each in product(*stated.values())]
    cases = [case_of(op, **axes, **dtypes) for axes in grid]
    times_s = times_of(cases, form, target, setting)(values)
    kept = np.flatnonzero(times_s <= LONGEST_S)
    if not len(kept):
        raise NotModelledError(f"calibrate plan: every candidate takes more than {LONGEST_S} s on {target.name}")
    return [cases[i] for i in kept], times_s[kept]


def chosen(effects: Any, count: int, misfit: Any = 0.0, weights: Any = 1.0) -> list[tuple[int, Any]]:
    """Return the rows of the chosen candidates in turn, each with the variance of the scalars once it is measured.

    Chosen for scalars alone, cases are the extremes of the candidates, where forms miss most, and bend the scalars to
    them. With what the form misses in the variance, they spread over the candidates as well.

    Args:
        effects: change of the logarithm of each time when each scalar is off by what may be expected.
        misfit: covariance of what the form misses, see `misfit_of`; by default it misses nothing.
        weights: how much the variance of each candidate counts, see `weights_of`.
    """
    variance, found, taken = np.eye(effects.shape[1]), [], np.zeros(len(effects), dtype=bool)
    seen, total = effects.T.copy(), effects @ effects.T + misfit
    counts = np.broadcast_to(weights, len(effects))
    for _ in range(min(count, len(effects))):
        own = np.diag(total) + NOISE_RATIO**2
        pick = int(np.argmax(np.where(taken, -1.0, counts @ total**2 / own)))
        variance = variance - np.outer(seen[:, pick], seen[:, pick]) / own[pick]
        seen = seen - np.outer(seen[:, pick], total[pick]) / own[pick]
        total = total - np.outer(total[:, pick], total[pick]) / own[pick]
        taken[pick] = True
        found.append((pick, variance))
    return found


def weights_of(times_s: Any) -> Any:
    """Return how much the variance of each case counts: long ones once more, as a group as much as all cases.

    >>> weights_of(np.array([1e-6, 1e-6, 1e-6, 1e-3])).tolist()
    [1.0, 1.0, 1.0, 5.0]
    """
    is_long = np.asarray(times_s) > LONG_S
    return 1.0 + is_long * (is_long.size / max(is_long.sum(), 1))


def misfit_of(columns: Sequence[Any]) -> Any:
    """Return the covariance, between cases, of what the form misses: alike for cases with extents alike.

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


def _misfit(cases: Sequence[Case]) -> Any:
    """Return the covariance of what the form misses of the candidates, whose axes and choices are the same ones."""
    each = [{**dict(case.axes), **{key: str(value) for key, value in case.attributes}} for case in cases]
    return misfit_of([np.array([one.get(name, 1) for one in each]) for name in each[0]])


def _points(form: Form, cases: Sequence[Case], times_s: Any, effects: Any, count: int) -> Iterator[DesignPoint]:
    before = np.eye(effects.shape[1])
    for pick, variance in chosen(effects, count, _misfit(cases), weights_of(times_s)):
        pinned = int(np.argmax(1 - np.diag(variance) / np.diag(before)))
        before = variance
        yield DesignPoint(
            case=cases[pick], predicted_s=float(times_s[pick]), pins=form.scalars[pinned].name,
            error_ratio=_error(effects, variance),
        )  # fmt: skip


def _error(effects: Any, variance: Any) -> float:
    """Return the mean absolute error over all candidates that is due to the scalars."""
    return float(np.sqrt(np.einsum("ij,jk,ik->i", effects, variance, effects)).mean() * _MEAN_OF_NORMAL)
