"""Just-in-time compilation of inner loops with Numba, cached in the user's cache folder."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import llvmlite.binding
import numba
from numba.extending import intrinsic

from nearpeak.base.folders import cache_folder

F = TypeVar("F", bound=Callable[..., Any])


def _is_writable(folder: Path) -> bool:
    """Return whether files can be written to a folder, which is created if needed."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


# An installation may be read-only, and several may share a machine: numba adds the path of the source file itself.
numba.config.CACHE_DIR = str(cache_folder())
_KEPT = _is_writable(Path(numba.config.CACHE_DIR))
"""Whether machine code is cached on disk; without a writable folder each process compiles its own."""


def processor() -> str:
    """Return the name of the processor, on which the last digits of some functions depend."""
    return str(llvmlite.binding.get_host_cpu_name())


def compiled(function: F) -> F:
    """Return a formula as machine code, compiled at its first call and cached for later processes."""
    return cast(F, numba.njit(cache=_KEPT, fastmath={"nsz", "arcp", "contract", "afn"}, error_model="numpy")(function))


def compiled_as_written(function: F) -> F:
    """Return a formula as machine code without fast-math: every operation is rounded as written.

    A single row then gives the same result as among many rows, which fill the vector units.
    """
    return cast(F, numba.njit(cache=_KEPT, error_model="numpy")(function))


@intrinsic  # type: ignore[untyped-decorator]  # numba is untyped here
def fused(_context: Any, x: Any, y: Any, z: Any) -> Any:
    """Return x * y + z, rounded once."""

    def code(_target: Any, builder: Any, _signature: Any, values: Any) -> Any:
        return builder.fma(*values)

    return numba.float64(x, y, z), code


def compiled_sums(function: F) -> F:
    """Return loops of sums as machine code that may reorder the sums to fill the vector units."""
    return cast(F, numba.njit(cache=_KEPT, fastmath={"nsz", "arcp", "contract", "reassoc"})(function))


def compiled_exactly(function: F, *, owned: bool = True) -> F:
    """Return loops over bytes and integers as machine code, without bounds checks.

    Args:
        owned: whether the code counts references to its arrays, which costs more than small work does; without it, the
            code must not create arrays, and its callers must hold those that it receives.
    """
    return cast(F, numba.njit(cache=_KEPT, error_model="numpy", boundscheck=False, _nrt=owned)(function))
