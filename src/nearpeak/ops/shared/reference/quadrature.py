"""Gauss-Legendre quadrature on the interval from 0 to 1."""

from collections.abc import Iterator
from decimal import Decimal, localcontext
from functools import cache
from typing import Any

import numpy as np

_DEGREE = 32
"""Nodes of a panel."""
_DIGITS = 40
"""Decimal digits in which weights are computed: NumPy's are off by up to hundreds of last places."""


@cache
def panels(count: int) -> tuple[Any, Any]:
    """Return nodes and weights of Gauss and Legendre's rule on `count` equal panels.

    >>> nodes, weights = panels(2)
    >>> round(float((nodes**9 * weights).sum()), 16)
    0.1
    """
    node, weight = np.array(list(_rule())).T
    nodes = (np.arange(count)[:, None] + (node + 1) / 2) / count
    return nodes.reshape(-1), np.tile(weight / (2 * count), count)


def _rule() -> Iterator[tuple[float, float]]:
    """Yield nodes and weights on the line from -1 to 1, rounded once (NIST DLMF, section 3.5(v))."""
    with localcontext() as context:
        context.prec = _DIGITS
        for start in np.polynomial.legendre.leggauss(_DEGREE)[0]:
            node = Decimal(float(start))
            value, slope = _legendre(node)
            node -= value / slope
            slope = _legendre(node)[1]
            yield float(node), float(2 / ((1 - node * node) * slope * slope))


def _legendre(x: Decimal) -> tuple[Decimal, Decimal]:
    """Return Legendre's polynomial of degree _DEGREE and its derivative (NIST DLMF, section 18.9)."""
    before, now = Decimal(1), x
    for k in range(1, _DEGREE):
        before, now = now, ((2 * k + 1) * x * now - k * before) / (k + 1)
    return now, _DEGREE * (x * now - before) / (x * x - 1)
