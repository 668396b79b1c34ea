"""Special functions in float64 NumPy, the references of element-wise formulas: gamma, error, Bessel and polynomials."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(200)
_CIRCLE = (np.arange(256) + 0.5) * (math.pi / 256)
_HALF_LINE = np.linspace(0.0, 9.0, 1601)
"""Hyperbolic integrands decay twice exponentially: the trapezoid rule needs no more."""
_BERNOULLI = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000)
"""B(2j) / (2j)! of the Euler-Maclaurin sum."""


def hurwitz_zeta(s: Any, q: Any) -> Any:
    """Return the sum of 1 / (k + q)^s over k from 0 (Euler-Maclaurin, NIST DLMF 25.11.5), q above 0.

    The sum has no value for s below 1, and is infinite at 1.

    >>> round(float(hurwitz_zeta(2.0, 1.0)), 12), float(hurwitz_zeta(0.5, 1.0))
    (1.644934066848, nan)
    """
    s, q = np.asarray(s, float), np.asarray(q, float)
    far = q + 16
    total = sum((q + k) ** -s for k in range(16)) + far ** (1 - s) / (s - 1) + 0.5 * far**-s
    rising = s
    for j, factor in enumerate(_BERNOULLI):
        total = total + factor * rising * far ** (-s - 2 * j - 1)
        rising = rising * (s + 2 * j + 1) * (s + 2 * j + 2)
    return np.where(s < 1, np.nan, np.where(s == 1, np.inf, total))


def polygamma(order: int, x: Any) -> Any:
    """Return the derivative number `order`, at least 1, of the digamma function (NIST DLMF 25.11.12), x above 0."""
    return (-1) ** (order + 1) * math.factorial(order) * hurwitz_zeta(order + 1.0, x)


def digamma(x: Any) -> Any:
    """Return the logarithmic derivative of the gamma function (NIST DLMF 5.11.2, 5.5.4)."""
    x = np.asarray(x, float)
    mirrored = np.where(x < 0.5, 1 - x, x)
    far = mirrored + 16
    tail = sum((-c) / far ** (2 * j) for j, c in enumerate((1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132), 1))
    found = np.log(far) - 0.5 / far + tail - sum(1 / (mirrored + k) for k in range(16))
    return np.where(x < 0.5, found - math.pi / np.tan(math.pi * x), found)


def erfinv(y: Any) -> Any:
    """Return x with erf(x) = y, by Newton's method from a logarithmic estimate."""
    y = np.asarray(y, float)
    with np.errstate(all="ignore"):
        log = np.log1p(-y * y)
        first = 2 / (math.pi * 0.147) + log / 2
        x = np.sign(y) * np.sqrt(np.sqrt(first * first - log / 0.147) - first)
        for _ in range(6):
            x = x - (_erf(x) - y) * 0.5 * math.sqrt(math.pi) * np.exp(x * x)
    return np.where(np.abs(y) < 1, x, np.where(np.abs(y) == 1, np.copysign(np.inf, y), np.nan))


def igamma(a: Any, x: Any) -> Any:
    """Return the regularised lower incomplete gamma function by its series (NIST DLMF 8.11.4), a above 0."""
    a, x = np.broadcast_arrays(np.asarray(a, float), np.asarray(x, float))
    term = total = 1 / a
    for k in range(1, 400):
        term = term * x / (a + k)
        total = total + term
    return total * np.exp(a * np.log(x) - x - _lgamma(a))


def bessel_j(order: int, x: Any) -> Any:
    """Return the Bessel function of the first kind, by its integral over half a period (NIST DLMF 10.9.2)."""
    x = np.asarray(x, float)[..., None]
    return np.cos(order * _CIRCLE - x * np.sin(_CIRCLE)).mean(-1)


def bessel_i(order: int, x: Any, *, scaled: bool = False) -> Any:
    """Return the modified Bessel function of the first kind (NIST DLMF 10.32.3), times exp(-|x|) when `scaled`."""
    x = np.asarray(x, float)[..., None]
    least = np.abs(x) if scaled else 0.0
    return (np.exp(x * np.cos(_CIRCLE) - least) * np.cos(order * _CIRCLE)).mean(-1)


def bessel_k(order: float, x: Any, *, scaled: bool = False) -> Any:
    """Return the modified Bessel function of the second kind (NIST DLMF 10.32.9), times exp(x) when `scaled`."""
    x = np.asarray(x, float)[..., None]
    grown = np.cosh(_HALF_LINE) - (1.0 if scaled else 0.0)
    return np.trapezoid(np.exp(-x * grown) * np.cosh(order * _HALF_LINE), _HALF_LINE, axis=-1)


def bessel_y(order: int, x: Any) -> Any:
    """Return the Bessel function of the second kind (NIST DLMF 10.9.7), x above 0."""
    x = np.asarray(x, float)[..., None]
    angle = 0.5 * math.pi * (_NODES + 1)
    round_ = 0.5 * (np.sin(x * np.sin(angle) - order * angle) * _WEIGHTS).sum(-1)
    line = 6 * (_NODES + 1)
    growth = (np.exp(order * line) + (-1) ** order * np.exp(-order * line)) * _WEIGHTS * 6
    return round_ - (growth * np.exp(-x * np.sinh(line))).sum(-1) / math.pi


def airy(x: Any) -> Any:
    """Return Ai(x), by K of order 1/3 (NIST DLMF 9.6.2) above 2 and by its series (9.4.1) below, down to -6."""
    x = np.asarray(x, float)
    third, high = 1 / 3, np.maximum(x, 2.0)
    above = np.sqrt(high / 3) / math.pi * bessel_k(third, 2 / 3 * high**1.5)
    even = odd = np.ones_like(x)
    first, second = even, odd
    for k in range(1, 60):
        even, odd = even * x**3 / ((3 * k - 1) * 3 * k), odd * x**3 / (3 * k * (3 * k + 1))
        first, second = first + even, second + odd
    at_zero, slope = 3 ** (-2 / 3) / math.gamma(2 / 3), -(3 ** (-1 / 3)) / math.gamma(1 / 3)
    return np.where(x > 2, above, at_zero * first + slope * x * second)


def _recurred(first: Callable[[Any], Any], step: Callable[[Any, Any, Any, int], Any], x: Any, n: Any) -> Any:
    """Return the polynomial of degree n from those of degree 0, which is 1, and 1, by its three-term recurrence.

    Below degree 0 it is 0, as in PyTorch.
    """
    x, n = np.broadcast_arrays(np.asarray(x, float), np.asarray(n, float).astype(int))
    before, now = np.ones_like(x), first(x)
    found = np.where(n < 0, 0.0, np.where(n < 1, before, now))
    for k in range(1, int(n.max(initial=1))):
        before, now = now, step(x, now, before, k)
        found = np.where(n == k + 1, now, found)
    return found


def _chebyshev(first: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return partial(_recurred, first, lambda x, p, q, _: 2 * x * p - q)


def _shifted(polynomial: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda x, n: polynomial(2 * np.asarray(x, float) - 1, n)


_erf = np.vectorize(math.erf, otypes=[float])
_erfc = np.vectorize(math.erfc, otypes=[float])


def _log_gamma(x: float) -> float:
    """Return the logarithm of |gamma|, infinite at its poles: 0 and the negative whole numbers."""
    return math.inf if x <= 0 and x == math.floor(x) else math.lgamma(x)


_lgamma = np.vectorize(_log_gamma, otypes=[float])


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
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "logaddexp2": np.logaddexp2, "lgamma": _lgamma,
    "sigmoid": sigmoid,
    "digamma": digamma, "trigamma": partial(polygamma, 1), "zeta": hurwitz_zeta, "igamma": igamma,
    "igammac": lambda a, x: 1 - igamma(a, x), "erfinv": erfinv, "erfcx": lambda x: np.exp(x * x) * _erfc(x),
    "ndtri": lambda p: math.sqrt(2) * erfinv(2 * np.asarray(p, float) - 1),
    "log_ndtr": lambda x: np.log(0.5 * _erfc(-np.asarray(x, float) / math.sqrt(2))),
    "i0": partial(bessel_i, 0), "i1": partial(bessel_i, 1),
    "i0e": partial(bessel_i, 0, scaled=True), "i1e": partial(bessel_i, 1, scaled=True),
    "k0": partial(bessel_k, 0), "k1": partial(bessel_k, 1),
    "k0e": partial(bessel_k, 0, scaled=True), "k1e": partial(bessel_k, 1, scaled=True),
    "j0": partial(bessel_j, 0), "j1": partial(bessel_j, 1), "y0": partial(bessel_y, 0), "y1": partial(bessel_y, 1),
    "airy": airy, **{f"chebyshev_{kind}": polynomial for kind, polynomial in _KINDS.items()},
    **{f"shifted_chebyshev_{kind}": _shifted(polynomial) for kind, polynomial in _KINDS.items()},
    "hermite_h": partial(_recurred, lambda x: 2 * x, lambda x, p, q, k: 2 * x * p - 2 * k * q),
    "hermite_he": partial(_recurred, lambda x: x, lambda x, p, q, k: x * p - k * q),
    "laguerre": partial(_recurred, lambda x: 1 - x, lambda x, p, q, k: ((2 * k + 1 - x) * p - k * q) / (k + 1)),
    "legendre": partial(_recurred, lambda x: x, lambda x, p, q, k: ((2 * k + 1) * x * p - k * q) / (k + 1)),
    "polar": lambda r, angle: r * np.exp(1j * angle),
}  # fmt: skip
"""Functions that count as one special evaluation in a formula: none takes less."""
