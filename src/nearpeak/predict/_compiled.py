"""Compiles inner loops once per machine; the result is kept in the user's cache folder, never beside the code."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import platformdirs

F = TypeVar("F", bound=Callable[..., Any])

# An installation may be read-only, and several may share a machine: numba adds the path of the source file itself.
numba.config.CACHE_DIR = platformdirs.user_cache_dir("nearpeak")


def compiled(function: F) -> F:
    """Return `function` as machine code, compiled at its first call and kept for later processes."""
    return cast(F, numba.njit(cache=True, fastmath={"nsz", "arcp", "contract", "afn"}, error_model="numpy")(function))
