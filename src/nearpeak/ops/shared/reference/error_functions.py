"""Error functions and normal quantiles in float64 NumPy."""

import math
from typing import Any

import numpy as np

from nearpeak.ops.shared.reference.quadrature import panels

erf = np.vectorize(math.erf, otypes=[float])
erfc = np.vectorize(math.erfc, otypes=[float])
_PANELS = 2
"""Panels of its integral."""
_INTEGRAL_FROM = 1.0
"""Argument from which exp(x²) erfc(x) is integrated: of x² the exponential keeps x² last places less."""
_DECAY = 40.0
"""Exponent at which its integrand is cut off."""
_TAIL_BELOW = -1.0
"""Where the logarithm of the normal distribution is taken of its scaled tail."""
_STEPS = 8
"""Steps of Newton's method; each doubles the digits."""
_ROOT_2, _ROOT_PI = math.sqrt(2), math.sqrt(math.pi)


def erfcx(x: Any) -> Any:
    """Return exp(x²) erfc(x), where x is large by the integral of erfc from x on (NIST DLMF 7.2.2).

    >>> [f"{float(erfcx(x)):.12g}" for x in (-1.0, 0.5, 100.0)]
    ['5.00898008076', '0.615690344193', '0.00564161378299']
    """
    x = np.asarray(x, float)
    large = np.where(x < _INTEGRAL_FROM, _INTEGRAL_FROM, x)[..., None]
    end = _DECAY / (large + np.sqrt(large * large + _DECAY))
    nodes, weights = panels(_PANELS)
    at = end * nodes
    integral = 2 / _ROOT_PI * (np.exp(-at * (at + 2 * large)) * weights).sum(-1) * end[..., 0]
    small = np.where(x < _INTEGRAL_FROM, x, 0.0)
    finite = np.where(x < _INTEGRAL_FROM, np.exp(small * small) * erfc(small), integral)
    return np.where(x == np.inf, 0.0, finite)


def log_ndtr(x: Any) -> Any:
    """Return the logarithm of the normal distribution, whose tails keep their digits on both sides.

    >>> [f"{float(log_ndtr(x)):.12g}" for x in (-50.0, 0.0, 8.0)]
    ['-1254.83136114', '-0.69314718056', '-6.22096057427e-16']
    """
    x = np.asarray(x, float)
    low = np.minimum(x, 0.0)
    tail = np.log(erfcx(-low / _ROOT_2) / 2) - low * low / 2
    middle = np.log(erfc(-low / _ROOT_2) / 2)
    below = np.where(low < _TAIL_BELOW, tail, middle)
    return np.where(x < 0, below, np.log1p(-erfc(x / _ROOT_2) / 2))


def ndtri(p: Any) -> Any:
    """Return the quantile of the normal distribution: x below which the share p lies.

    >>> [f"{float(ndtri(p)):.12g}" for p in (1e-300, 0.1, 0.5, 0.975, 1.0)]
    ['-37.0470962994', '-1.28155156554', '0', '1.95996398454', 'inf']
    """
    p = np.asarray(p, float)
    low = np.where(p < 0.5, p, 1 - p)
    x = np.where(p < 0.5, 1.0, -1.0) * _lower_quantile(np.where((low > 0) & (low < 0.5), low, 0.25))
    inside = np.where(p == 0.5, 0.0, np.where(p == 0, -np.inf, np.where(p == 1, np.inf, x)))
    return np.where((p >= 0) & (p <= 1), inside, np.nan)


def erfinv(y: Any) -> Any:
    """Return x with erf(x) = y: near 0 by Newton's method, near 1 and -1 as a quantile.

    >>> [f"{float(erfinv(y)):.12g}" for y in (1e-10, -0.5, 1 - 1e-12, 1.0)]
    ['8.86226925453e-11', '-0.476936276204', '5.04203189857', 'inf']
    """
    y = np.asarray(y, float)
    x = inner = np.where(np.abs(y) < _INNER, y, 0.0)
    for _ in range(_STEPS):
        x = x - (erf(x) - inner) * _ROOT_PI / 2 * np.exp(x * x)
    outer = np.copysign(ndtri((1 - np.abs(y)) / 2) / _ROOT_2, y)
    return np.where(np.abs(y) < _INNER, x, np.where(np.abs(y) <= 1, outer, np.nan))


_INNER = 0.5
"""Up to where erf itself keeps the digits of its argument."""


def _lower_quantile(p: Any) -> Any:
    """Return the quantile of shares below a half, by Newton's method on the logarithm.

    It starts from an approximation to 0.0005 (Abramowitz and Stegun 1964, 26.2.23).
    """
    t = np.sqrt(-2 * np.log(p))
    x = (2.515517 + t * (0.802853 + t * 0.010328)) / (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))) - t
    for _ in range(_STEPS):
        # The derivative of the logarithm is the inverse of what erfcx is a multiple of.
        x = x - (log_ndtr(x) - np.log(p)) * erfcx(-x / _ROOT_2) * math.sqrt(math.pi / 2)
    return x
