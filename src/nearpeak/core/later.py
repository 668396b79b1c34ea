"""Fields of values that are worked out when somebody asks for them: the same value, whenever that is."""

from collections.abc import Callable
from dataclasses import MISSING
from typing import Any


class _Deferred:
    """A value that nobody has asked for; copies and saved ones hold the value itself."""

    __slots__ = ("value",)

    def __init__(self, value: Callable[[], Any]) -> None:
        self.value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return _held, (self.value(),)


class _Later:
    """What stands for a field in its class, and finds the field of each instance."""

    def __init__(self, default: Any) -> None:
        self.default = default

    def __set_name__(self, _owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, _owner: type) -> Any:
        if instance is None:  # a class that is made a dataclass asks for the default
            if self.default is MISSING:
                raise AttributeError(self.name)
            return self.default
        found = instance.__dict__[self.name]
        if isinstance(found, _Deferred):
            found = instance.__dict__[self.name] = found.value()
        return found

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__[self.name] = value  # of a frozen dataclass once, when it is made


def later(default: Any = MISSING) -> Any:
    """Return what marks a field of a dataclass, not slotted, that takes a value or a `deferred` one.

    Args:
        default: value of the field where none is given; without one it must be.

    >>> from dataclasses import dataclass, replace
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Sum:
    ...     numbers: tuple[int, ...]
    ...     total: int = later()
    >>> found = Sum(numbers=(1, 2), total=deferred(lambda: 3))
    >>> found.total, found == Sum(numbers=(1, 2), total=3), replace(found, total=4).total
    (3, True, 4)
    """
    return _Later(default)


def deferred(value: Callable[[], Any]) -> Any:
    """Return what such a field takes for a value that is worked out at its first use, see `later`."""
    return _Deferred(value)


def _held(value: Any) -> Any:
    return value
