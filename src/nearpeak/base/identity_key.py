"""A cache key that compares an unhashable object by identity."""

from typing import Generic, TypeVar

T = TypeVar("T")


class Same(Generic[T]):
    """Equal to another exactly where both hold the same object.

    >>> one = [1]
    >>> Same(one) == Same(one), Same(one) == Same([1])
    (True, False)
    """

    __slots__ = ("held",)

    def __init__(self, held: T) -> None:
        self.held = held

    def __hash__(self) -> int:
        return id(self.held)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and other.held is self.held
