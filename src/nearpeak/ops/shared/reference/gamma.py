"""Gamma, digamma, zeta and incomplete gamma functions in float64 NumPy."""

import math
from typing import Any

import numpy as np

_BERNOULLI = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160, -691 / 1307674368000)
"""B(2j) / (2j)! of the Euler-Maclaurin sum."""
_PSI = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12, -3617 / 8160)
"""B(2j) / (2j) of the expansion of digamma."""
_PSI_FROM = 8
"""By how much digamma is shifted: fewer fractions are added, and round less."""
_NEAR = 0.5
"""How far from 1 and 2 the series of the logarithm of gamma is taken, which is 0 there, and that of its derivative."""
_MOST_STEPS = 400
"""Terms of the incomplete gamma functions."""


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
    """Return the logarithmic derivative of the gamma function (NIST DLMF 5.11.2, 5.5.4).

    >>> [f"{float(digamma(x)):.12g}" for x in (1.0, -0.25, 30.0)]
    ['-0.577215664902', '2.91413912021', '3.38443813269']
    """
    x = np.asarray(x, float)
    mirrored = np.where(x < 0.5, 1 - x, x)
    from_one, from_two = mirrored - 1, mirrored - 2
    low = _slope_near_two(from_one) - 1 / mirrored
    near = np.where(np.abs(from_one) <= _NEAR, low, np.where(np.abs(from_two) <= _NEAR, _slope_near_two(from_two), 0))
    far = mirrored + _PSI_FROM
    tail = sum((-c) / far ** (2 * j) for j, c in enumerate(_PSI, 1))
    anywhere = np.log(far) - (0.5 / far + sum(1 / (mirrored + k) for k in range(_PSI_FROM)) - tail)
    direct = np.where(mirrored <= 2 + _NEAR, near, anywhere)
    distance = np.where(x == 0, x, x - np.round(x))
    reflected = np.where((x < 0) & (distance == 0), np.nan, direct - math.pi / np.tan(math.pi * distance))
    return np.where(x < 0.5, reflected, direct)


def log_gamma(x: Any) -> Any:
    """Return the logarithm of |gamma|, infinite at its poles: 0 and the negative whole numbers.

    Near 1 and 2, where it is 0, by its series there (NIST DLMF 5.7.3).

    >>> [f"{float(log_gamma(x)):.12g}" for x in (1 + 1e-9, 1.999, -3.0, 12.5)]
    ['-5.77215711838e-10', '-0.000422461800692', 'inf', '18.7343475119']
    """
    x = np.asarray(x, float)
    from_one, from_two = x - 1, x - 2
    first = _near_two(from_one) - np.log1p(np.where(np.abs(from_one) < _NEAR, from_one, 0.0))
    near = np.where(np.abs(from_one) < _NEAR, first, np.where(np.abs(from_two) <= _NEAR, _near_two(from_two), np.nan))
    return np.where(np.isnan(near), _anywhere(x), near)


def _near_two(z: Any) -> Any:
    """Return the logarithm of gamma(2 + z), for |z| up to a half."""
    z = np.where(np.abs(z) <= _NEAR, z, 0.0)
    total = z * (1 - np.euler_gamma)
    for k, coefficient in enumerate(_BEYOND_ONE, 2):
        total = total + (-z) ** k * coefficient / k
    return total


def _slope_near_two(z: Any) -> Any:
    """Return the derivative of that, digamma(2 + z)."""
    z = np.where(np.abs(z) <= _NEAR, z, 0.0)
    total = 1 - np.euler_gamma
    for k, coefficient in enumerate(_BEYOND_ONE, 2):
        total = total - (-z) ** (k - 1) * coefficient
    return total


_BEYOND_ONE = hurwitz_zeta(np.arange(2.0, 34.0), 2.0).tolist()
"""zeta(k) - 1 from k = 2 on."""


def _log_gamma_of(x: float) -> float:
    return math.inf if x <= 0 and (math.isinf(x) or x == math.floor(x)) else math.lgamma(x)


_anywhere = np.vectorize(_log_gamma_of, otypes=[float])


def igamma(a: Any, x: Any) -> Any:
    """Return the regularised lower incomplete gamma function, a above 0 and x not below 0.

    By its series (NIST DLMF 8.11.4) up to a + 1, from there on as what the upper one leaves.
    """
    return _shares(a, x)[0]


def igammac(a: Any, x: Any) -> Any:
    """Return the regularised upper incomplete gamma function, small as it may be, a above 0 and x not below 0.

    By its continued fraction (NIST DLMF 8.9.2) from a + 1 on, below as what the lower one leaves.

    >>> f"{float(igammac(1.0, 50.0)):.12g}", f"{float(igammac(2.0, 0.5)):.12g}"
    ('1.92874984796e-22', '0.909795989569')
    """
    return _shares(a, x)[1]


def _shares(a: Any, x: Any) -> tuple[Any, Any]:
    """Return the lower and the upper function, each computed on its own side of a + 1."""
    a, x = np.broadcast_arrays(np.asarray(a, float), np.minimum(np.asarray(x, float), _LARGEST))
    below = x < a + 1
    lower, upper = _lower(a, np.minimum(x, a + 1)), _upper(a, np.maximum(x, a + 1))
    none = np.isinf(a) & (x >= 0)
    shares = np.where(below, lower, 1 - upper), np.where(below, 1 - lower, upper)
    return np.where(none, 0.0, shares[0]), np.where(none, 1.0, shares[1])


_LARGEST = 1e300
"""Beyond it, as at infinity, all is below."""


def _scale(a: Any, x: Any) -> Any:
    """Return x^a e^-x / gamma(a)."""
    return np.exp(a * np.log(x) - x - log_gamma(a))


def _lower(a: Any, x: Any) -> Any:
    term = total = 1 / a
    for k in range(1, _MOST_STEPS):
        term = term * x / (a + k)
        total = total + term
    return total * _scale(a, x)


def _upper(a: Any, x: Any) -> Any:
    """Return the continued fraction, from its far end."""
    fraction = np.zeros_like(x)
    for k in range(_MOST_STEPS, 0, -1):
        fraction = k * (k - a) / (x - a + 2 * k + 1 - fraction)
    return _scale(a, x) / (x - a + 1 - fraction)
