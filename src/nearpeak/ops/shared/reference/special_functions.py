"""Special functions and orthogonal polynomials in float64; each counts as one special evaluation of a formula."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from nearpeak.ops.shared.reference.bessel import airy, bessel_i, bessel_j, bessel_k, bessel_y
from nearpeak.ops.shared.reference.error_functions import erfcx, erfinv, log_ndtr, ndtri
from nearpeak.ops.shared.reference.gamma import digamma, hurwitz_zeta, igamma, igammac, log_gamma, polygamma


def _recurred(first: Callable[[Any], Any], step: Callable[[Any, Any, Any, int], Any], x: Any, n: Any) -> Any:
    """Return the polynomial of degree n from those of degree 0, which is 1, and 1, by its three-term recurrence.

    Below degree 0 it is 0, as in PyTorch.
    """
    x, n = np.broadcast_arrays(np.asarray(x, float), np.asarray(n, float).astype(int))
    before, now = np.ones_like(x), first(x)
    result = np.where(n < 0, 0.0, np.where(n < 1, before, now))
    for k in range(1, int(n.max(initial=1))):
        before, now = now, step(x, now, before, k)
        result = np.where(n == k + 1, now, result)
    return result


def _chebyshev(first: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return partial(_recurred, first, lambda x, p, q, _: 2 * x * p - q)


def _shifted(polynomial: Callable[[Any, Any], Any], x: Any, n: Any) -> Any:
    return polynomial(2 * np.asarray(x, float) - 1, n)


def sigmoid(x: Any) -> Any:
    """Return 1 / (1 + exp(-x)), to the last places however small: half of tanh and 1 would leave 0 below -37.

    >>> float(sigmoid(-40.0)), float(sigmoid(0.0)), float(sigmoid(800.0))
    (4.248354255291589e-18, 0.5, 1.0)
    """
    small = np.exp(-np.abs(x))
    return np.where(np.less(x, 0), small, 1.0) / (1.0 + small)


_KINDS = {
    "t": _chebyshev(lambda x: x), "u": _chebyshev(lambda x: 2 * x), "v": _chebyshev(lambda x: 2 * x - 1),
    "w": _chebyshev(lambda x: 2 * x + 1),
}  # fmt: skip

SPECIAL: Mapping[str, Callable[..., Any]] = {
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "logaddexp2": np.logaddexp2, "lgamma": log_gamma,
    "sigmoid": sigmoid,
    "digamma": digamma, "trigamma": partial(polygamma, 1), "zeta": hurwitz_zeta, "igamma": igamma,
    "igammac": igammac, "erfinv": erfinv, "erfcx": erfcx, "ndtri": ndtri, "log_ndtr": log_ndtr,
    "i0": partial(bessel_i, 0), "i1": partial(bessel_i, 1),
    "i0e": partial(bessel_i, 0, scaled=True), "i1e": partial(bessel_i, 1, scaled=True),
    "k0": partial(bessel_k, 0), "k1": partial(bessel_k, 1),
    "k0e": partial(bessel_k, 0, scaled=True), "k1e": partial(bessel_k, 1, scaled=True),
    "j0": partial(bessel_j, 0), "j1": partial(bessel_j, 1), "y0": partial(bessel_y, 0), "y1": partial(bessel_y, 1),
    "airy": airy, **{f"chebyshev_{kind}": polynomial for kind, polynomial in _KINDS.items()},
    **{f"shifted_chebyshev_{kind}": partial(_shifted, polynomial) for kind, polynomial in _KINDS.items()},
    "hermite_h": partial(_recurred, lambda x: 2 * x, lambda x, p, q, k: 2 * x * p - 2 * k * q),
    "hermite_he": partial(_recurred, lambda x: x, lambda x, p, q, k: x * p - k * q),
    "laguerre": partial(_recurred, lambda x: 1 - x, lambda x, p, q, k: ((2 * k + 1 - x) * p - k * q) / (k + 1)),
    "legendre": partial(_recurred, lambda x: x, lambda x, p, q, k: ((2 * k + 1) * x * p - k * q) / (k + 1)),
    "polar": lambda r, angle: r * np.exp(1j * angle),
}  # fmt: skip
"""Functions that count as one special evaluation in a formula: none takes less."""
