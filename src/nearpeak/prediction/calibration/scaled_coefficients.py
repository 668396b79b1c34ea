"""Scalars of a device without data, from those of devices whose multiprocessors are about as large."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nearpeak.core.work.target import Target
from nearpeak.prediction.kernel_model import Form

_FADE = 4.0
"""Factor by which the weight of a device falls with each doubling between its multiprocessors and the target's."""
_LEAST = 1e-6
"""Least value in a geometric mean, as a share of a scalar's largest."""


def kin_values(form: Form, target: Target, dtypes: Mapping[str, str], measured: Sequence[tuple[Target, Any]]) -> Any:
    """Return the geometric means of the scalars of measured devices, those of like size weighing most."""
    size = form.size or (lambda _target, _dtypes: 0.0)
    here = size(target, dtypes)
    weights = np.array([_FADE ** -abs(size(device, dtypes) - here) for device, _ in measured])
    low = np.array([scalar.low_value for scalar in form.scalars])
    high = np.array([scalar.high_value for scalar in form.scalars])
    moved = [values for _, values in measured]
    if form.transfer is not None:
        moved = list(form.transfer(target, dtypes, measured, is_kin=False))
    logs = np.log(np.maximum(np.stack(moved), _LEAST * high))
    return np.clip(np.exp(weights @ logs / weights.sum()), low, high)
