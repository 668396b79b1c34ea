"""What cases are beside their extents: one object for all that are alike, so that tables find it at once."""

from functools import cache

from nearpeak.core.case import Case

Formats = tuple[tuple[str, str], ...]
Choices = tuple[tuple[str, str | bool], ...]


class Kind:
    """Operator, phase, number formats and choices of cases; equal to itself alone, as there is one of each."""

    __slots__ = ("attributes", "dtypes", "op", "phase")

    def __init__(self, op: str, phase: str, dtypes: Formats, attributes: Choices) -> None:
        self.op, self.phase, self.dtypes, self.attributes = op, phase, dtypes, attributes

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        """Return what copies and saved ones are made of: the one object of what reads them."""
        return kind, (self.op, self.phase, self.dtypes, self.attributes)


@cache
def kind(op: str, phase: str, dtypes: Formats, attributes: Choices) -> Kind:
    """Return the kind of that operator, phase, number formats and choices."""
    return Kind(op, phase, dtypes, attributes)


def kind_of(case: Case) -> Kind:
    """Return the kind of a case.

    >>> one, other = (Case(op="fill", phase="forward", axes=(("elements", n),), dtypes=()) for n in (1, 2))
    >>> kind_of(one) is kind_of(other)
    True
    """
    return kind(case.op, case.phase, case.dtypes, case.attributes)
