"""The reductions of losses: none, mean and sum, with ignored targets."""

from typing import Any

import numpy as np

from nearpeak.errors import SpecError
from nearpeak.ops.shared.definition.operator import IGNORED

REDUCTIONS = ("none", "mean", "sum")
"""In the order of PyTorch's numbers 0, 1, 2."""


def checked(reduction: str) -> str:
    """Return `reduction`, refused when it is not known.

    >>> checked("mean")
    'mean'
    """
    if reduction not in REDUCTIONS:
        raise SpecError(f"loss: reduction={reduction!r} is not known; there are {', '.join(REDUCTIONS)}")
    return reduction


def reduced(losses: Any, reduction: str) -> Any:
    """Return NumPy losses as `reduction` says."""
    return losses if reduction == "none" else losses.mean() if reduction == "mean" else losses.sum()


def of_targets(log_likely: Any, target: Any, reduction: str) -> Any:
    """Return minus the log likelihood of each row's target, 0 for ignored rows; a mean is over the others.

    >>> of_targets(np.log([[0.5, 0.5], [0.25, 0.75]]), np.array([0, IGNORED]), "mean").round(4)
    np.float64(0.6931)
    """
    counted = target != IGNORED
    losses = np.where(counted, -log_likely[np.arange(len(target)), np.where(counted, target, 0)], 0.0)
    return losses.sum() / np.float64(counted.sum()) if reduction == "mean" else reduced(losses, reduction)


def upstream_of(target: Any, upstream: Any, reduction: str) -> Any:
    """Return the gradient from above of each row's loss: 0 for ignored rows, shared by the others under a mean."""
    counted = target != IGNORED
    count = np.float64(counted.sum()) if reduction == "mean" else 1
    return np.where(counted, np.broadcast_to(upstream, target.shape) / count, 0.0)
