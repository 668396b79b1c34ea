"""Scripts as bytes: functions that they name are kept as what made them, forms by their name."""

import importlib
import io
import marshal
import pickle
from collections.abc import Callable
from functools import lru_cache, wraps
from types import CodeType, FunctionType
from typing import Any, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from nearpeak.core.same import Same
from nearpeak.core.target import Target
from nearpeak.predict._form import Form
from nearpeak.predict._script_code import SCRIPT, made

P = ParamSpec("P")
T = TypeVar("T")

_MADE: "WeakKeyDictionary[Any, tuple[str, str, tuple[Any, ...]]]" = WeakKeyDictionary()
"""Module, name and arguments of what made a function."""


def remade(maker: Callable[P, T]) -> Callable[P, T]:
    """Return a maker of functions that `dumped` can keep: they are made again of the same arguments."""

    @wraps(maker)
    def making(*arguments: P.args, **named: P.kwargs) -> T:
        found = maker(*arguments, **named)
        if not named:
            _MADE[found] = (maker.__module__, maker.__qualname__, arguments)
        return found

    return making


def dumped(value: Any, target: Target) -> bytes:
    """Return a value that holds scripts as bytes.

    Raises:
        pickle.PicklingError, TypeError, AttributeError, ValueError: it holds something else that cannot be kept.
    """
    stream = io.BytesIO()
    _Pickler(stream, target).dump(value)
    return stream.getvalue()


def loaded(data: bytes, target: Target) -> Any:
    """Return what was `dumped` for the same target."""
    return _Unpickler(io.BytesIO(data), target).load()


class _Pickler(pickle.Pickler):
    def __init__(self, stream: Any, target: Target) -> None:
        super().__init__(stream, protocol=pickle.HIGHEST_PROTOCOL)
        self._target = target

    def persistent_id(self, value: Any) -> Any:
        if isinstance(value, Form):
            return value.name if _form(value.name) is value else None
        return "" if value is self._target else None

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, FunctionType) and value.__name__ == SCRIPT:
            return _script, (_bytes_of(Same(value.__code__)), *(value.__defaults__ or ()))
        made = _made(value) if callable(value) else None
        return NotImplemented if made is None else (_made_again, made)


class _Unpickler(pickle.Unpickler):
    def __init__(self, stream: Any, target: Target) -> None:
        super().__init__(stream)
        self._target = target

    def persistent_load(self, pid: Any) -> Any:
        return _form(pid) if pid else self._target


def _made(value: Any) -> tuple[str, str, tuple[Any, ...]] | None:
    """Return what made a function; none of others, and of those that no dictionary can hold."""
    try:
        return _MADE.get(value)
    except TypeError:
        return None


def _form(name: str) -> Form:
    from nearpeak.predict import FORMS

    return FORMS[name]


def _script(code: bytes, constants: tuple[Any, ...]) -> Callable[..., Any]:
    return made(_code_of(code), constants)


@lru_cache(maxsize=1 << 10)
def _bytes_of(code: "Same[CodeType]") -> bytes:
    """Return a code as bytes, the same object for the same code: files hold it once."""
    return marshal.dumps(code.held)


@lru_cache(maxsize=1 << 10)
def _code_of(data: bytes) -> CodeType:
    """Return the code of bytes, the same one for the same bytes."""
    found: CodeType = marshal.loads(data)
    return found


def _made_again(module: str, name: str, arguments: tuple[Any, ...]) -> Any:
    return getattr(importlib.import_module(module), name)(*arguments)
