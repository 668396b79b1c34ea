"""An object as part of the key of a cache: the same object only, as its tables have no hash."""

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
