"""Matrix products with emulated narrow accumulators: few bits, summation in groups, promotion."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from nearpeak.base.compilation import ALWAYS_COMPILED, compiled
from nearpeak.errors import SpecError
from nearpeak.ops.shared.number_formats import ROUNDINGS

_FP32_BITS = 24
_EXACT_BITS = 52
"""Bits up to which float64 emulates an accumulator exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulator:
    """How sums of products are kept."""

    significant_bits_count: int = 24
    """Bits of the running sum, the leading one included: 24 is fp32."""
    group_count: int = 1
    """Products that are added at once, aligned to the largest of them and of the sum."""
    promotion_count: int = 0
    """Products after which the sum moves to an accumulator of fp32 and starts anew; 0 for never."""
    rounding: str = "nearest_even"
    """One of formats.ROUNDINGS; hardware that aligns usually cuts off (toward_zero)."""

    def __post_init__(self) -> None:
        """Refuse what cannot be emulated."""
        if not 2 <= self.significant_bits_count <= _EXACT_BITS:
            raise SpecError(f"accumulator: {self.significant_bits_count} bits; 2 to {_EXACT_BITS} can be emulated")
        if self.group_count < 1 or self.promotion_count < 0:
            raise SpecError("accumulator: adds one product at a time at least, and promotes after 0 or more")
        if self.rounding not in ROUNDINGS:
            raise SpecError(f"accumulator: rounding {self.rounding!r} is not one of {', '.join(ROUNDINGS)}")


FP32 = Accumulator()
HOPPER_FP8 = Accumulator(significant_bits_count=14, group_count=32, rounding="toward_zero")
"""FP8 products of Hopper: about 14 bits are kept of sums aligned to the largest.

Source: DeepSeek-V3 technical report (arXiv:2412.19437), section 3.3.2."""


def multiply(a: Any, b: Any, accumulator: Accumulator = FP32, *, seed: int = 0) -> Any:
    """Return the product of matrices of shapes [m,k] and [k,n] as float64, summed along k in order.

    Args:
        a: numbers that are exact in the format of the factors, so that each product is exact in float64.
        b: likewise.
        accumulator: how sums are kept.
        seed: of stochastic rounding.

    >>> multiply([[1.0, 2.0**-13, 2.0**-13]], [[1.0], [1.0], [1.0]], Accumulator(significant_bits_count=11)).item()
    1.0
    """
    left, right = np.ascontiguousarray(a, dtype=np.float64), np.ascontiguousarray(b, dtype=np.float64)
    if left.ndim != 2 or right.ndim != 2 or left.shape[1] != right.shape[0]:
        raise SpecError(f"multiply: shapes {left.shape} and {right.shape} do not fit; [m,k] and [k,n] are right")
    out = np.empty((left.shape[0], right.shape[1]))
    _multiply(
        left, np.ascontiguousarray(right.T), accumulator.significant_bits_count, accumulator.group_count,
        accumulator.promotion_count, ROUNDINGS.index(accumulator.rounding), seed, out,
    )  # fmt: skip
    return out


def cut_sum(values: Any, accumulator: Accumulator, *, seed: int = 0) -> Any:
    """Return sums as the accumulator keeps them between products; after promotions that is fp32."""
    promoted = accumulator.promotion_count > 0
    bits = _FP32_BITS if promoted else accumulator.significant_bits_count
    x = np.asarray(values, dtype=np.float64)
    out = np.empty(x.size)
    _cut_all(x.reshape(-1), bits, 0 if promoted else ROUNDINGS.index(accumulator.rounding), seed, out)
    return out.reshape(x.shape)


@compiled(ALWAYS_COMPILED)
def _cut_all(x: Any, bits: int, rounding: int, seed: int, out: Any) -> None:
    np.random.seed(seed)
    for i in range(x.shape[0]):
        out[i] = _cut(x[i], bits, rounding)


@compiled(ALWAYS_COMPILED)
def _multiply(a: Any, b: Any, bits: int, group: int, promotion: int, rounding: int, seed: int, out: Any) -> None:
    """Write the product; b is transposed."""
    np.random.seed(seed)
    depth = a.shape[1]
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            total, part = 0.0, 0.0
            since = 0
            for start in range(0, depth, group):
                stop = min(start + group, depth)
                part = _added(part, a[i, start:stop], b[j, start:stop], bits, rounding)
                since += stop - start
                if promotion > 0 and since >= promotion:
                    total, part, since = _cut(total + part, _FP32_BITS, 0), 0.0, 0
            out[i, j] = _cut(total + part, _FP32_BITS, 0) if promotion > 0 else part


@compiled(ALWAYS_COMPILED)
def _added(part: float, a: Any, b: Any, bits: int, rounding: int) -> float:
    """Return the sum with a group of products, each cut where the largest of all has its last bit."""
    if a.shape[0] == 1:
        return float(_cut(part + a[0] * b[0], bits, rounding))
    largest, plain = abs(part), part
    for k in range(a.shape[0]):
        largest = max(largest, abs(a[k] * b[k]))
        plain += a[k] * b[k]
    if largest == 0.0 or not math.isfinite(plain):  # infinite terms and NaN stay what they are
        return plain
    _, exponent = math.frexp(largest)
    total = _stepped(math.ldexp(part, bits - exponent), rounding)
    for k in range(a.shape[0]):
        total += _stepped(math.ldexp(a[k] * b[k], bits - exponent), rounding)
    return float(_cut(math.ldexp(total, exponent - bits), bits, rounding))


@compiled(ALWAYS_COMPILED)
def _cut(x: float, bits: int, rounding: int) -> float:
    """Return a number with so many significant bits."""
    if x == 0.0 or not math.isfinite(x):
        return x
    fraction, exponent = math.frexp(x)  # a rounded logarithm would take what is just below a power of two for it
    return math.ldexp(_stepped(math.ldexp(fraction, bits), rounding), exponent - bits)


@compiled(ALWAYS_COMPILED)
def _stepped(x: float, rounding: int) -> float:
    """Return a whole number: to the nearest and even, toward zero, or by chance."""
    if rounding == 0:
        return float(np.rint(x))
    low = np.floor(abs(x))
    if rounding == 2 and np.random.random() < abs(x) - low:
        low += 1.0
    return float(low if x >= 0 else -low)
