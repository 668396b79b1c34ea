"""Inner loops that run as plain Python for little work and as machine code, compiled by Numba, for much."""

import ctypes
import dis
import hashlib
import logging
import math
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from fractions import Fraction
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from nearpeak.base.folders import cache_folder, is_private
from nearpeak.errors import MissingExtraError

_LOG = logging.getLogger(__name__)
_PROBE_BYTES = 4096
ALWAYS_COMPILED = 0
"""As a count of items: loops that never run as plain Python."""
LOOP_ITEMS = 200_000
"""Rows of simple loops that plain Python takes about 0.2 s for, less than compiling does."""


def length(first: Any, *_others: Any) -> int:
    """Return the items of a call: the length of its first argument, 1 for a number."""
    return len(first) if hasattr(first, "__len__") else 1


class Kernel:
    """Plain Python for the first items that a process meets, then machine code of the same loops.

    Plain Python and machine code give the same result to the last bit, but for sums that may be reordered. Plain Python
    receives arrays as lists, whose numbers cost a fifth, and what it writes into them is copied back. Without Numba,
    plain Python goes on.
    """

    def __init__(
        self, function: Callable[..., Any], plain_items: int, options: Mapping[str, Any],
        items: Callable[..., int] = length,
    ) -> None:  # fmt: skip
        """Keep the function; nothing is imported or compiled before it is called."""
        self.function, self.plain_items, self.options, self.items = function, plain_items, options, items
        self.item_count = 0
        self.__name__, self.__doc__ = function.__name__, function.__doc__

    def __call__(self, *arguments: Any) -> Any:
        """Call the plain function or its machine code."""
        if self.plain_items == ALWAYS_COMPILED or not self.is_plain_for(self.items(*arguments)):
            return self.machine_code(*arguments)
        return self._call_plain(arguments)

    def is_plain_for(self, item_count: int) -> bool:
        """Count the items of a call, and return whether it is to run as plain Python."""
        self.item_count += item_count
        return not has_compiler() or (self.item_count <= self.plain_items and not _PROCESS.is_long_lived)

    def _call_plain(self, arguments: tuple[Any, ...]) -> Any:
        listed = [_listed(value) for value in arguments]
        try:
            result = self.plain(*listed)
        except ZeroDivisionError:  # of NumPy's numbers it is infinite, as of machine code's
            with np.errstate(all="ignore"):
                return self.plain(*(np.float64(value) if isinstance(value, float) else value for value in arguments))
        for value, written in zip(arguments, listed, strict=True):
            if isinstance(value, np.ndarray) and value.size and value.flags.writeable:
                value[...] = written
        return result

    @cached_property
    def plain(self) -> Callable[..., Any]:
        """Return the function, linked to the plain functions of the kernels that it calls."""
        return _linked(self.function, lambda kernel: kernel.plain)

    @cached_property
    def machine_code(self) -> Callable[..., Any]:
        """Return the function, compiled at its first call and linked to machine code of the kernels that it calls.

        Raises:
            MissingExtraError: Numba is not installed.
        """
        if not has_compiler():
            raise MissingExtraError(f"{self.__name__}: these loops must be compiled; install nearpeak[speed]")
        linked = _linked(self.function, lambda kernel: kernel.machine_code)
        code: Callable[..., Any] = _compiler()(error_model="numpy", **self.options)(linked)
        return code


def _listed(value: Any) -> Any:
    """Return an array, also one in a tuple, as a list."""
    if isinstance(value, tuple) and any(isinstance(part, np.ndarray) for part in value):
        return tuple(map(_listed, value))
    return value.tolist() if isinstance(value, np.ndarray) else value


def _linked(function: Callable[..., Any], link: Callable[[Any], Callable[..., Any]]) -> Callable[..., Any]:
    """Return a copy of a function in whose global names each kernel stands as `link` gives it."""
    assert isinstance(function, FunctionType)
    used = _global_names(function.__code__)
    names = {
        name: link(value) if isinstance(value, Kernel) and name in used else value
        for name, value in function.__globals__.items()
    }
    copy = FunctionType(function.__code__, names, function.__name__, function.__defaults__, function.__closure__)
    copy.__qualname__, copy.__kwdefaults__ = function.__qualname__, function.__kwdefaults__
    return copy


def _global_names(code: CodeType) -> set[str]:
    """Return the global names that a function and the functions inside it look up."""
    names = {instruction.argval for instruction in dis.get_instructions(code) if instruction.opname == "LOAD_GLOBAL"}
    return names.union(*(_global_names(constant) for constant in code.co_consts if isinstance(constant, CodeType)))


def code_digest(function: Callable[..., Any]) -> str:
    """Return a digest of what a function compiles to: its code, the constants that it names, the kernels that it calls.

    Machine code of a caller contains that of what it calls, so that it is stale when any of it changes.
    """
    digest, pending, known = hashlib.sha256(), [function], set()
    while pending:
        current = pending.pop()
        if current in known:
            continue
        known.add(current)
        assert isinstance(current, FunctionType)
        for name in sorted(_digest_code(digest, current.__code__)):
            value: Any = current.__globals__.get(name)
            if isinstance(value, (int, float, str)):
                digest.update(f"{name}={value!r};".encode())
            elif isinstance(value, Kernel):
                pending.append(value.function)
            elif isinstance(getattr(value, "py_func", None), FunctionType):
                pending.append(value.py_func)
    return digest.hexdigest()


def _digest_code(digest: Any, code: CodeType) -> set[str]:
    """Add code and its constants to a digest; return the names that it looks up, those of attributes included."""
    names = set(code.co_names)
    digest.update(code.co_code)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _digest_code(digest, constant)
        else:
            parts = sorted(map(repr, constant)) if isinstance(constant, frozenset) else [repr(constant)]
            digest.update(";".join(parts).encode())
    return names


def compiled(plain_items: int = LOOP_ITEMS, *, items: Callable[..., int] = length) -> Callable[..., Kernel]:
    """Return the decorator of a formula of which every operation is rounded as written.

    Machine code then gives what plain Python does, and a row by itself the same as among many in vector units.

    Args:
        plain_items: items up to which plain Python takes less time than compiling does.
        items: gives the items of a call from its arguments.
    """
    return lambda function: Kernel(function, plain_items, {}, items)


def compiled_sums(plain_items: int = LOOP_ITEMS, *, items: Callable[..., int] = length) -> Callable[..., Kernel]:
    """Return the decorator of loops of sums, which machine code may reorder to fill the vector units."""
    return lambda function: Kernel(function, plain_items, {"fastmath": {"nsz", "arcp", "contract", "reassoc"}}, items)


def compiled_exactly(plain_items: int = LOOP_ITEMS, *, owned: bool = True) -> Callable[..., Kernel]:
    """Return the decorator of loops over bytes and integers, as machine code without bounds checks.

    Args:
        owned: whether the code counts references to its arrays, which costs more than small work does; without it, the
            code must not create arrays, and its callers must hold those that it receives.
    """
    return lambda function: Kernel(function, plain_items, {"boundscheck": False, "_nrt": owned})


class _Process:
    """What is known of this process."""

    is_long_lived = False


_PROCESS = _Process()


def compile_at_first_call() -> None:
    """Run everything as machine code from now on, as a server does that answers for days."""
    _PROCESS.is_long_lived = True


@cache
def has_compiler() -> bool:
    """Return whether Numba is installed (extra `speed`)."""
    return find_spec("numba") is not None


@cache
def _compiler() -> Callable[..., Any]:
    """Return Numba's decorator, caching in the user's folder: an installation may be read-only and shared."""
    import numba  # 0.4 s
    from numba.core import event

    class Log(event.Listener):  # type: ignore[misc]  # numba is untyped
        is_first = True

        def on_start(self, _event: Any) -> None:
            if self.is_first:
                _LOG.info("compiling once for this machine, 2 to 15 s; later runs start at once")
            self.is_first = False

        def on_end(self, _event: Any) -> None:
            pass

    event.register("numba:compile", Log())
    numba.config.CACHE_DIR = str(cache_folder())
    is_kept = _is_writable(cache_folder())  # else each process compiles its own

    def compile_later(**options: Any) -> Callable[[Any], Any]:
        return lambda function: _kept(numba.njit(**options)(function)) if is_kept else numba.njit(**options)(function)

    return compile_later


def _kept(dispatcher: Any) -> Any:
    """Return a function of Numba that keeps its code on disk, and works without: damaged, unreadable, or full."""
    from numba.core.caching import FunctionCache

    digest = code_digest(dispatcher.py_func)

    class Cache(FunctionCache):  # type: ignore[misc]  # numba is untyped
        def _index_key(self, sig: Any, codegen: Any) -> Any:
            return (*super()._index_key(sig, codegen), digest)  # numba's own knows nothing of functions that are called

        def load_overload(self, sig: Any, target_context: Any) -> Any:
            with suppress(Exception):  # what a damaged file of pickles raises is not stated anywhere
                return super().load_overload(sig, target_context)
            return None

        def save_overload(self, sig: Any, data: Any) -> None:
            with suppress(Exception):
                super().save_overload(sig, data)

    with suppress(RuntimeError):  # Numba finds no place for it
        dispatcher._cache = Cache(dispatcher.py_func)
    return dispatcher


def _is_writable(folder: Path) -> bool:
    """Return whether files can be written to a folder, created if needed, and by this user alone: numba runs them."""
    if not is_private(folder):
        return False
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(_PROBE_BYTES))  # a full disk still makes names
            file.flush()
            return True
    except OSError:
        return False


class _Replaced(Kernel):
    """A kernel whose plain function is another than that which is compiled."""

    def __init__(self, function: Callable[..., Any], plain: Callable[..., Any]) -> None:
        super().__init__(function, LOOP_ITEMS, {})
        self._plain = plain

    @cached_property
    def plain(self) -> Callable[..., Any]:
        return self._plain


class _Fused(_Replaced):
    """Multiplication and addition in one rounding: an instruction of the processor, or a function of the C library."""

    @cached_property
    def machine_code(self) -> Callable[..., Any]:
        import numba
        from numba.extending import intrinsic

        @intrinsic  # type: ignore[untyped-decorator]  # numba is untyped here
        def code(_context: Any, x: Any, y: Any, z: Any) -> Any:
            def instruction(_target: Any, builder: Any, _signature: Any, values: Any) -> Any:
                return builder.fma(*values)

            return numba.float64(x, y, z), instruction

        function: Callable[..., Any] = code
        return function


def fused_multiply_add() -> Callable[[float, float, float], float]:
    """Return a function for x * y + z, rounded once: of Python (3.13), else of the C library, else by fractions.

    >>> fused_multiply_add()(0.1, 10.0, -1.0) == 2.0**-54
    True
    """
    if hasattr(math, "fma"):
        function: Callable[[float, float, float], float] = math.fma
        return function
    try:
        library = ctypes.CDLL(None).fma
    except (OSError, TypeError, AttributeError):  # no such library, as on Windows
        return lambda x, y, z: float(Fraction(x) * Fraction(y) + Fraction(z))
    library.restype, library.argtypes = ctypes.c_double, [ctypes.c_double] * 3
    return library


def _rounded_up(x: float) -> float:
    return float(math.ceil(x)) if math.isfinite(x) else x


def _rounded_down(x: float) -> float:
    return float(math.floor(x)) if math.isfinite(x) else x


_fma = fused_multiply_add()
fused = _Fused(_fma, _fma)
"""Kernel: x * y + z, rounded once."""
ceiling = _Replaced(lambda x: np.ceil(x), _rounded_up)  # noqa: PLW0108  # code that Numba compiles
"""Kernel: the next whole number as a float."""
floor = _Replaced(lambda x: np.floor(x), _rounded_down)  # noqa: PLW0108  # as above
"""Kernel: the whole number before, as a float."""
room = _Replaced(lambda count: np.zeros(count), lambda count: [0.0] * count)  # noqa: PLW0108  # as above
"""Kernel: zeros that a kernel works in."""
room_of_rows = _Replaced(
    lambda count, width: np.zeros((count, width)), lambda count, width: [[0.0] * width for _ in range(count)]
)
"""Kernel: rows of zeros."""
