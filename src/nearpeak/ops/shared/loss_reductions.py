"""The reductions of losses: none, mean and sum, with ignored targets."""

from typing import Any

import numpy as np

from nearpeak.core.work.tensor import Tensor
from nearpeak.ops.shared.definition.axis_checks import required_one_of
from nearpeak.ops.shared.definition.operator import IGNORED

REDUCTIONS = ("none", "mean", "sum")
"""In the order of PyTorch's numbers 0, 1, 2."""


def checked(reduction: str) -> str:
    """Return `reduction`, refused when it is not known.

    >>> checked("mean")
    'mean'
    """
    required_one_of("loss", REDUCTIONS, reduction=reduction)
    return reduction


def class_inputs(rows: int, classes: int, dtype: str, **_: Any) -> dict[str, Tensor]:
    """Return the scores of all classes and the target class of each row."""
    return {"x": Tensor(shape=(rows, classes), dtype=dtype), "target": Tensor(shape=(rows,), dtype="int64")}


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
    """Return the upstream gradient of each row's loss: 0 for ignored rows, shared by the others under a mean."""
    counted = target != IGNORED
    count = np.float64(counted.sum()) if reduction == "mean" else 1
    return np.where(counted, np.broadcast_to(upstream, target.shape) / count, 0.0)
