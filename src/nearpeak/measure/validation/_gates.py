"""What rounding errors on the way are as large as where gates and probabilities are subtracted."""

from typing import Any

import numpy as np


def at_targets(values: Any) -> Any:
    """Return the largest result at the largest element of each row, the target, and 0 elsewhere; 1 for what is no row.

    A gradient p - 1 loses digits where p is near 1; the others are p, and no sum. That of a target is minus their sum.
    """
    if values.ndim < 2:
        return np.ones(values.shape)
    size = np.abs(values)
    return np.where(size == size.max(axis=-1, keepdims=True, initial=0.0), largest(values), 0.0)


def largest(values: Any) -> float:
    """Return the largest finite magnitude, 1 where there is none."""
    sizes = np.abs(values[np.isfinite(values)])
    return float(sizes.max()) if sizes.size else 1.0
