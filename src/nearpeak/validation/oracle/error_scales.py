"""Magnitudes that rounding errors of intermediates are proportional to."""

from typing import Any

import numpy as np

from nearpeak.ops import Tolerance
from nearpeak.validation.oracle.sensitivity import Arrays, Reference, evaluated

SUMS = ("contraction", "reduction")
"""Kinds of tolerance whose results are sums, accumulated in the arithmetic's format."""


def magnitudes_of(
    reference: Reference, arrays: Arrays, where: str, numerics: Tolerance, results: Arrays
) -> dict[str, Any]:
    """Return the magnitudes that rounding errors of intermediates are proportional to, if inputs do not show them.

    For sums, the results for the inputs' magnitudes, |a| |b|; for sampling, whose positions are rounded too, the
    largest input; where gates and probabilities are subtracted, 1, or for the gradient of a loss over all rows, the
    largest result.
    """
    if numerics.kind in SUMS:
        positive = {name: np.abs(array) if array.dtype.kind in "fc" else array for name, array in arrays.items()}
        return {name: np.abs(values) for name, values in evaluated(reference, positive, where).items()}
    if numerics.kind == "sampling":
        most = max(float(np.nanmax(np.abs(array), initial=0.0)) for array in arrays.values())
        return {name: np.full(values.shape, most) for name, values in results.items()}
    if numerics.gates == "largest":
        return {name: np.full(values.shape, _largest(values)) for name, values in results.items()}
    if numerics.gates == "targets":
        return {name: _at_targets(values) for name, values in results.items()}
    return {name: np.ones(values.shape) for name, values in results.items()} if numerics.gates == "always" else {}


def _at_targets(values: Any) -> Any:
    """Return the largest result at each row's largest element, the target, and 0 elsewhere; 1 where there are no rows.

    The target's gradient p - 1 loses digits where p is near 1; the others are p, without a subtraction.
    """
    if values.ndim < 2:
        return np.ones(values.shape)
    size = np.abs(values)
    return np.where(size == size.max(axis=-1, keepdims=True, initial=0.0), _largest(values), 0.0)


def _largest(values: Any) -> float:
    """Return the largest finite magnitude, 1 where there is none."""
    sizes = np.abs(values[np.isfinite(values)])
    return float(sizes.max()) if sizes.size else 1.0
