"""References of special functions agree with mpmath, small, large and beside their zeros."""

import numpy as np
import pytest

from nearpeak.ops.shared.reference.special_functions import SPECIAL

mp = pytest.importorskip("mpmath")

EVERYWHERE = np.concatenate([np.logspace(-12, 2.7, 60), np.linspace(0.05, 30, 67)])
FEWER = EVERYWHERE[::4]
"""Of what mpmath computes slowly."""
BOTH = np.concatenate([-EVERYWHERE, EVERYWHERE])
BELOW_ONE = np.concatenate([np.logspace(-14, -0.01, 50), 1 - np.logspace(-12, -0.31, 30)])
CASES = {
    "i0": (lambda x: mp.besseli(0, x), BOTH), "i1": (lambda x: mp.besseli(1, x), BOTH),
    "i0e": (lambda x: mp.besseli(0, x) * mp.exp(-abs(x)), BOTH),
    "i1e": (lambda x: mp.besseli(1, x) * mp.exp(-abs(x)), BOTH),
    "j0": (lambda x: mp.besselj(0, x), BOTH), "j1": (lambda x: mp.besselj(1, x), BOTH),
    "y0": (lambda x: mp.bessely(0, x), EVERYWHERE), "y1": (lambda x: mp.bessely(1, x), EVERYWHERE),
    "k0": (lambda x: mp.besselk(0, x), FEWER), "k1": (lambda x: mp.besselk(1, x), FEWER),
    "k0e": (lambda x: mp.besselk(0, x) * mp.exp(x), FEWER),
    "k1e": (lambda x: mp.besselk(1, x) * mp.exp(x), FEWER),
    "airy": (mp.airyai, np.concatenate([np.linspace(-60, 12, 145), np.logspace(-9, 1, 20), -np.logspace(-9, 1, 20)])),
    "digamma": (lambda x: mp.psi(0, x), np.concatenate([EVERYWHERE, np.linspace(-7.43, 3.1, 106)])),
    "trigamma": (lambda x: mp.psi(1, x), EVERYWHERE),
    "lgamma": (lambda x: mp.log(abs(mp.gamma(x))), np.concatenate([EVERYWHERE, np.linspace(0.4, 2.6, 45)])),
    "erfcx": (lambda x: mp.exp(x * x) * mp.erfc(x), np.concatenate([EVERYWHERE, -np.linspace(0.01, 20, 40)])),
    "erfinv": (mp.erfinv, np.concatenate([BELOW_ONE, -BELOW_ONE])),
    "ndtri": (lambda p: -mp.sqrt(2) * mp.erfinv(1 - 2 * p), BELOW_ONE),
    "log_ndtr": (
        lambda x: mp.log1p(-mp.erfc(x / mp.sqrt(2)) / 2) if x > 0 else mp.log(mp.erfc(-x / mp.sqrt(2)) / 2),
        np.concatenate([-EVERYWHERE, np.linspace(0, 30, 91)]),
    ),
    "sigmoid": (lambda x: 1 / (1 + mp.exp(-x)), BOTH),
}  # fmt: skip
"""By name in formulas: what mpmath computes, and where."""
SHAPES = (0.1, 0.5, 1.0, 3.3, 20.0)
ULP = 2.0**-52


def asked(wanted, x):
    """Return the value, and by how much a last place of the argument moves it."""
    with mp.workdps(60):
        point = mp.mpf(float(x))
        value = wanted(point)
        step = mp.mpf(2) ** -40 * point
        return value, abs(wanted(point + step) - value) * mp.mpf(2) ** -12


@pytest.mark.parametrize("name", CASES)
def test_references_keep_all_digits_wherever_they_are_asked(name):
    wanted, points = CASES[name]
    with np.errstate(all="ignore"):
        found = SPECIAL[name](points)
    for x, got in zip(points, found, strict=True):
        value, moved = asked(wanted, x)
        if 1e-300 < abs(value) < 1e300:
            assert abs(mp.mpf(float(got)) - value) <= 4 * ULP * abs(value) + 2 * moved + 2e-16 * _waves(name), x


def _waves(name):
    """Return the size of waves: beside their zeros, no way to add them up keeps digits."""
    return 1.0 if name in ("j0", "j1", "y0", "y1", "airy") else 0.0


@pytest.mark.parametrize(("name", "upper"), [("igamma", False), ("igammac", True)])
def test_incomplete_gamma_functions_keep_the_digits_of_small_shares(name, upper):
    for a in SHAPES:
        points = np.concatenate([np.logspace(-6, 2, 33), np.linspace(a, a + 3, 7)])
        for x, got in zip(points, SPECIAL[name](a, points), strict=True):
            ends = (x, mp.inf) if upper else (0, x)
            value = mp.gammainc(a, *ends, regularized=True)
            if abs(value) > 1e-300:
                size = 1 + a + x + abs(a * np.log(x))
                assert abs(mp.mpf(float(got)) - value) <= 4 * ULP * size * abs(value) + (1e-15 if value > 0.01 else 0)


@pytest.mark.parametrize(
    ("name", "x", "wanted"),
    [
        ("y1", 0.0, -np.inf), ("k1", 0.0, np.inf), ("k0e", np.inf, 0.0), ("i1e", -np.inf, 0.0),
        ("airy", np.nan, np.nan),
        ("digamma", -3.0, np.nan), ("digamma", 0.0, -np.inf), ("lgamma", -np.inf, np.inf), ("erfcx", np.inf, 0.0),
        ("erfinv", -1.0, -np.inf), ("ndtri", 1.5, np.nan), ("log_ndtr", -np.inf, -np.inf),
    ],
)  # fmt: skip
def test_ends_and_poles_are_those_of_libraries(name, x, wanted):
    with np.errstate(all="ignore"):
        assert np.array_equal(SPECIAL[name](np.array([x])), [wanted], equal_nan=True)
