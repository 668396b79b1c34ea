"""Compiles loops over series to machine code, once for each machine, kept in the user's cache folder."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import platformdirs

F = TypeVar("F", bound=Callable[..., Any])

numba.config.CACHE_DIR = platformdirs.user_cache_dir("nearpeak")


def compiled(function: F) -> F:
    """Return `function` compiled; sums may be taken in any order, so that they fill the vector units."""
    return cast(F, numba.njit(cache=True, fastmath={"nsz", "arcp", "contract", "reassoc"})(function))
