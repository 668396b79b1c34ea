"""Templates of captured steps with their polynomials in batch and length, found from texts at a few sizes."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache
from math import lcm, prod

from nearpeak.base.canonical_json import canonical_json
from nearpeak.core.work.workload import Workload
from nearpeak.errors import SpecError
from nearpeak.frontends.files.saved_workload import load_text, save_text
from nearpeak.frontends.files.step_template import MONOMIALS, NUMBER, instantiated, runs_of, with_patterns
from nearpeak.frontends.huggingface.step_library import Polynomial

MOST_RUNS = 64
"""Runs of equal bits up to which a pattern is stated by them."""
_NEW_LINE = re.compile(r'(?<=[\]}]),(?=\{)|(?<="\]),(?=\[)')
"""Places in the text of a workload where a line of its template ends."""
_ROW = re.compile(rf'{_NEW_LINE.pattern}|(?<=\]),(?=\[(?:\d+,(?:\d+,"|\{{)|\[))')
"""Places where a row ends: as a line, or as one of what is known of values, of patterns and of what is returned."""
Size = tuple[int, int]
"""Batch and length."""


def text_of(workload: Workload) -> str:
    """Return the text of a workload, patterns of bits by their runs where these are few."""
    data = json.loads(save_text(workload))
    for row, pattern in zip(data.get("patterns", []), workload.patterns, strict=False):
        runs = runs_of(pattern.packed, prod(pattern.shape))
        if runs.count(",") < MOST_RUNS:
            row[1] = f"runs:{runs}"
    return canonical_json(data)


def in_lines(text: str) -> str:
    """Return a text with one call, buffer or case in each line."""
    return _NEW_LINE.sub(",\n", text)


class Piece:
    """A template with its polynomials, which are constants and symbols in turn with words."""

    def __init__(self, words: Sequence[str], fields: Sequence[int | Polynomial]) -> None:
        """Write the template: a word, then a constant or the name of a polynomial, and so on."""
        names: dict[Polynomial, int] = {}
        parts = [words[0]]
        for field, word in zip(fields, words[1:], strict=True):
            parts += [str(field) if isinstance(field, int) else f"@{names.setdefault(field, len(names))}", word]
        self.template, self.polynomials = "".join(parts), tuple(names)
        self._words, self._fields = list(words), fields

    def has_words_of(self, text: str) -> bool:
        """Return whether a text differs from those of the template in numbers only."""
        return NUMBER.split(text)[::2] == self._words

    def gives(self, text: str, size: Size) -> bool:
        """Return whether the template at a size is the workload of `text`."""
        try:
            mine = instantiated(self.template, self.polynomials, *size)
            return mine == text or text_of(load_text(with_patterns(mine), "template")) == text
        except SpecError:
            return False

    def deeper(self, text: str, size: Size) -> "Piece":
        """Return the template of a model with more layers of the same kinds, from its text at one size.

        A number is constant, or one of the polynomials, as the numbers at its place in rows of the same words are.

        Raises:
            SpecError: a row of the text has other words, or a number is none of those.
        """
        places: dict[tuple[tuple[str, ...], int], set[int | Polynomial]] = {}
        fields = iter(self._fields)
        for words, numbers in _rows(instantiated(self.template, self.polynomials, *size)):
            for place in range(len(numbers)):
                field = next(fields)
                places.setdefault((words, place), set()).add(0 if isinstance(field, int) else field)
        deep: list[int | Polynomial] = []
        for words, numbers in _rows(text):
            for place, number in enumerate(numbers):
                kinds = places.get((words, place))
                if kinds is None:
                    raise SpecError(f"a row of other words: {words[0][:80]}")
                alike = [kind for kind in kinds if kind and number == _value(kind, size)]
                if not alike and 0 not in kinds:
                    raise SpecError(f"{number} is no polynomial that stands there: {words[0][:80]}")
                deep.append(alike[0] if alike else number)
        return Piece(NUMBER.split(text)[::2], deep)


def fitted(texts: Mapping[Size, str]) -> Piece:
    """Return the template of the texts at all pairs of some batches and some lengths.

    Raises:
        SpecError: the texts differ in more than numbers.
    """
    parts = {size: NUMBER.split(text) for size, text in texts.items()}
    words = [part[::2] for part in parts.values()]
    if any(other != words[0] for other in words[1:]):
        raise SpecError("the texts differ in more than numbers")
    polynomial = cache(_interpolation(list(texts)))
    rows = zip(*(map(int, part[1::2]) for part in parts.values()), strict=True)
    return Piece(words[0], [row[0] if len({*row}) == 1 else polynomial(row) for row in rows])


def _interpolation(sizes: Sequence[Size]) -> Callable[[tuple[int, ...]], Polynomial]:
    """Return the function from values at the sizes to denominator and coefficients of their polynomial."""
    powers = [len({size[axis] for size in sizes}) for axis in (0, 1)]
    monomials = [powers_of for powers_of in MONOMIALS if powers_of[0] < powers[0] and powers_of[1] < powers[1]]
    assert len(monomials) == len(sizes)
    inverse = _inverse([[b**i * n**j for i, j in monomials] for b, n in sizes])

    def polynomial(values: tuple[int, ...]) -> Polynomial:
        factors = {powers_of: sum(map(Fraction.__mul__, row, map(Fraction, values)))
                   for powers_of, row in zip(monomials, inverse, strict=True)}  # fmt: skip
        coefficients = [Fraction(factors.get(powers_of, 0)) for powers_of in MONOMIALS]
        while coefficients and not coefficients[-1]:
            coefficients.pop()
        denominator = lcm(*(coefficient.denominator for coefficient in coefficients))
        return denominator, *(int(coefficient * denominator) for coefficient in coefficients)

    return polynomial


def _inverse(rows: list[list[int]]) -> list[list[Fraction]]:
    """Return the inverse of a matrix."""
    size = len(rows)
    work = [[*map(Fraction, row), *(Fraction(i == j) for j in range(size))] for i, row in enumerate(rows)]
    for column in range(size):
        pivot = next(i for i in range(column, size) if work[i][column])
        work[column], work[pivot] = work[pivot], work[column]
        work[column] = [value / work[column][column] for value in work[column]]
        for i in range(size):
            if i != column and work[i][column]:
                factor = work[i][column]
                work[i] = [a - factor * b for a, b in zip(work[i], work[column], strict=True)]
    return [row[size:] for row in work]


def _value(polynomial: Polynomial, size: Size) -> int:
    """Return the value of a polynomial at a size; -1 where it is not whole."""
    try:
        return int(instantiated("@0", [polynomial], *size))
    except SpecError:
        return -1


def _rows(text: str) -> Iterator[tuple[tuple[str, ...], list[int]]]:
    """Yield the words and the numbers of each row of a text."""
    for row in _ROW.split(text):
        parts = NUMBER.split(row)
        yield tuple(parts[::2]), [int(part) for part in parts[1::2]]
