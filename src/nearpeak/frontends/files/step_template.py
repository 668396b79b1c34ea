"""Workloads saved as text templates: sizes are polynomials in batch and length, filled in at requested values."""

import base64
import re
import zlib
from collections.abc import Iterator, Sequence

import numpy as np

from nearpeak.errors import SpecError

MONOMIALS = ((0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2))
"""Exponents of batch and length, in the order of the coefficients of a polynomial."""
NUMBER = re.compile(r"(?<![\d@])(0|[1-9]\d*)(?!\d)")
"""Whole numbers of a text, those that name a polynomial left out."""
SYMBOL = re.compile(r"@(\d+)")
"""Names of polynomials: @3 is the fourth."""
_RUNS = re.compile(r'"runs:([\d,]+)"')
"""A pattern of bits as the lengths of its runs: of zeros, of ones, and so on in turn."""


def instantiated(template: str, polynomials: Sequence[Sequence[int]], batch: int, length: int) -> str:
    """Return the text of a template at a batch and a length (tokens, or cached positions of a decode step).

    Args:
        polynomials: denominator, then coefficients of MONOMIALS; those left out are 0.

    Raises:
        SpecError: a number of it is not whole there.

    >>> instantiated('{"m":@0,"n":4096}', [(2, 0, 0, 0, 2)], batch=8, length=3)
    '{"m":24,"n":4096}'
    """
    values = [batch**power * length**other for power, other in MONOMIALS]
    numbers = []
    for denominator, *coefficients in polynomials:
        number, rest = divmod(sum(map(int.__mul__, coefficients, values)), denominator)
        if rest:
            raise SpecError(f"batch {batch} and length {length}: a size of the step would not be whole")
        numbers.append(str(number))
    return SYMBOL.sub(lambda match: numbers[int(match[1])], template)


def with_patterns(text: str) -> str:
    r"""Return a text whose patterns of bits are packed as in saved workloads, instead of stated by their runs.

    >>> zlib.decompress(base64.b64decode(with_patterns('"runs:2,10"').strip('"')))
    b'?\xf0'
    """
    return _RUNS.sub(lambda match: f'"{base64.b64encode(packed_runs(match[1])).decode()}"', text)


def packed_runs(lengths: str) -> bytes:
    """Return the packed bits of runs whose lengths are stated with commas between them."""
    counts = np.array(lengths.split(","), np.int64)
    bits = np.repeat(np.arange(len(counts), dtype=np.uint8) % 2, counts)
    return zlib.compress(np.packbits(bits).tobytes(), 1)


def runs_of(packed: bytes, bit_count: int) -> str:
    """Return the lengths of the runs of packed bits.

    >>> runs_of(packed_runs("2,10"), 12)
    '2,10'
    """
    bits = np.unpackbits(np.frombuffer(zlib.decompress(packed), np.uint8), count=bit_count)
    starts = np.flatnonzero(np.diff(bits, prepend=0))
    return ",".join(map(str, np.diff(starts, prepend=0, append=bit_count)))


def folded(text: str) -> str:
    r"""Return lines with each number as its difference from that of the last line of the same words.

    Equal layers differ in running numbers only, so that they become equal lines, which compress to nothing. A
    difference d is written as 2d, and as -2d - 1 where it is negative.

    >>> folded("layer 7: 0.8\nlayer 9: 0.5")
    'layer 14: 0.16\nlayer 4: 0.5'
    """
    last: dict[tuple[str, ...], list[int]] = {}
    lines = []
    for words, numbers in _lines(text):
        before = last.get(words, [0] * len(numbers))
        steps = (number - other for number, other in zip(numbers, before, strict=True))
        lines.append(_line(words, [2 * step if step >= 0 else -2 * step - 1 for step in steps]))
        last[words] = numbers
    return "\n".join(lines)


def unfolded(text: str) -> str:
    r"""Return the lines that `folded` was given.

    >>> unfolded(folded("layer 7: 0.8\nlayer 6: 0.8"))
    'layer 7: 0.8\nlayer 6: 0.8'
    """
    last: dict[tuple[str, ...], list[int]] = {}
    lines = []
    for words, codes in _lines(text):
        before = last.get(words, [0] * len(codes))
        numbers = [other + (code >> 1 ^ -(code & 1)) for code, other in zip(codes, before, strict=True)]
        lines.append(_line(words, numbers))
        last[words] = numbers
    return "\n".join(lines)


def _lines(text: str) -> Iterator[tuple[tuple[str, ...], list[int]]]:
    """Yield the words and the numbers of each line, which alternate."""
    for line in text.split("\n"):
        parts = NUMBER.split(line)
        yield tuple(parts[::2]), list(map(int, parts[1::2]))


def _line(words: Sequence[str], numbers: Sequence[int]) -> str:
    return "".join([f"{word}{number}" for word, number in zip(words, numbers, strict=False)]) + words[-1]
