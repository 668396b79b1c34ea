"""Known properties of a tensor's values for all inputs: range, narrowest exact format, whole numbers, one-hot rows."""

from math import inf, isnan
from typing import NamedTuple

from nearpeak.bounds.value_facts.carriers import (
    NARROWEST,
    carrier_of,
    carrier_of_integers,
    common,
    level_of,
    narrower,
)
from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.tensor import Layout

Range = tuple[float, float]
ANYTHING: Range = (-inf, inf)


class ValueFact(NamedTuple):
    """Facts about every element of a tensor; the defaults say the least."""

    carrier: str
    """Narrowest format known to hold the values, up to factors and summands that neighbours share."""
    range: Range = ANYTHING
    """Lowest and highest value."""
    whole: bool = False
    """Values are whole numbers."""
    selects: tuple[int, ...] = ()
    """Strides along which few elements differ from 0, at positions that data choose: one-hot rows, permutations."""
    counts: int = 0
    """Stride along which all values differ, 0 if none: positions from 0 on."""
    repeated: bool = False
    """Each value stands at several places, as broadcast rows that were written out do."""
    difference: tuple[int, int] | None = None
    """Numbers of the two contents whose difference it is."""

    @property
    def is_zero(self) -> bool:
        """Whether every element is 0."""
        return self.range == (0.0, 0.0)


def fact_of_format(dtype: str) -> ValueFact:
    """Return what the number format alone says.

    >>> fact_of_format("uint8").range
    (0.0, 255.0)
    """
    form = dtype_of(dtype)
    if form.kind == "bool":
        return ValueFact(carrier_of(dtype), (0.0, 1.0), True)
    if form.kind != "int" or form.scheme is not None:  # a bias beside integer factors is none
        return ValueFact(carrier_of(dtype))
    bits = form.bits_count
    ends = (0.0, 2.0**bits - 1) if form.name.startswith("u") else (-(2.0 ** (bits - 1)), 2.0 ** (bits - 1) - 1)
    return ValueFact(carrier_of(dtype), ends, True)


def fact_of_number(value: float) -> ValueFact:
    """Return the facts of a tensor that holds one number everywhere."""
    return ValueFact(NARROWEST, (float(value), float(value)), float(value).is_integer())


def tightened(fact: ValueFact) -> ValueFact:
    """Return the fact with the carrier that its range allows, and without a range that is no number."""
    low, high = fact.range
    if isnan(low) or isnan(high):
        return fact._replace(range=ANYTHING)
    carrier = carrier_of_integers(high - low) if fact.whole else NARROWEST if low == high else fact.carrier
    return fact._replace(carrier=narrower(fact.carrier, carrier))


def stored_as(fact: ValueFact, dtype: str) -> ValueFact:
    """Return the fact of the same values converted to a number format.

    >>> stored_as(ValueFact("fp32"), "bf16").carrier
    'bf16'
    """
    of_format = fact_of_format(dtype)
    if of_format.whole and not fact.whole:  # truncation; to bool, a comparison
        fact = fact._replace(whole=True, carrier=of_format.carrier)
    if of_format.range != ANYTHING:
        low, high = fact.range
        inside = of_format.range[0] <= low and high <= of_format.range[1]
        fact = fact if inside else fact._replace(range=of_format.range, carrier=of_format.carrier, difference=None)
    if level_of(of_format.carrier) <= level_of(fact.carrier):
        fact = fact._replace(carrier=of_format.carrier)
    return tightened(fact)


def either(left: ValueFact, right: ValueFact) -> ValueFact:
    """Return what holds of both."""
    return ValueFact(
        common(left.carrier, right.carrier),
        (min(left.range[0], right.range[0]), max(left.range[1], right.range[1])),
        left.whole and right.whole,
    )


def moved_strides(strides: tuple[int, ...], source: Layout | None, result: Layout | None) -> tuple[int, ...]:
    """Return strides of one tensor as those of another whose dimensions are the same, aligned at the end."""
    if source is None or result is None:
        return strides  # dense tensors without a stated layout
    pairs = zip(source.strides[::-1], source.shape[::-1], result.strides[::-1], result.shape[::-1], strict=False)
    return tuple(
        new for old, extent, new, result_extent in pairs if old in strides and extent == result_extent > 1 and new
    )
