"""Functions of scripts: those that are alike but for their numbers share one code, which is then in the caches."""

import builtins
import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any

import numpy as np

KNOWN = {
    "ceil": math.ceil, "gcd": math.gcd, "sqrt": math.sqrt, "exp": np.exp, "log": np.log, "log2": np.log2,
    "hypot": np.hypot, "power": math.pow, "exponential": math.exp,
}  # fmt: skip
"""Names that scripts may use."""
POWER, EXPONENTIAL = "power({0}, {1})", "exponential({0})"
"""Functions by the C library, which columns go through too."""
SCRIPT = "script"
"""What each of the functions is called."""
_SPACE = {**KNOWN, "__builtins__": builtins}
"""Global names of all of them."""
_NAME = re.compile(r"\bx\d+(?:_\d+)?\b")
"""Names that lines define."""
_RENAMED = re.compile(r"\b[kx]\d+(?:_\d+)?\b")
"""The same and names of constants: both count from 0 where they first stand."""
_LONGEST_TEXT = 150
"""Letters of an expression that stands within another one: parsers stop at some depth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One line of arithmetic."""

    names: tuple[str, ...]
    """What it defines; nothing where it is a condition that the script holds for."""
    text: str
    """Expression or statement; constants are `k0`, `k1` and so on."""
    uses: tuple[str, ...]
    """Names that it needs."""


def function_of(
    arguments: Sequence[str], names: Sequence[str], lines: Sequence[Line], constants: Mapping[str, Any]
) -> Callable[..., Any]:
    """Return a function of arguments, or where `names` are stated of one tuple of these names each with its argument.

    >>> lines = [Line(names=(), text="return x * k7", uses=("x",))]
    >>> twice, thrice = (function_of(["x"], [], lines, {"k7": number}) for number in (2, 3))
    >>> twice(5), thrice(5), twice.__code__ is thrice.__code__
    (10, 15, True)
    """
    new: dict[str, str] = {}

    def renamed(found: re.Match[str]) -> str:
        kind = found[0][0]
        return new.setdefault(found[0], f"{kind}{sum(one[0] == kind for one in new)}")

    body = [_RENAMED.sub(renamed, line) for line in _shortened(lines)]
    used = [name for name in new if name in constants]
    taken = "".join(f"{new[name]}, " for name in used)
    first = [*_taken_apart(arguments, names), *([f"{taken}= kept"] if used else [])]
    text = "\n    ".join([f"def {SCRIPT}({'pairs' if names else ', '.join(arguments)}, kept):", *first, *body])
    return made(_code(text), tuple(constants[name] for name in used))


def made(code: CodeType, constants: tuple[Any, ...]) -> Callable[..., Any]:
    """Return the function of a code and its constants."""
    return FunctionType(code, _SPACE, SCRIPT, (constants,))


@lru_cache(maxsize=1 << 12)
def _code(text: str) -> CodeType:
    space: dict[str, Any] = {}
    exec(text, space)
    found: CodeType = space[SCRIPT].__code__
    return found


def _taken_apart(arguments: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the lines that take pairs of these names and their arguments apart; nothing without names."""
    if not names:
        return []
    pairs = "".join(f"(n{place}, {one}), " for place, one in enumerate(arguments))
    seen = "".join(f"n{place}, " for place in range(len(names)))
    return [f"{pairs}= pairs", f"if ({seen}) != {tuple(names)!r}: return None"]


def _shortened(lines: Sequence[Line]) -> list[str]:
    """Return lines of code, expressions that are used once in the place where they are."""
    counts = Counter(name for line in lines for name in _NAME.findall(line.text))
    held, found = dict[str, str](), list[str]()
    for line in lines:
        text = _NAME.sub(lambda name: held.pop(name[0], name[0]), line.text)
        if len(line.names) == 1 and counts[line.names[0]] == 1 and len(text) <= _LONGEST_TEXT:
            held[line.names[0]] = f"({text})"
        else:
            found.append(f"{', '.join(line.names)} = {text}" if line.names else text)
    return found
