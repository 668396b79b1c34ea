"""Bounded, outlier-robust least-squares fit of a kernel model's coefficients, with identifiability."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearpeak.errors import SpecError
from nearpeak.prediction.kernel_model import CoefficientRange, KernelModel

SCALE_RATIO = 0.1
"""Deviation beyond which a measurement counts linearly, not squared."""
STEP_COUNT = 40
LOOSE_RATIO = 0.002
"""Change of the mean absolute deviation below which a coefficient is not identified."""
_EDGE = 0.01
"""Share of the range by which starts stay away from its ends; fitted values this near to an end count as at the end."""
END_PLACE = math.log((1 - _EDGE) / _EDGE) - 1e-9
"""Distance from the middle of a range, in `coordinates`, at which a value counts as at its end."""
_NOISE_RATIO = 0.05
"""Deviation of a measurement from a right model; weighs measurements against the prior of the coefficients."""
_REACH = 12.0
"""Largest logistic coordinate: values come within 1e-5 of the ends of their range."""
Times = Callable[[Any], Any]
Deviation = Callable[[Any], Any]
"""Deviation of each time as a function of predicted over measured."""
_MOST = 20.0
"""Ratio of predicted over measured time above which `relative` stays constant: a start may be far off."""


def logarithmic(ratio: Any) -> Any:
    """Return the deviation of predicted over measured times as its logarithm, whose fit meets their median."""
    return np.log(ratio)


def relative(ratio: Any) -> Any:
    """Return the deviation as the ratio less 1, as scores do, whose fit meets the least mean error."""
    return np.minimum(ratio, _MOST) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Fitted coefficients of one model."""

    values: Any
    """Values in the order of the model."""
    unidentified: tuple[str, ...]
    """Coefficients that the measurements do not identify."""


def fit(
    model: KernelModel,
    times: Times,
    measured_s: Any,
    fixed: Sequence[str] = (),
    start: Any = None,
    spread: Any = None,
    prior_weight: float = 0.0,
    deviation: Deviation = logarithmic,
) -> Fit:
    """Return the coefficients whose predicted times deviate least from `measured_s`.

    Args:
        times: predicted times in seconds as a function of the coefficients.
        fixed: coefficients that keep their start value.
        start: values to start from; the model's usual ones by default.
        spread: expected deviation of each coefficient from its start, in `coordinates`; without it all values are
            equally likely, and a fit needs three measurements per free coefficient unless `prior_weight` holds them.
        prior_weight: rows that the start counts for: coefficients without effect on the measurements stay near it.
        deviation: the deviation to minimise.

    Raises:
        SpecError: too few measurements, or measurements that are not positive numbers.
    """
    first = np.array([s.usual_value for s in model.coefficients]) if start is None else np.asarray(start, dtype=float)
    free = [i for i, coefficient in enumerate(model.coefficients) if coefficient.name not in fixed]
    if spread is None and not prior_weight and len(measured_s) < 3 * len(free):
        raise SpecError(
            f"fit: {len(measured_s)} measurements for {len(free)} coefficients; at least three for each are needed"
        )
    if not (np.isfinite(measured_s).all() and (np.asarray(measured_s) > 0).all()):
        raise SpecError("fit: a measured time is not a positive number; take such rows out")
    hold = np.full(len(model.coefficients), math.sqrt(prior_weight) * SCALE_RATIO)
    hold = hold if spread is None else _NOISE_RATIO / np.asarray(spread)
    values = _descend(model, lambda v: deviation(times(v) / measured_s), free, first, hold)
    return Fit(values=values, unidentified=_loose(model, times, np.log(measured_s), free, values))


def coordinates(model: KernelModel, values: Any) -> Any:
    """Return coefficients as places in their ranges from minus to plus infinity: the logit of the share below them.

    Values at an end count as a hundredth of the range away from it.
    """
    low, high = _ranges(model)
    share = np.clip((np.asarray(values) - low) / (high - low), _EDGE, 1 - _EDGE)
    return np.log(share / (1 - share))


def coefficients_at(model: KernelModel, point: Any) -> Any:
    """Return the coefficients at `coordinates`."""
    low, high = _ranges(model)
    return low + (high - low) / (1 + np.exp(-np.clip(point, -_REACH, _REACH)))


def _ranges(model: KernelModel) -> tuple[Any, Any]:
    return np.array([s.low_value for s in model.coefficients]), np.array([s.high_value for s in model.coefficients])


def _descend(model: KernelModel, deviations: Times, free: list[int], first: Any, hold: Any) -> Any:
    """Return the coefficients at a minimum: damped Gauss-Newton steps in the coordinates of the ranges.

    Args:
        deviations: of each measurement, as a function of the coefficients.
        hold: deviation that a step of one in each coordinate away from `first` counts as; 0 where it is free.
    """
    start, damping = coordinates(model, first), 1e-2

    def values_at(point: Any) -> Any:
        values, whole = first.copy(), start.copy()
        whole[free] = point
        values[free] = coefficients_at(model, whole)[free]
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
        deviations = rest_at(new)
        if _loss(deviations) < _loss(rest):
            return new, deviations, damping
        damping *= 4
    return None


def _loss(rest: Any) -> float:
    return float(np.sum(np.sqrt(1 + (rest / SCALE_RATIO) ** 2) - 1))


def _loose(model: KernelModel, times: Times, target: Any, free: list[int], values: Any) -> tuple[str, ...]:
    """Return the coefficients at an end of their range, or that could move by a fifth of their value without effect."""
    base = np.abs(np.log(times(values)) - target).mean()
    names = [s.name for i, s in enumerate(model.coefficients) if i not in free]
    for i in free:
        coefficient = model.coefficients[i]
        wide = coefficient.high_value - coefficient.low_value
        at_end = not coefficient.low_value + _EDGE * wide < values[i] < coefficient.high_value - _EDGE * wide
        if at_end or _effect(times, target, values, i, coefficient) - base < LOOSE_RATIO:
            names.append(coefficient.name)
    return tuple(sorted(names))


def _effect(times: Times, target: Any, values: Any, position: int, coefficient: CoefficientRange) -> float:
    """Return the larger mean deviation when one coefficient moves by a fifth of its value either way."""
    deviations = []
    for factor in (0.8, 1.25):
        other = values.copy()
        other[position] = min(max(values[position] * factor, coefficient.low_value), coefficient.high_value)
        deviations.append(float(np.abs(np.log(times(other)) - target).mean()))
    return max(deviations)
