"""Three equivalence relations on cases: exact, same class, same class with saturated sizes."""

from math import prod

from nearpeak.core.work.case import Case

IDENTITIES = ("exact", "class", "saturated")
LARGEST_DIVISOR = 128
"""Power of two beyond which divisibility makes no difference to a kernel."""
SATURATED_EXTENT = 4096
"""Extent from which on larger ones are alike: 16 tiles of 256, the largest in common use, so that every loop over tiles
is past its prologue."""
_WIDE_ELEMENTS = 2**31


def class_of(case: Case, *, saturated: bool = False) -> tuple[object, ...]:
    """Return what cases of one class share: operator, phase, formats, choices, and size and divisibility of each axis.

    A size counts by its whole binary logarithm, divisibility by the largest power of two up to 128. Extents up to 3
    are exact, so that a kernel of 1, a stride of 2 or a group of its own is never put together with others.

    Args:
        saturated: extents from 4096 on count alike; whether all axes together pass 2^31 still tells cases apart, as
            indices may be wider there.

    >>> from nearpeak.ops import case
    >>> kinds = [class_of(case("fill", elements=n, dtype="bf16")) for n in (1024, 1152, 1025, 2048)]
    >>> kinds[0] == kinds[1], kinds[0] == kinds[2], kinds[0] == kinds[3]
    (True, False, False)
    >>> a, b, c = (case("fill", elements=n, dtype="bf16") for n in (2**13, 2**20, 2**32))
    >>> [class_of(a, saturated=True) == class_of(one, saturated=True) for one in (b, c)]
    [True, False]
    """
    limit = SATURATED_EXTENT if saturated else 1 << 62
    sizes = tuple((name, min(extent, limit).bit_length(), divisor(extent)) for name, extent in case.axes)
    wide = prod(max(1, extent) for _, extent in case.axes) > _WIDE_ELEMENTS if saturated else False
    lying = tuple((name, divisor(option) if isinstance(option, int) else option) for name, option in case.memory)
    return (case.op, case.phase, case.dtypes, case.attributes, sizes, wide, lying)


def divisor(extent: int) -> int:
    """Return the largest power of two up to 128 that divides `extent`; 128 for 0.

    >>> divisor(96), divisor(7), divisor(4096)
    (32, 1, 128)
    """
    return min(extent & -extent, LARGEST_DIVISOR) if extent else LARGEST_DIVISOR


def identify(case: Case, identity: str) -> object:
    """Return what `case` is known by under one of IDENTITIES."""
    return case if identity == "exact" else class_of(case, saturated=identity == "saturated")
