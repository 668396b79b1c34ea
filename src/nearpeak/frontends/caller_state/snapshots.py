"""Copies of the contents of mutable objects before a capture, with the function that restores each."""

import os
import random
import sys
from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from functools import _lru_cache_wrapper, partial
from io import BytesIO, IOBase, StringIO
from typing import Any

from nearpeak.frontends.caller_state.code_owners import is_opened

Restore = Callable[[], object]
"""Puts an object back into the state in which it was noted."""


def snapshots_of(thing: Any) -> list[Restore]:
    """Return what puts the contents of one object back; nothing for objects that hold none of their own."""
    noted = [note(thing) for holder, note in _NOTES if isinstance(thing, holder)]
    kind: Any = type(thing)
    module = kind.__module__
    if module.startswith("numpy") and module in sys.modules:
        noted.append(_numpy(thing))
    elif type(thing).__name__ == "Generator" and module.startswith("torch"):
        noted.append(partial(thing.set_state, thing.get_state()))
    if is_opened(kind) and not isinstance(thing, type):
        noted.append(_object(thing))
    return [restore for restore in noted if restore is not None]


def process_state() -> list[Restore]:
    """Return what puts the random numbers, the environment and the switches of a process back."""
    import torch

    restores: list[Restore] = [
        partial(random.setstate, random.getstate()), partial(torch.random.set_rng_state, torch.random.get_rng_state()),
        partial(_environment, dict(os.environ)), partial(torch.set_default_dtype, torch.get_default_dtype()),
        partial(torch.set_grad_enabled, torch.is_grad_enabled()),
    ]  # fmt: skip
    if "numpy.random" in sys.modules:
        numbers = sys.modules["numpy.random"]
        restores.append(partial(numbers.set_state, numbers.get_state()))
    return restores


def _environment(before: dict[str, str]) -> None:
    if dict(os.environ) != before:
        os.environ.clear()
        os.environ.update(before)


def sequence_type(thing: Any) -> Any:
    """Return the built-in class whose methods write into a list or deque, past those that a subclass overrides."""
    return list if isinstance(thing, list) else deque


def mapping_type(thing: Any) -> Any:
    """Return the same for a dictionary."""
    return OrderedDict if isinstance(thing, OrderedDict) else dict


def _mapping(thing: Any) -> Restore:
    kind = mapping_type(thing)
    before = list(kind.items(thing))

    def restore() -> None:
        now = list(kind.items(thing))
        if len(now) == len(before) and all(a is c and b is d for (a, b), (c, d) in zip(now, before, strict=True)):
            return
        kind.clear(thing)
        for key, value in before:
            kind.__setitem__(thing, key, value)

    return restore


def _sequence(thing: Any) -> Restore:
    kind, before = sequence_type(thing), list(thing)

    def restore() -> None:
        if not _same(thing, before):
            kind.clear(thing)
            kind.extend(thing, before)

    return restore


def _set(thing: Any) -> Restore:
    before = list(thing)

    def restore() -> None:
        if set(map(id, thing)) != set(map(id, before)):
            set.clear(thing)
            set.update(thing, before)

    return restore


def _memory(thing: Any) -> Restore:
    before = thing[:]

    def restore() -> None:
        thing[:] = before

    return restore


def _class(kind: type) -> Restore:
    before = dict(vars(kind))

    def restore() -> None:
        now = dict(vars(kind))
        for name in now.keys() - before.keys():
            if not name.startswith("__"):
                type.__delattr__(kind, name)
        for name, value in before.items():
            if now.get(name) is not value and not name.startswith("__"):
                type.__setattr__(kind, name, value)

    return restore


def _object(thing: Any) -> Restore | None:
    """Return what puts class and dictionary of attributes back, which some code exchanges; not what is in it."""
    kind = type(thing)
    try:
        attributes = object.__getattribute__(thing, "__dict__")
    except AttributeError:
        return None

    def restore() -> None:
        if type(thing) is not kind:
            object.__setattr__(thing, "__class__", kind)
        if object.__getattribute__(thing, "__dict__") is not attributes:
            object.__setattr__(thing, "__dict__", attributes)

    return restore


def _file(thing: Any) -> Restore | None:
    """Return what puts the position of a file back, and the contents of one in memory."""
    try:
        position = thing.tell() if thing.seekable() else None
    except (OSError, ValueError):  # closed, or in the middle of an iteration
        return None
    contents = thing.getvalue() if isinstance(thing, (BytesIO, StringIO)) else None

    def restore() -> None:
        if thing.closed:
            return
        if contents is not None and thing.getvalue() != contents:
            thing.seek(0)
            thing.truncate()
            thing.write(contents)
        thing.seek(position)

    return None if position is None else restore


def _cache(thing: Any) -> Restore:
    """Return what empties a cache of function results that received new ones: they hold the capture's tensors."""
    misses = thing.cache_info().misses
    return lambda: None if thing.cache_info().misses == misses else thing.cache_clear()


def _numpy(thing: Any) -> Restore | None:
    import numpy

    if isinstance(thing, numpy.ndarray) and thing.flags.writeable:
        return partial(numpy.copyto, thing, thing.copy(), "unsafe")
    if isinstance(thing, (numpy.random.Generator, numpy.random.BitGenerator)):
        bits: Any = getattr(thing, "bit_generator", thing)
        return partial(setattr, bits, "state", bits.state)
    return partial(thing.set_state, thing.get_state()) if isinstance(thing, numpy.random.RandomState) else None


def _same(left: Iterable[Any], right: list[Any]) -> bool:
    items = list(left)
    return len(items) == len(right) and all(a is b for a, b in zip(items, right, strict=True))


_NOTES: tuple[tuple[Any, Callable[[Any], Restore | None]], ...] = (
    (dict, _mapping), ((list, deque), _sequence), (set, _set), ((bytearray, array), _memory), (type, _class),
    (IOBase, _file), (_lru_cache_wrapper, _cache),
    (random.Random, lambda thing: partial(thing.setstate, thing.getstate())),
)  # fmt: skip
