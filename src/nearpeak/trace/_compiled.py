"""Compiles loops over bytes and events to machine code, once for each machine, kept in the user's cache folder."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import platformdirs

F = TypeVar("F", bound=Callable[..., Any])

numba.config.CACHE_DIR = platformdirs.user_cache_dir("nearpeak")


def compiled(function: F) -> F:
    """Return `function` compiled; arithmetic is on integers, so nothing is relaxed."""
    return cast(F, numba.njit(cache=True, error_model="numpy", boundscheck=False)(function))


def unowned(function: F) -> F:
    """Return `function` compiled without counting references to its arrays, which costs more than small work does.

    It may not make arrays; its callers hold those that it is given.
    """
    return cast(F, numba.njit(cache=True, error_model="numpy", boundscheck=False, _nrt=False)(function))
