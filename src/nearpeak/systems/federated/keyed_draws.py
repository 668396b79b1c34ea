"""Random numbers by client and round: equal for equal names, in whatever order or policy they are asked for."""

import hashlib

import numpy as np
import numpy.typing as npt

Keys = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float64]
SELECTION, COMPUTE, COMPUTE_ANGLE, PRESENCE, PRESENCE_START = range(1, 6)
"""Purposes of draws; each has numbers of its own."""
_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""Constants of SplitMix64. Source: Steele, Lea and Flood 2014, "Fast splittable pseudorandom number generators"."""
_MASK = (1 << 64) - 1


def client_keys(names: tuple[str, ...], counts: tuple[int, ...]) -> Keys:
    """Return a key for each client, by the name of its group and its number in it.

    >>> client_keys(("a", "b"), (2, 1)).tolist()[2:] == client_keys(("b",), (1,)).tolist()
    True
    """
    keys = []
    for name, count in zip(names, counts, strict=True):
        start = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
        keys.append(_mixed((np.arange(count, dtype=np.uint64) + np.uint64(1)) * np.uint64(_STEP) + np.uint64(start)))
    return np.concatenate(keys)


def uniform(keys: Keys, seed: int, purpose: int, count: int | npt.NDArray[np.int64] = 0) -> Floats:
    """Return a number between 0 and 1, both left out, for each client.

    Args:
        purpose: purpose of the draw, one of the constants above.
        count: number of the round, or of the draw of each client.

    >>> keys = client_keys(("a",), (100_000,))
    >>> draws = uniform(keys, 0, SELECTION, 7)
    >>> bool(abs(draws.mean() - 0.5) < 0.005), bool(abs(draws.std() - 12 ** -0.5) < 0.005)
    (True, True)
    """
    salt = np.uint64(((seed * 8 + purpose) * _STEP) & _MASK)
    place = np.asarray(count).astype(np.uint64) * np.uint64(_FIRST)
    bits = _mixed(_mixed(keys ^ salt) + place)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53 + 2.0**-54


def log_normal(keys: Keys, seed: int, count: int, spread: Floats) -> Floats:
    """Return a factor of mean 1 for each client whose standard deviation is `spread`.

    >>> keys = client_keys(("a",), (200_000,))
    >>> factors = log_normal(keys, 0, 3, np.full(200_000, 0.3))
    >>> round(float(factors.mean()), 2), round(float(factors.std()), 2)
    (1.0, 0.3)
    """
    radius = np.sqrt(-2.0 * np.log(uniform(keys, seed, COMPUTE, count)))
    normal = radius * np.cos(2.0 * np.pi * uniform(keys, seed, COMPUTE_ANGLE, count))
    variance = np.log1p(spread * spread)
    factors: Floats = np.exp(np.sqrt(variance) * normal - variance / 2)
    return factors


def _mixed(bits: Keys) -> Keys:
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(_FIRST)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(_SECOND)
    return bits ^ (bits >> np.uint64(31))
