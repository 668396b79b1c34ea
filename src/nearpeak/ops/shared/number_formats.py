"""Number formats by their bits: float and integer formats, rounding, encoding, overflow."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from nearpeak.errors import SpecError

ROUNDINGS = ("nearest_even", "toward_zero", "stochastic")
"""Ways to round; stochastic rounding goes up with the probability of the part that is cut off."""
_MOST_TABLE_BITS = 16
"""Bits up to which a format is decoded by a table."""


@dataclass(frozen=True, kw_only=True)
class FloatFormat:
    """A binary floating-point format of at most 32 bits.

    >>> FloatFormat(name="e4m3", exponent_bits_count=4, fraction_bits_count=3, nan="all_ones").largest
    448.0
    """

    name: str
    """How results call it."""
    exponent_bits_count: int
    """Bits of the exponent."""
    fraction_bits_count: int
    """Bits after the leading one."""
    bias: int | None = None
    """Bias of the exponent field; half of its range when none."""
    signed: bool = True
    """Whether it has a sign bit."""
    nan: str = "ieee"
    """Which codes are no numbers: `ieee` (highest exponent: infinities and NaN), `all_ones` (no infinities, NaN where
    every bit but the sign is one), `negative_zero` (only that code), `none`."""

    def __post_init__(self) -> None:
        """Refuse a format that holds nothing or that no table names."""
        if not 1 <= self.exponent_bits_count <= 11 or not 0 <= self.fraction_bits_count <= 52 or self.bits_count > 32:
            raise SpecError(f"format {self.name}: needs 1 to 11 bits of exponent and 32 bits in all at most")
        if self.nan not in ("ieee", "all_ones", "negative_zero", "none"):
            raise SpecError(f"format {self.name}: nan is {self.nan!r}; ieee, all_ones, negative_zero or none is right")
        if self.nan == "negative_zero" and not self.signed:
            raise SpecError(f"format {self.name}: has no sign and so no negative zero")

    @property
    def bits_count(self) -> int:
        """Bits of an element."""
        return self.exponent_bits_count + self.fraction_bits_count + self.signed

    @property
    def offset(self) -> int:
        """Bias of the exponent field."""
        return 2 ** (self.exponent_bits_count - 1) - 1 if self.bias is None else self.bias

    @property
    def least_exponent(self) -> int:
        """Exponent of the smallest normal number; formats without a fraction have no subnormal ones."""
        return 1 - self.offset if self.fraction_bits_count else -self.offset

    @cached_property
    def largest(self) -> float:
        """Largest finite number."""
        return float(_value(self, self._largest_code))

    @property
    def _largest_code(self) -> int:
        """Return the code of the largest finite number."""
        whole: int = 2 ** (self.exponent_bits_count + self.fraction_bits_count) - 1
        lost = {"ieee": 2**self.fraction_bits_count, "all_ones": 1, "negative_zero": 0, "none": 0}[self.nan]
        return int(whole - lost)

    def decode(self, codes: Any) -> Any:
        """Return the numbers that codes stand for, as float64.

        Args:
            codes: unsigned integers of any shape.
        """
        codes = np.asarray(codes, dtype=np.int64)
        if self.bits_count <= _MOST_TABLE_BITS:
            return self._table[codes]
        return _value(self, codes)

    @cached_property
    def _table(self) -> Any:
        return _value(self, np.arange(2**self.bits_count))

    def rounded(self, values: Any, rounding: str = "nearest_even", *, saturates: bool = False, seed: int = 0) -> Any:
        """Return numbers rounded to the format, as float64; each is exact in the format.

        Args:
            values: numbers of any shape.
            rounding: one of ROUNDINGS.
            saturates: whether what is too large becomes the largest number instead of infinity or NaN.
            seed: of stochastic rounding.

        >>> E4M3.rounded([0.3, 1000.0], saturates=True).tolist()
        [0.3125, 448.0]
        """
        _known(rounding)
        x = np.asarray(values, dtype=np.float64)
        magnitude = np.abs(x)
        finite = np.isfinite(x)
        _, exponent = np.frexp(np.where(finite, magnitude, 1.0))
        quantum = np.exp2(np.maximum(exponent - 1, self.least_exponent) - float(self.fraction_bits_count))
        steps = np.where(finite, magnitude, 0.0) / quantum
        magnitude_rounded = _whole(steps, rounding, seed) * quantum
        magnitude_rounded = self._without_zero(magnitude_rounded, magnitude)
        return self._beyond(x, magnitude_rounded, finite, saturates)

    def _without_zero(self, rounded: Any, magnitude: Any) -> Any:
        """Formats without a fraction have no zero, and give NaN for it."""
        return (
            rounded
            if self.fraction_bits_count
            else np.where(magnitude > 0, np.maximum(rounded, 2.0**self.least_exponent), np.nan)
        )

    def _beyond(self, x: Any, rounded: Any, finite: Any, saturates: bool) -> Any:
        """Return rounded numbers with sign, and what becomes of those too large, infinite or none."""
        over = (rounded > self.largest) | (np.isinf(x))
        limit = self.largest if saturates else {"ieee": np.inf, "none": self.largest}.get(self.nan, np.nan)
        rounded = np.where(over, limit, rounded)
        signed = np.copysign(rounded, x) if self.signed else np.where(x < 0, np.nan, rounded)
        if self.nan == "negative_zero":
            signed = np.where(signed == 0, 0.0, signed)
        missing = 0.0 if self.nan == "none" else np.nan
        return np.where(finite | np.isinf(x), signed, missing)

    def encode(self, values: Any, rounding: str = "nearest_even", *, saturates: bool = False, seed: int = 0) -> Any:
        """Return the codes of numbers, rounded as `rounded` does, as unsigned integers."""
        x = self.rounded(values, rounding, saturates=saturates, seed=seed)
        magnitude = np.abs(x)
        usual = np.isfinite(magnitude)
        safe = np.where(usual, magnitude, 0.0)
        _, exponent = np.frexp(np.where(safe > 0, safe, 1.0))
        field = np.maximum(exponent - 1 + self.offset, 1 if self.fraction_bits_count else 0)
        quantum = np.exp2((field - self.offset - self.fraction_bits_count).astype(np.float64))
        steps = np.rint(safe / quantum).astype(np.int64)
        hidden = 2**self.fraction_bits_count
        codes = np.where(steps >= hidden, (field << self.fraction_bits_count) + steps - hidden, steps)
        codes = np.where(usual, codes, self._special(x))
        sign = (np.signbit(x) & ~np.isnan(x)) if self.signed else np.zeros(np.shape(x), dtype=bool)
        whole = codes + (sign.astype(np.int64) << (self.bits_count - 1))
        return whole.astype(np.uint32)

    def _special(self, x: Any) -> Any:
        """Return the codes of infinities and NaN, without sign."""
        ones = 2 ** (self.exponent_bits_count + self.fraction_bits_count) - 1
        if self.nan == "ieee":
            infinity = (2**self.exponent_bits_count - 1) << self.fraction_bits_count
            return np.where(np.isinf(x), infinity, infinity + 2 ** max(self.fraction_bits_count - 1, 0))
        return np.full(np.shape(x), 2 ** (self.bits_count - 1) if self.nan == "negative_zero" else ones)


def _value(form: FloatFormat, codes: Any) -> Any:
    """Return the numbers of codes by the definition of the format."""
    codes = np.asarray(codes, dtype=np.int64)
    fraction = codes & (2**form.fraction_bits_count - 1)
    field = (codes >> form.fraction_bits_count) & (2**form.exponent_bits_count - 1)
    normal = (field > 0) | (form.fraction_bits_count == 0)
    whole = fraction + np.where(normal, 2**form.fraction_bits_count, 0)
    exponent = np.where(normal, field, 1) - form.offset - form.fraction_bits_count
    value = np.ldexp(whole.astype(np.float64), exponent)
    negative = (codes >> (form.bits_count - 1)) & 1 if form.signed else np.zeros_like(codes)
    magnitude = codes & (2 ** (form.exponent_bits_count + form.fraction_bits_count) - 1)
    if form.nan == "ieee":
        top = field == 2**form.exponent_bits_count - 1
        value = np.where(top, np.where(fraction == 0, np.inf, np.nan), value)
    elif form.nan == "all_ones":
        value = np.where(magnitude == 2 ** (form.exponent_bits_count + form.fraction_bits_count) - 1, np.nan, value)
    value = np.where(negative == 1, -value, value)
    if form.nan == "negative_zero":
        value = np.where((negative == 1) & (magnitude == 0), np.nan, value)
    return value


def _whole(steps: Any, rounding: str, seed: int) -> Any:
    """Return whole numbers of steps."""
    if rounding == "nearest_even":
        return np.rint(steps)
    low = np.floor(steps)
    if rounding == "toward_zero":
        return low
    return low + (np.random.default_rng(seed).random(np.shape(steps)) < steps - low)


@dataclass(frozen=True, slots=True, kw_only=True)
class IntFormat:
    """Whole numbers of at most 16 bits, in two's complement where they have a sign; numbers beyond the range saturate.

    >>> IntFormat(name="int4", bits_count=4).rounded([0.5, 1.5, 99.0]).tolist()
    [0.0, 2.0, 7.0]
    """

    name: str
    """How results call it."""
    bits_count: int
    """Bits of an element."""
    signed: bool = True
    """Whether it has negative numbers."""
    symmetric: bool = False
    """Whether the lowest is the largest with a sign: -127 to 127 in 8 bits."""

    def __post_init__(self) -> None:
        """Refuse a format that holds nothing."""
        if not 1 + self.signed <= self.bits_count <= _MOST_TABLE_BITS:
            raise SpecError(
                f"format {self.name}: {self.bits_count} bits; {1 + self.signed} to {_MOST_TABLE_BITS} are right"
            )

    @property
    def largest(self) -> float:
        """Largest number."""
        return 2.0 ** (self.bits_count - self.signed) - 1

    @property
    def lowest(self) -> float:
        """Lowest number."""
        return 0.0 if not self.signed else -self.largest - (not self.symmetric)

    def decode(self, codes: Any) -> Any:
        """Return the numbers that codes stand for, as float64."""
        codes = np.asarray(codes, dtype=np.int64)
        half = 2 ** (self.bits_count - 1)
        return np.where(codes >= half, codes - 2 * half, codes).astype(np.float64) if self.signed else codes * 1.0

    def rounded(self, values: Any, rounding: str = "nearest_even", *, saturates: bool = True, seed: int = 0) -> Any:
        """Return whole numbers within the range, as float64; NaN becomes 0.

        Args:
            saturates: whether what is too large becomes the largest number; otherwise its upper bits are lost.
        """
        x = np.nan_to_num(np.asarray(values, dtype=np.float64), nan=0.0)
        if saturates:
            x = np.clip(x, self.lowest, self.largest)
        whole = np.copysign(_whole(np.abs(x), _known(rounding), seed), x) + 0.0
        low = -(2.0 ** (self.bits_count - 1)) * self.signed
        return whole if saturates else (whole - low) % 2.0**self.bits_count + low

    def encode(self, values: Any, rounding: str = "nearest_even", *, saturates: bool = True, seed: int = 0) -> Any:
        """Return the codes of numbers, rounded as `rounded` does, as unsigned integers."""
        whole = self.rounded(values, rounding, saturates=saturates, seed=seed).astype(np.int64)
        return (whole & (2**self.bits_count - 1)).astype(np.uint32)

    def placed(self, x: Any, scale: Any, zero: Any) -> Any:
        """Return the whole numbers that x takes on a grid, before its range, in the fp32 arithmetic of frameworks.

        Source: Jacob et al. 2018, arXiv:1712.05877, section 3; as PyTorch has it, x is multiplied by 1 / scale in fp32.
        """
        inverse = np.float32(1) / np.asarray(scale, np.float32)
        return np.rint(np.asarray(x, np.float32) * inverse) + np.asarray(zero, np.float32)

    def fake_quantised(self, x: Any, scale: Any, zero: Any = 0) -> tuple[Any, Any]:
        """Return numbers put on the grid and widened again, in fp32, and which lay inside its range.

        The gradient passes where they did and stops elsewhere (straight through).

        Args:
            scale: width of a step, which broadcasts against x: one per tensor, or one per channel.
            zero: whole number that represents 0.
        """
        place = self.placed(x, scale, zero)
        inside = (place >= self.lowest) & (place <= self.largest)
        whole = np.clip(place, self.lowest, self.largest).astype(np.float32)
        return (whole - np.asarray(zero, np.float32)) * np.asarray(scale, np.float32), inside


Format = FloatFormat | IntFormat


def _known(rounding: str) -> str:
    if rounding not in ROUNDINGS:
        raise SpecError(f"rounding {rounding!r}: is not one of {', '.join(ROUNDINGS)}")
    return rounding


def _row(name: str, exponent: int, fraction: int, **more: Any) -> FloatFormat:
    return FloatFormat(name=name, exponent_bits_count=exponent, fraction_bits_count=fraction, **more)


INTS = {
    f"{'' if signed else 'u'}int{bits}": IntFormat(
        name=f"{'' if signed else 'u'}int{bits}", bits_count=bits, signed=signed
    )
    for bits in (2, 4, 8, 16)
    for signed in (True, False)
}
"""Whole numbers by name."""
E4M3 = _row("fp8_e4m3", 4, 3, nan="all_ones")
_ROWS: tuple[Format, ...] = (
    _row("fp32", 8, 23), _row("tf32", 8, 10), _row("bf16", 8, 7), _row("fp16", 5, 10), E4M3,
    _row("fp8_e5m2", 5, 2), _row("fp8_e4m3fnuz", 4, 3, bias=8, nan="negative_zero"),
    _row("fp8_e5m2fnuz", 5, 2, bias=16, nan="negative_zero"),
    _row("fp8_e4m3b11fnuz", 4, 3, bias=11, nan="negative_zero"), _row("fp8_e3m4", 3, 4),
    _row("fp8_e8m0", 8, 0, signed=False, nan="all_ones"), _row("fp6_e2m3", 2, 3, nan="none"),
    _row("fp6_e3m2", 3, 2, nan="none"), _row("fp4_e2m1", 2, 1, nan="none"),
    *INTS.values(),
)  # fmt: skip
FORMATS: Mapping[str, Format] = {row.name: row for row in _ROWS}
"""Formats by name. Sources: IEEE 754-2019; OCP 8-bit Floating Point 1.0 and Microscaling Formats 1.0; Noune et al. 2022
(arXiv:2206.02915) for those without negative zero; NVIDIA A100 whitepaper for TF32."""
