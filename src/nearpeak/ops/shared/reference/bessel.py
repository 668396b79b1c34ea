"""Bessel and Airy functions in float64 NumPy: power series, integrals and asymptotic expansions."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from nearpeak.ops.shared.reference.quadrature import panels

SERIES_BELOW, Y_SERIES_BELOW, K_SERIES_BELOW = 2.0, 4.0, 0.5
"""Arguments up to which power series lose nothing to cancellation: of J and I, of Y, of K."""
WAVES_FROM, GROWTH_FROM = 40.0, 100.0
"""Arguments from which asymptotic expansions are exact to the last place: of J and Y, of I and K."""
_TERMS, _EXPANDED = 24, 16
"""Terms of power series, and of asymptotic expansions."""
_PANELS = 4
"""Panels of integrals of waves."""
_CIRCLE = (np.arange(256) + 0.5) * (math.pi / 256)
_HALF_LINE = np.linspace(0.0, 9.0, 1601)
"""Hyperbolic integrands decay twice exponentially: the trapezoid rule needs no more."""
_LINE_END = 4.2
"""Where exp(-x sinh t) is below e^-60, for arguments x from 1.8 on."""


def bessel_j(order: int, x: Any) -> Any:
    """Return the Bessel function of the first kind (NIST DLMF 10.2.2, 10.9.2, 10.17.3), of order 0 or 1.

    >>> [f"{float(bessel_j(1, x)):.12g}" for x in (1e-8, 2.5, 1000.0)]
    ['5e-09', '0.497094102464', '0.00472831190709']
    """
    x = np.asarray(x, float)
    return _pieces(
        np.abs(x),
        (SERIES_BELOW, WAVES_FROM),
        lambda at: _powers(order, x[at], -1.0),
        lambda at: np.cos(order * _CIRCLE - x[at][..., None] * np.sin(_CIRCLE)).mean(-1),
        lambda at: np.where(x[at] < 0, (-1.0) ** order, 1.0) * _waves(order, np.abs(x[at]), np.cos, np.sin, -1.0),
    )


def bessel_y(order: int, x: Any) -> Any:
    """Return the Bessel function of the second kind (NIST DLMF 10.8.1, 10.9.7, 10.17.4), of order 0 or 1, x above 0.

    >>> [f"{float(bessel_y(0, x)):.12g}" for x in (1e-8, 0.9, 1000.0)]
    ['-11.8007738772', '0.00562830663521', '0.00471591797762']
    """
    x = np.asarray(x, float)

    def series(at: Any) -> Any:
        first = -2 / (math.pi * np.abs(x[at])) if order else 0.0
        log = 2 / math.pi * _times_log(bessel_j(order, x[at]), x[at])
        return first + log - _harmonic(order, x[at], -1.0) / math.pi

    return _pieces(
        x,
        (Y_SERIES_BELOW, WAVES_FROM),
        series,
        lambda at: _y_integral(order, x[at][..., None]),
        lambda at: _waves(order, x[at], np.sin, np.cos, 1.0),
    )


def bessel_i(order: int, x: Any, *, scaled: bool = False) -> Any:
    """Return the modified function of the first kind (NIST DLMF 10.25.2, 10.32.3, 10.40.1), of order 0 or 1.

    Args:
        scaled: times exp(-|x|).

    >>> [f"{float(bessel_i(1, x, scaled=True)):.12g}" for x in (1e-8, 3.0, 1e4)]
    ['4.99999995e-09', '0.196826713297', '0.00398927319598']
    """
    x = np.asarray(x, float)
    size = np.abs(x)
    sign = np.where(x < 0, (-1.0) ** order, 1.0)

    def integral(at: Any) -> Any:
        round_ = size[at][..., None]
        return (np.exp(round_ * (np.cos(_CIRCLE) - 1.0)) * np.cos(order * _CIRCLE)).mean(-1) * shown(round_[..., 0])

    def shown(of: Any) -> Any:
        return 1.0 if scaled else np.exp(of)

    magnitude = _pieces(
        size,
        (SERIES_BELOW, GROWTH_FROM),
        lambda at: _powers(order, size[at], 1.0) * (np.exp(-size[at]) if scaled else 1.0),
        integral,
        lambda at: (
            sum((-1) ** k * term for k, term in enumerate(_expansion(order, size[at])))
            / np.sqrt(2 * math.pi * size[at])
            * shown(size[at])
        ),
    )
    return sign * magnitude


def bessel_k(order: float, x: Any, *, scaled: bool = False) -> Any:
    """Return the modified function of the second kind (NIST DLMF 10.31.1, 10.32.9, 10.40.2), x above 0.

    Args:
        order: 0, 1, or, for x from K_SERIES_BELOW on, any.
        scaled: times exp(x).

    >>> [f"{float(bessel_k(0, x)):.12g}" for x in (1e-8, 0.7, 20.0)]
    ['18.5366122596', '0.660519859915', '5.74123781534e-10']
    """
    x = np.asarray(x, float)

    def series(at: Any) -> Any:
        whole = int(order)
        first = 1 / np.abs(x[at]) if whole else 0.0
        log = (-1.0) ** (whole + 1) * _times_log(_powers(whole, x[at], 1.0), x[at])
        total = first + log + (-1.0) ** whole * _harmonic(whole, x[at], 1.0) / 2
        return total * (np.exp(x[at]) if scaled else 1.0)

    def integral(at: Any) -> Any:
        grown = np.cosh(_HALF_LINE) - (1.0 if scaled else 0.0)
        return np.trapezoid(np.exp(-x[at][..., None] * grown) * np.cosh(order * _HALF_LINE), _HALF_LINE, axis=-1)

    def expanded(at: Any) -> Any:
        shown = 1.0 if scaled else np.exp(-x[at])
        return np.sqrt(math.pi / (2 * x[at])) * sum(_expansion(order, x[at])) * shown

    return _pieces(
        x,
        (K_SERIES_BELOW, GROWTH_FROM),
        series,
        integral,
        expanded,
    )


def airy(x: Any) -> Any:
    """Return Ai(x), by K and J of order 1/3 (NIST DLMF 9.6.2, 9.6.6) and near 0 by its series (9.4.1).

    >>> [f"{float(airy(x)):.12g}" for x in (0.0, 3.0, -7.5, -1e3)]
    ['0.355028053888', '0.00659113935746', '0.321775716381', '0.0559718957731']
    """
    x = np.asarray(x, float)
    return _pieces(
        x,
        (_AIRY_WAVES, -2.0, 1.0),
        lambda at: _airy_waves(-x[at]),
        lambda at: _airy_integral(-x[at]),
        lambda at: _airy_series(x[at]),
        lambda at: np.sqrt(x[at] / 3) / math.pi * bessel_k(1 / 3, 2 / 3 * x[at] ** 1.5),
    )


_AIRY_WAVES = -15.0
"""Argument below which Ai is taken from its expansion."""


def _pieces(by: Any, ends: Sequence[float], *parts: Callable[[Any], Any]) -> Any:
    """Return what each part gives for the elements between its ends; the last one is for NaN too."""
    by = np.asarray(by)
    number = np.where(np.isnan(by), len(ends), np.searchsorted(np.asarray(ends), by, side="right"))
    values = np.full(by.shape, np.nan)
    with np.errstate(all="ignore"):
        for place, part in enumerate(parts):
            at = number == place
            if np.any(at):
                values[at] = part(at)
    return values


def _powers(order: int, x: Any, sign: float) -> Any:
    """Return the sum of sign^k (x/2)^(2k + order) / (k! (k + order)!)."""
    term = total = (x / 2) ** order / math.factorial(order)
    for k in range(1, _TERMS):
        term = term * (sign * x * x / 4) / (k * (k + order))
        total = total + term
    return total


def _expansion(order: float, x: Any) -> Iterator[Any]:
    """Yield the terms a_k(order) / x^k (NIST DLMF 10.17.1)."""
    term = np.ones_like(x)
    for k in range(1, _EXPANDED + 1):
        yield term
        term = term * (4 * order * order - (2 * k - 1) ** 2) / (8 * k * x)


def _waves(order: int, x: Any, even: Any, odd: Any, sign: float) -> Any:
    """Return the expansion of J (cosine, sine, -1) or Y (sine, cosine, 1) for large x."""
    phase = x - order * math.pi / 2 - math.pi / 4
    terms = list(_expansion(order, x))
    evens = sum((-1) ** k * term for k, term in enumerate(terms[::2]))
    odds = sum((-1) ** k * term for k, term in enumerate(terms[1::2]))
    return np.sqrt(2 / (math.pi * x)) * (even(phase) * evens + sign * odd(phase) * odds)


def _times_log(factor: Any, x: Any) -> Any:
    """Return the factor times the logarithm of x/2 and Euler's constant; of a factor that is 0 where x is, 0."""
    return np.where(factor == 0, 0.0, factor * (np.log(x / 2) + np.euler_gamma))


def _harmonic(order: int, x: Any, sign: float) -> Any:
    """Return the sum of sign^k (H_k + H_(k + order)) (x/2)^(2k + order) / (k! (k + order)!), H_k harmonic numbers."""
    term = (x / 2) ** order / math.factorial(order)
    low, high = 0.0, float(order)
    total = (low + high) * term
    for k in range(1, _TERMS):
        term = term * (sign * x * x / 4) / (k * (k + order))
        low, high = low + 1 / k, high + 1 / (k + order)
        total = total + (low + high) * term
    return total


def _y_integral(order: int, x: Any) -> Any:
    nodes, weights = panels(_PANELS)
    angle = math.pi * nodes
    round_ = (np.sin(x * np.sin(angle) - order * angle) * weights).sum(-1)
    line = _LINE_END * nodes
    growth = (np.exp(order * line) + (-1) ** order * np.exp(-order * line)) * weights * _LINE_END
    return round_ - (growth * np.exp(-x * np.sinh(line))).sum(-1) / math.pi


def _airy_series(x: Any) -> Any:
    even = odd = first = second = np.ones_like(x)
    for k in range(1, _TERMS):
        even, odd = even * x**3 / ((3 * k - 1) * 3 * k), odd * x**3 / (3 * k * (3 * k + 1))
        first, second = first + even, second + odd
    at_zero, slope = 3 ** (-2 / 3) / math.gamma(2 / 3), -(3 ** (-1 / 3)) / math.gamma(1 / 3)
    return at_zero * first + slope * x * second


def _airy_integral(size: Any) -> Any:
    """Return Ai(-size) by the integrals of J of orders 1/3 and -1/3 (NIST DLMF 9.6.6, 10.9.6)."""
    z = (2 / 3 * size**1.5)[..., None]
    nodes, weights = panels(_PANELS)
    angle = math.pi * nodes
    round_ = (np.cos(angle / 3) * np.cos(z * np.sin(angle)) * weights).sum(-1)
    line = _LINE_END * nodes
    growth = np.exp(-z * np.sinh(line)) * np.sinh(line / 3) * weights * _LINE_END
    return np.sqrt(size) / 3 * (2 * round_ + 2 * math.sin(math.pi / 3) / math.pi * growth.sum(-1))


def _airy_waves(size: Any) -> Any:
    """Return Ai(-size) for large sizes (NIST DLMF 9.7.9)."""
    z = 2 / 3 * size**1.5
    terms = [np.ones_like(z)]
    for k in range(1, _EXPANDED):
        terms.append(terms[-1] * (6 * k - 5) * (6 * k - 3) * (6 * k - 1) / ((2 * k - 1) * 216 * k * z))
    evens = sum((-1) ** k * term for k, term in enumerate(terms[::2]))
    odds = sum((-1) ** k * term for k, term in enumerate(terms[1::2]))
    phase = z - math.pi / 4
    return (np.cos(phase) * evens + np.sin(phase) * odds) / (math.sqrt(math.pi) * size**0.25)
