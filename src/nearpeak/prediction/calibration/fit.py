"""Fits the scalars of a form to measurements: bounded, robust to outliers, and honest about what is not pinned down."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearpeak.errors import SpecError
from nearpeak.prediction.kernel_model import Form, Scalar

SCALE_RATIO = 0.1
"""Deviation beyond which a measurement counts linearly, not squared."""
STEP_COUNT = 40
LOOSE_RATIO = 0.002
"""Change of the mean absolute deviation below which a scalar's own range does not matter: it is not identified."""
_EDGE = 0.01
"""Starts keep this share of the range away from its ends; a fitted value this near to an end counts as at the end."""
END_PLACE = math.log((1 - _EDGE) / _EDGE) - 1e-9
"""Distance from the middle of a range, in `coordinates`, at which a value counts as at its end."""
_NOISE_RATIO = 0.05
"""Deviation of a measurement from a right form; weighs measurements against what is expected of scalars beforehand."""
_REACH = 12.0
"""Largest logistic coordinate: values come within 1e-5 of the ends of their range."""
Times = Callable[[Any], Any]
Deviation = Callable[[Any], Any]
"""Deviation of each time as a function of predicted over measured."""
_MOST = 20.0
"""Ratio of predicted over measured time above which `relative` no longer grows: a start may be far off."""


def logarithmic(ratio: Any) -> Any:
    """Return the deviation of predicted over measured times as its logarithm: their middle is met."""
    return np.log(ratio)


def relative(ratio: Any) -> Any:
    """Return it as the ratio less 1, as scores do: where equal cases differ widely, what is least wrong is met."""
    return np.minimum(ratio, _MOST) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Fitted scalars of one form."""

    values: Any
    """Values in the order of the form."""
    unidentified: tuple[str, ...]
    """Scalars that the measurements do not pin down."""


def fit(
    form: Form,
    times: Times,
    measured_s: Any,
    fixed: Sequence[str] = (),
    start: Any = None,
    spread: Any = None,
    prior_weight: float = 0.0,
    deviation: Deviation = logarithmic,
) -> Fit:
    """Return the scalars whose predicted times deviate least from `measured_s`.

    Args:
        times: predicted times in seconds as a function of the scalars.
        fixed: scalars that keep their start value.
        start: values to start from; the form's usual ones by default.
        spread: by how much each scalar may be expected to be off its start, in `coordinates`; none: any value is as
            likely as another, and three measurements per free scalar are needed unless `prior_weight` holds them.
        prior_weight: rows that the start counts for: scalars that the measurements hardly move stay near it.
        deviation: which deviations are made least.

    Raises:
        SpecError: too few measurements, or measurements that are not positive numbers.
    """
    first = np.array([s.usual_value for s in form.scalars]) if start is None else np.asarray(start, dtype=float)
    free = [i for i, scalar in enumerate(form.scalars) if scalar.name not in fixed]
    if spread is None and not prior_weight and len(measured_s) < 3 * len(free):
        raise SpecError(
            f"fit: {len(measured_s)} measurements for {len(free)} scalars; at least three for each are needed"
        )
    if not (np.isfinite(measured_s).all() and (np.asarray(measured_s) > 0).all()):
        raise SpecError("fit: a measured time is not a positive number; take such rows out")
    hold = np.full(len(form.scalars), math.sqrt(prior_weight) * SCALE_RATIO)
    hold = hold if spread is None else _NOISE_RATIO / np.asarray(spread)
    values = _descend(form, lambda v: deviation(times(v) / measured_s), free, first, hold)
    return Fit(values=values, unidentified=_loose(form, times, np.log(measured_s), free, values))


def coordinates(form: Form, values: Any) -> Any:
    """Return scalars as places in their ranges from minus to plus infinity: the logit of the share below them.

    Values at an end count as a hundredth of the range away from it.
    """
    low, high = _ranges(form)
    share = np.clip((np.asarray(values) - low) / (high - low), _EDGE, 1 - _EDGE)
    return np.log(share / (1 - share))


def scalars_at(form: Form, point: Any) -> Any:
    """Return the scalars at `coordinates`."""
    low, high = _ranges(form)
    return low + (high - low) / (1 + np.exp(-np.clip(point, -_REACH, _REACH)))


def _ranges(form: Form) -> tuple[Any, Any]:
    return np.array([s.low_value for s in form.scalars]), np.array([s.high_value for s in form.scalars])


def _descend(form: Form, deviations: Times, free: list[int], first: Any, hold: Any) -> Any:
    """Return the scalars at a minimum: damped Gauss-Newton steps in the coordinates of the ranges.

    Args:
        deviations: of each measurement, as a function of the scalars.
        hold: deviation that a step of one in each coordinate away from `first` counts as; 0 where it is free.
    """
    start, damping = coordinates(form, first), 1e-2

    def values_at(point: Any) -> Any:
        values, whole = first.copy(), start.copy()
        whole[free] = point
        values[free] = scalars_at(form, whole)[free]
        return values

    def rest_at(point: Any) -> Any:
        rest = deviations(values_at(point))
        return np.concatenate([rest, hold[free] * (point - start[free])]) if hold[free].any() else rest

    point = start[free]
    rest = rest_at(point)
    for _ in range(STEP_COUNT):
        slopes = np.stack([rest_at(point + d) - rest for d in np.eye(len(free)) * 1e-3], 1) / 1e-3
        moved = _moved(rest_at, point, rest, slopes, damping)
        if moved is None:
            break
        gain = _loss(rest) - _loss(moved[1])
        point, rest, damping = moved[0], moved[1], max(moved[2] / 5, 1e-6)
        if gain < 1e-5 * _loss(rest):
            break
    return values_at(point)


def _moved(rest_at: Times, point: Any, rest: Any, slopes: Any, damping: float) -> tuple[Any, Any, float] | None:
    """Return the next point with its deviations and damping; none where no step helps."""
    weights = 1 / np.sqrt(1 + (rest / SCALE_RATIO) ** 2)
    normal, slope = (slopes * weights[:, None]).T @ slopes, slopes.T @ (weights * rest)
    for _ in range(8):
        step = -np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-3), slope)
        new = point + np.clip(step, -1.5, 1.5)
        found = rest_at(new)
        if _loss(found) < _loss(rest):
            return new, found, damping
        damping *= 4
    return None


def _loss(rest: Any) -> float:
    return float(np.sum(np.sqrt(1 + (rest / SCALE_RATIO) ** 2) - 1))


def _loose(form: Form, times: Times, target: Any, free: list[int], values: Any) -> tuple[str, ...]:
    """Return the scalars at an end of their range, or that could move by a fifth of their value without effect."""
    base = np.abs(np.log(times(values)) - target).mean()
    found = [s.name for i, s in enumerate(form.scalars) if i not in free]
    for i in free:
        scalar = form.scalars[i]
        wide = scalar.high_value - scalar.low_value
        at_end = not scalar.low_value + _EDGE * wide < values[i] < scalar.high_value - _EDGE * wide
        if at_end or _effect(times, target, values, i, scalar) - base < LOOSE_RATIO:
            found.append(scalar.name)
    return tuple(sorted(found))


def _effect(times: Times, target: Any, values: Any, position: int, scalar: Scalar) -> float:
    """Return the larger mean deviation when one scalar moves by a fifth of its value either way."""
    found = []
    for factor in (0.8, 1.25):
        other = values.copy()
        other[position] = min(max(values[position] * factor, scalar.low_value), scalar.high_value)
        found.append(float(np.abs(np.log(times(other)) - target).mean()))
    return max(found)
