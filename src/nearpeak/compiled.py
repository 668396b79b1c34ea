"""Compiles inner loops once per machine; the result is kept in the user's cache folder, never beside the code."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import platformdirs

F = TypeVar("F", bound=Callable[..., Any])

# An installation may be read-only, and several may share a machine: numba adds the path of the source file itself.
numba.config.CACHE_DIR = platformdirs.user_cache_dir("nearpeak")


def compiled(function: F) -> F:
    """Return a formula as machine code, compiled at its first call and kept for later processes."""
    return cast(F, numba.njit(cache=True, fastmath={"nsz", "arcp", "contract", "afn"}, error_model="numpy")(function))


def compiled_sums(function: F) -> F:
    """Return the same of loops that add up: sums may be taken in any order, so that they fill the vector units."""
    return cast(F, numba.njit(cache=True, fastmath={"nsz", "arcp", "contract", "reassoc"})(function))


def compiled_exactly(function: F, *, owned: bool = True) -> F:
    """Return the same of loops over bytes and whole numbers, without checks of indices.

    Args:
        owned: whether it counts references to its arrays, which costs more than small work does; without that it may
            make none, and its callers hold those that it is given.
    """
    return cast(F, numba.njit(cache=True, error_model="numpy", boundscheck=False, _nrt=owned)(function))
