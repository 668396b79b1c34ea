"""Magnitudes that rounding errors of intermediates are proportional to."""

from typing import Any

import numpy as np

from nearpeak.ops import Numerics
from nearpeak.validation.oracle.sensitivity import Arrays, Reference, evaluated

SUMS = ("contraction", "reduction")
"""Kinds of contracts whose results are sums, kept in the format of the arithmetic until they are complete."""


def magnitudes_of(
    reference: Reference, arrays: Arrays, where: str, numerics: Numerics, results: Arrays
) -> dict[str, Any]:
    """Return what rounding errors on the way are proportional to, where inputs alone do not show it.

    Of sums, the results of the inputs' magnitudes, |a| |b|; of samples, whose positions are rounded too, the
    largest input; where gates and probabilities are subtracted on the way, 1, or, where a loss of all rows is
    derived, the largest result.
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
    """Return the largest result at the largest element of each row, the target, and 0 elsewhere; 1 for what is no row.

    A gradient p - 1 loses digits where p is near 1; the others are p, and no sum. That of a target is minus their sum.
    """
    if values.ndim < 2:
        return np.ones(values.shape)
    size = np.abs(values)
    return np.where(size == size.max(axis=-1, keepdims=True, initial=0.0), _largest(values), 0.0)


def _largest(values: Any) -> float:
    """Return the largest finite magnitude, 1 where there is none."""
    sizes = np.abs(values[np.isfinite(values)])
    return float(sizes.max()) if sizes.size else 1.0
