"""Input rows that expose unsafe shortcuts: wrong initial maxima, cancelling squares, overflow of fp16."""

from collections.abc import Callable
from functools import partial
from typing import Any

from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.tensor import Tensor

DEEP = 20_000.0
"""Size of numbers below whatever maxima are started at, 0 or -10,000: fp16 holds it, exponentials of -DEEP are 0."""
PEAK, PEAK_IN_FP64 = 200.0, 3200.0
"""What exceeds all others of its row by more than an exponent may have: e^88.7 in fp32, e^709 in fp64."""
OFFSET = 1000.0
"""Mean beside a deviation of 1: of E[x²] - E[x]² fp32 keeps one digit."""
BEYOND, BEYOND_IN_FP16 = 2.0**17, 2.0**9
"""Size of numbers, in fp16 of their squares, that are beyond 65,504."""
FACING = 32.0
"""Size of queries and keys that point away from each other: exponentials of -FACING² are 0 in fp32 and fp64."""
SCORE = 160.0
"""The same of scores in formats of 16 bits, whose exponentials are 0 in fp32: of larger ones, stored on the way, so few
digits are left that rounding them decides which key is the nearest."""
FACED = ("query", "queries")
"""Inputs whose products with others are what is compared; under `deep` those of the others are opposite."""


def _deep(random: Any, tensor: Tensor, sign: float) -> Any:
    return sign * (DEEP + 64 * random.standard_normal(tensor.shape))


def _faced(random: Any, tensor: Tensor, sign: float) -> Any:
    size = FACING if dtype_of(tensor.dtype).bits_count > 16 else (SCORE / max(tensor.shape[-1], 1) ** 0.5) ** 0.5
    return sign * (size + random.standard_normal(tensor.shape))


def _peak(random: Any, tensor: Tensor, place: int) -> Any:
    values = random.standard_normal(tensor.shape)
    if values.size:
        values[..., place] = PEAK_IN_FP64 if tensor.dtype == "fp64" else PEAK
    return values


def _offset(random: Any, tensor: Tensor) -> Any:
    return OFFSET + random.standard_normal(tensor.shape)


def _beyond(random: Any, tensor: Tensor) -> Any:
    size = BEYOND_IN_FP16 if dtype_of(tensor.dtype).name == "fp16" else BEYOND
    return size * random.standard_normal(tensor.shape)


HARD_ROWS: dict[str, Callable[[Any, Tensor], Any]] = {
    "deep": partial(_deep, sign=-1.0),
    "high": partial(_deep, sign=1.0),
    "peak_first": partial(_peak, place=0),
    "peak_last": partial(_peak, place=-1),
    "offset": _offset,
    "beyond": _beyond,
    "faced": partial(_faced, sign=1.0),
    "facing": partial(_faced, sign=-1.0),
}
"""All of each row far below 0 or above it; one number, the first or the last of its row, far above the others; a mean
far from 0; numbers beyond the range of fp16; and vectors that point one way and the other way."""


def way_of(name: str, distribution: str, floats: list[str]) -> str:
    """Return how an input of those of floats is drawn in a round of HARD_ROWS: others would hide what the first shows.

    Of vectors that are compared by their products it is these that are deep; all operands are beyond a format.

    >>> way_of("query", "deep", ["query", "key", "value"]), way_of("value", "deep", ["query", "key", "value"])
    ('faced', 'normal')
    >>> way_of("input", "offset", ["input", "weight", "bias"]), way_of("bias", "offset", ["input", "weight", "bias"])
    ('offset', 'normal')
    """
    if distribution == "beyond":
        return distribution
    if distribution == "deep" and any(name_of_queries in floats for name_of_queries in FACED):
        return "faced" if name in FACED else "facing" if name in ("key", "vectors") else "normal"
    return distribution if floats[:1] == [name] else "normal"


def with_gaps(numbers: Any) -> Any:
    """Return even numbers, one in three a zero; of five or more also the first and the last.

    >>> import numpy as np
    >>> with_gaps(np.full(7, 3)).tolist()
    [0, 2, 0, 2, 2, 0, 0]
    """
    numbers = with_zeros(numbers // 2 * 2)
    if numbers.size >= _WITH_ENDS:
        numbers.flat[0] = numbers.flat[-1] = 0
    return numbers


def with_zeros(numbers: Any) -> Any:
    """Return the numbers, one in three of them a zero.

    >>> import numpy as np
    >>> with_zeros(np.ones(4)).tolist()
    [1.0, 1.0, 0.0, 1.0]
    """
    numbers = numbers.copy()
    numbers.flat[2::3] = 0
    return numbers


def one_in_a_row(random: Any, shape: tuple[int, ...]) -> Any:
    """Return where numbers are not zero: one in a row, as it comes, so that about a third of the rows have none."""
    return random.random(shape) < 1 / max(shape[-1] if shape else 1, 2)


_WITH_ENDS = 5
