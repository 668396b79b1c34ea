"""Values of a sweep axis, or of axes stepped together, from a list, range or function; their number is known first."""

import math
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nearpeak.base.input_files import text_of_file
from nearpeak.errors import SpecError
from nearpeak.ops import Value

_RANGE = re.compile(r"(\d+):(\d+)(?::(\d+))?")
_FUNCTION = re.compile(r"([a-z0-9]+)\((.*)\)", re.DOTALL)
_EXAMPLES = (
    "[1, 8, 64], 'a:b:step', 'pow2(a,b)', 'loguniform(a,b,n,seed)', 'near(tile,…)', 'edges(a,b)' or "
    "'weights(file,n,seed)'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisValues:
    """Values of one axis, or of several that are stepped together."""

    names: tuple[str, ...]
    """Axes; more than one move together."""
    value_count: int
    """Number of values, known without generating them."""
    rows: Callable[[], Iterator[tuple[Value, ...]]]
    """Generates the values, one per axis."""


def axis_values(key: str, stated: object) -> AxisValues:
    """Return the values that `given` states for the axis or axes in `key`.

    Raises:
        SpecError: not a value, list, range or function that a sweep knows.

    >>> list(axis_values("m", "pow2(64,512)").rows())
    [(64,), (128,), (256,), (512,)]
    >>> list(axis_values("m", "near(64,128)").rows())
    [(63,), (64,), (65,), (127,), (128,), (129,)]
    >>> list(axis_values("m,n", "zip(1:3, [4, 5, 6])").rows())
    [(1, 4), (2, 5), (3, 6)]
    """
    names = tuple(name.strip() for name in key.split(","))
    if len(names) > 1:
        return _together(names, stated)
    values = _sequence(names[0], stated)
    return AxisValues(names=names, value_count=len(values), rows=lambda: ((value,) for value in values))


def _together(names: tuple[str, ...], stated: object) -> AxisValues:
    """Return axes that are stepped together, stated as zip(…, …)."""
    shown = ",".join(names)
    match = _FUNCTION.fullmatch(stated.strip()) if isinstance(stated, str) else None
    if match is None or match.group(1) != "zip":
        raise SpecError(
            f"{shown}: got {str(stated)[:60]!r}; axes that move together are written zip(1:4, [8, 16, 32, 64])"
        )
    texts = _split(match.group(2))
    if len(names) != len(texts):
        raise SpecError(f"{shown}: zip(…) has {len(texts)} parts for {len(names)} axes; give one for each")
    parts = [_sequence(name, text) for name, text in zip(names, texts, strict=True)]
    lengths = {name: len(part) for name, part in zip(names, parts, strict=True)}
    if len(set(lengths.values())) > 1:
        counted = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise SpecError(f"{shown}: axes that move together need equally many values; {counted}")
    return AxisValues(names=names, value_count=len(parts[0]), rows=lambda: zip(*parts, strict=True))


def _sequence(name: str, stated: object) -> Sequence[Value]:
    """Return the values of one axis; ranges stay unexpanded."""
    if isinstance(stated, list):
        return _listed(name, stated)
    if isinstance(stated, (bool, int)):
        return (stated,)
    if not isinstance(stated, str):
        raise SpecError(f"{name}: got {stated!r}; give a whole number, {_EXAMPLES}")
    return _from_text(name, stated.strip())


def _from_text(name: str, text: str) -> Sequence[Value]:
    if match := _RANGE.fullmatch(text):
        first, last, step = int(match[1]), int(match[2]), int(match[3] or 1)
        if step < 1 or last < first:
            raise SpecError(
                f"{name}: range {first}:{last}:{step} is empty; write first:last:step with step of at least 1"
            )
        return range(first, last + 1, step)
    if match := _FUNCTION.fullmatch(text):
        return _function(name, match[1], match[2])
    if (text.startswith("[") and text.endswith("]")) or re.fullmatch(r"[\w.]+(,[\w.]+)+", text):
        return _listed(name, [int(part) if part.isdigit() else part for part in _split(text.strip("[]"))])
    if re.search(r"[:()\[\]]", text):
        raise SpecError(f"{name}: got {text[:60]!r}; give a whole number, {_EXAMPLES}")
    return (int(text),) if text.isdigit() else (text,)


def _listed(name: str, items: list[object]) -> tuple[Value, ...]:
    if not items:
        raise SpecError(f"{name}: the list is empty; give at least one value")
    for value in items:
        if not isinstance(value, (int, str, bool)):
            raise SpecError(f"{name}: {value!r} in the list is neither a whole number nor a text")
    return tuple(value for value in items if isinstance(value, (int, str, bool)))


def _function(name: str, function: str, arguments: str) -> Sequence[int]:
    known: dict[str, tuple[int, Callable[..., Sequence[int]]]] = {
        "pow2": (2, _pow2), "loguniform": (4, _loguniform), "edges": (2, _edges),
    }  # fmt: skip
    parts = _split(arguments)
    if function == "weights":
        if len(parts) != 3 or not (parts[1].isdigit() and parts[2].isdigit()):
            raise SpecError(f"{name}: weights({', '.join(parts)}) needs a file, how many values are drawn, and a seed")
        counts = _histogram(name, Path(parts[0]))
        drawn = random.Random(int(parts[2])).choices(list(counts), weights=list(counts.values()), k=int(parts[1]))
        return tuple(sorted(drawn))
    if function == "near":
        if not parts or not all(tile.isdigit() and int(tile) > 0 for tile in parts):
            raise SpecError(f"{name}: near({arguments}) needs positive tiles, whole numbers such as near(64,128)")
        return tuple(sorted({extent for tile in map(int, parts) for extent in (tile - 1, tile, tile + 1)}))
    if function not in known:
        raise SpecError(f"{name}: function {function!r} is not known; give {_EXAMPLES}")
    wanted, apply = known[function]
    if len(parts) != wanted or not all(part.isdigit() for part in parts):
        raise SpecError(f"{name}: {function}({arguments}) needs {wanted} whole numbers")
    first, last = int(parts[0]), int(parts[1])
    if first < 1 or last < first:
        raise SpecError(f"{name}: {function}({arguments}) needs 1 <= first <= last")
    return apply(name, *map(int, parts))


def _pow2(name: str, first: int, last: int) -> tuple[int, ...]:
    values = tuple(1 << e for e in range((first - 1).bit_length(), last.bit_length()))
    if not values:
        raise SpecError(f"{name}: no power of two lies between {first} and {last}")
    return values


def _edges(name: str, first: int, last: int) -> tuple[int, ...]:  # noqa: ARG001  # as the other functions
    """Return both ends and their inner neighbours."""
    return tuple(sorted({extent for extent in (first, first + 1, last - 1, last) if first <= extent <= last}))


def _loguniform(name: str, first: int, last: int, count: int, seed: int) -> tuple[int, ...]:
    """Return distinct draws, uniform in the logarithm, in rising order."""
    if not 1 <= count <= 1_000_000:
        raise SpecError(f"{name}: loguniform draws {count} values; give 1 to 1,000,000")
    drawn = random.Random(seed)
    low, high = math.log(first), math.log(last)
    return tuple(sorted({min(last, max(first, round(math.exp(drawn.uniform(low, high))))) for _ in range(count)}))


def _histogram(name: str, file: Path) -> dict[int, int]:
    """Return counts by value; lines are `value,count` or `value count`, a first line of words and `#` lines skipped."""
    try:
        lines = text_of_file(file).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"{name}: weights({file}) cannot be read: {error}") from None
    counts: dict[int, int] = {}
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].replace(",", " ").split()
        if not words or (number == 1 and not words[0].isdigit()):
            continue
        if len(words) != 2 or not all(word.isdigit() for word in words):
            raise SpecError(f"{name}: {file}:{number}: got {line[:60]!r}; a line is a value and its count")
        counts[int(words[0])] = counts.get(int(words[0]), 0) + int(words[1])
    if not any(counts.values()):
        raise SpecError(f"{name}: {file}: holds no counts; a line is a value and its count")
    return counts


def _split(text: str) -> list[str]:
    """Return the parts of `text` between commas outside brackets.

    >>> _split("1:4, [8, 16], pow2(1,8)")
    ['1:4', '[8, 16]', 'pow2(1,8)']
    """
    parts, depth = [""], 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip().strip("'\"") for part in parts if part.strip()]
