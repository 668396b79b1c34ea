"""Temporary replacement of all tensors that a caller's objects reach by fake ones, and restoration after a capture."""

import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from copy import copy
from enum import Enum
from functools import partial
from itertools import count, repeat
from threading import local
from types import BuiltinFunctionType, FunctionType, GeneratorType, MethodType, ModuleType
from typing import Any
from warnings import catch_warnings, simplefilter

from nearpeak.errors import CaptureError
from nearpeak.frontends.caller_state.code_owners import globals_of, is_opened, is_users, slots_of
from nearpeak.frontends.caller_state.snapshots import (
    Restore,
    mapping_type,
    process_state,
    sequence_type,
    snapshots_of,
)

StandIn = Callable[[Any], Any]
"""Returns what stands for an object during the capture, or the object itself."""

_ATOMS = frozenset({
    type(None), bool, int, float, complex, str, bytes, range, slice, type(...), type(NotImplemented),
    BuiltinFunctionType, ModuleType, weakref.ref,
})  # fmt: skip


@contextmanager
def loan(stand_in: StandIn) -> Iterator["Loan"]:
    """Open a loan for the length of a block; afterwards every object that was lent is as it was."""
    lent = Loan(stand_in)
    try:
        yield lent
    finally:
        lent.put_back()


class Loan:
    """Objects that a capture may change, with what puts each back.

    Objects keep their identity, so that closures and references among them hold; only what cannot be written into,
    such as a tensor, is replaced where it stands.
    """

    def __init__(self, stand_in: StandIn) -> None:
        """Start with nothing lent but the state of the process."""
        self._stand_in = stand_in
        self._lent: dict[int, tuple[Any, Any]] = {}  # holds each object, since freed identities are reused
        self._pending: list[Any] = []
        self._restores: list[Restore] = process_state()
        self.is_existing = True
        """Whether the objects existed before the capture: then its generators must not be advanced."""

    def lend(self, root: Any) -> Any:
        """Return `root`, in which every tensor has been replaced by its stand-in."""
        replaced = self._replaced(root)
        while self._pending:
            self._open(self._pending.pop())
        return replaced

    def pairs(self) -> list[tuple[Any, Any]]:
        """Return each object that something stands for, with its stand-in."""
        return [(thing, replaced) for thing, replaced in self._lent.values() if replaced is not thing]

    def keep_gradient(self, tensor: Any) -> None:
        """Note the gradient of a tensor that no walk reached, such as one of an installed package."""
        if id(tensor) not in self._lent:
            self._lent[id(tensor)] = (tensor, tensor)
            self._restores.append(partial(setattr, tensor, "grad", tensor.grad))

    def put_back(self) -> None:
        """Put back everything that was lent, last things first."""
        while self._restores:
            self._restores.pop()()
        self._lent.clear()

    def _replaced(self, thing: Any) -> Any:
        if type(thing) in _ATOMS or isinstance(thing, Enum):
            return thing
        known = self._lent.get(id(thing))
        if known is None:
            replaced = self._parts_replaced(thing) if isinstance(thing, tuple) else self._stand_in(thing)
            if replaced is thing and self.is_existing and _moves(thing):
                replaced = _copy_of_iterator(thing)
            known = self._lent[id(thing)] = (thing, replaced)
            if replaced is thing:
                self._pending.append(thing)
        return known[1]

    def _parts_replaced(self, items: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a tuple of the same class with stand-ins, itself if nothing in it is replaced."""
        replaced = tuple(self._replaced(item) for item in items)
        if all(new is old for new, old in zip(replaced, items, strict=True)):
            return items
        if hasattr(items, "n_sequence_fields"):  # results of PyTorch's own functions
            return type(items)(replaced)
        return tuple.__new__(type(items), replaced)

    def _open(self, thing: Any) -> None:
        """Note how to put `thing` back, and replace the tensors that it holds."""
        if isinstance(thing, type):
            if is_users(thing):
                self._class(thing)
            return
        self._restores += snapshots_of(thing)
        if isinstance(thing, dict):
            self._items(thing, dict.items(thing), lambda key, new: mapping_type(thing).__setitem__(thing, key, new))
        elif isinstance(thing, (list, deque)):
            self._items(thing, enumerate(list(thing)), lambda at, new: sequence_type(thing).__setitem__(thing, at, new))
        elif isinstance(thing, (set, frozenset)):
            self._items(thing, enumerate(thing), lambda *_: None)
        elif isinstance(thing, FunctionType):
            self._function(thing)
        elif isinstance(thing, MethodType):
            self._replaced(thing.__self__)
            self._replaced(thing.__func__)
        elif isinstance(thing, partial):
            self._partial(thing)
        elif isinstance(thing, local):
            self._replaced(vars(thing))  # those of this thread
        kind: Any = type(thing)
        if is_opened(kind):
            self._attributes(thing, kind)

    def _items(self, holder: Any, items: Any, write: Callable[[Any, Any], None]) -> None:
        values = dict.values(holder) if isinstance(holder, dict) else holder
        if set(map(type, values)) <= _ATOMS:
            return
        for key, value in list(items):
            new = self._replaced(value)
            if new is not value:
                write(key, new)

    def _attributes(self, thing: Any, kind: Any) -> None:
        """Look into attributes, those of slots included, and at the class if the user wrote it."""
        with suppress(AttributeError):
            self._replaced(object.__getattribute__(thing, "__dict__"))
        for slot in slots_of(kind):
            try:
                value = slot.__get__(thing)
            except AttributeError:
                continue
            new = self._replaced(value)
            self._restores.append(partial(slot.__set__, thing, value))
            if new is not value:
                slot.__set__(thing, new)
        self._replaced(kind)

    def _class(self, kind: type) -> None:
        """Look into the attributes of a class, which instances share, and into its functions."""
        self._restores += snapshots_of(kind)
        for name, value in list(vars(kind).items()):
            function = getattr(value, "__func__", getattr(value, "fget", value))
            new = self._replaced(function)
            if new is not function and function is value:
                type.__setattr__(kind, name, new)
        for base in kind.__bases__:
            self._replaced(base)

    def _function(self, function: FunctionType) -> None:
        """Look into what a function holds: closure, defaults and, if the user wrote it, the globals that it names."""
        for cell in function.__closure__ or ():
            try:
                value = cell.cell_contents
            except ValueError:  # not assigned yet
                continue
            new = self._replaced(value)
            self._restores.append(partial(setattr, cell, "cell_contents", value))
            if new is not value:
                cell.cell_contents = new
        for name in ("__defaults__", "__kwdefaults__", "__wrapped__"):
            value = getattr(function, name, None)
            new = self._replaced(value)
            if new is not value:
                self._restores.append(partial(setattr, function, name, value))
                setattr(function, name, new)
        if not is_users(function):
            return
        self._named(function.__globals__, globals_of(function.__code__))

    def _named(self, first: dict[str, Any], names: tuple[str, ...]) -> None:
        """Look at the names of a module that a function mentions, and at those of the user's modules among them."""
        spaces = [first]
        for space in spaces:
            for name in names:
                if name not in space:
                    self._restores.append(partial(_forget, space, name))
                    continue
                value = space[name]
                new = self._replaced(value)
                self._restores.append(partial(space.__setitem__, name, value))
                if new is not value:
                    space[name] = new
                if isinstance(value, ModuleType) and is_users(value) and not any(vars(value) is s for s in spaces):
                    spaces.append(vars(value))

    def _partial(self, thing: "partial[Any]") -> None:
        self._replaced(thing.func)
        self._replaced(thing.keywords)
        args = self._replaced(thing.args)
        if args is not thing.args:
            state = (thing.func, thing.args, thing.keywords, vars(thing) or None)
            self._restores.append(partial(thing.__setstate__, state))  # type: ignore[attr-defined]
            thing.__setstate__((thing.func, args, thing.keywords, vars(thing) or None))  # type: ignore[attr-defined]


def _forget(space: dict[str, Any], name: str) -> None:
    """Remove a name that a capture has put into a module; a part of the package that it imported first stays."""
    if f"{space.get('__name__')}.{name}" not in sys.modules:
        space.pop(name, None)


def _moves(thing: Any) -> bool:
    """Say whether an object is a generator or an iterator of Python's own, which taking a value moves on."""
    return isinstance(thing, GeneratorType) or (
        type(thing).__module__ in ("builtins", "itertools") and isinstance(thing, Iterator)
    )


def _copy_of_iterator(thing: Any) -> Any:
    """Return an iterator of its own at the same place, else one that refuses to move."""
    kind = type(thing)
    if kind in (count, repeat) or kind.__name__.endswith("iterator"):
        with suppress(TypeError), catch_warnings():
            simplefilter("ignore", DeprecationWarning)  # Python 3.14 no longer copies those of itertools
            return copy(thing)
    return _Unmoved()


class _Unmoved:
    """Stands for a generator of the caller's, which nothing could put back."""

    def __iter__(self) -> "_Unmoved":
        return self

    def __next__(self) -> Any:
        raise CaptureError(
            "the step takes the next value of a generator that existed before; nothing could put it back: hold a list "
            "instead, or make the generator inside the step"
        )
