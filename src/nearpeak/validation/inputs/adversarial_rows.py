"""Input rows that expose unsafe shortcuts: wrong initial maxima, cancelling squares, overflow of fp16."""

from collections.abc import Callable
from functools import partial
from typing import Any

from nearpeak.core.work.dtype import dtype_of
from nearpeak.core.work.tensor import Tensor

DEEP = 20_000.0
"""Size of numbers below any usual initial maximum, 0 or -10,000: fp16 holds it, exponentials of -DEEP are 0."""
PEAK, PEAK_IN_FP64 = 200.0, 3200.0
"""A number that exceeds all others of its row by more than the range of exp: e^88.7 in fp32, e^709 in fp64."""
OFFSET = 1000.0
"""Mean of numbers with a deviation of 1: fp32 keeps one digit of E[x²] - E[x]²."""
BEYOND, BEYOND_IN_FP16 = 2.0**17, 2.0**9
"""Size of numbers (in fp16, of numbers whose squares are) beyond 65,504."""
FACING = 32.0
"""Size of queries and keys of opposite direction: exponentials of -FACING² are 0 in fp32 and fp64."""
SCORE = 160.0
"""Scores of the same kind in 16-bit formats, whose exponentials are 0 in fp32: of larger stored scores so few digits
    are left that rounding decides which key is the nearest."""
FACED = ("query", "queries")
"""Inputs compared by their products with others; under `deep` the others have the opposite sign."""


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
"""Whole rows far below or above 0; one number, the first or last of its row, far above the others; a mean far from 0;
    numbers beyond the range of fp16; and vectors of opposite directions."""


def way_of(name: str, distribution: str, floats: list[str]) -> str:
    """Return the distribution of one input in a round of HARD_ROWS: only the first float input is adversarial.

    Of vectors compared by their products, queries and keys are; in a round beyond a format, all operands are.

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
    """Return a mask with one element per row on average, so that about a third of the rows have none."""
    return random.random(shape) < 1 / max(shape[-1] if shape else 1, 2)


_WITH_ENDS = 5
