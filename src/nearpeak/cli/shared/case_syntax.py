"""Command-line syntax of a case: `OP AXIS=EXTENT ...`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearpeak.base.folders import refuse_folder
from nearpeak.errors import SpecError, shown

if TYPE_CHECKING:
    from nearpeak.core.work.case import Case
    from nearpeak.ops import Operator


_MOST_DIGITS = 4300
"""Digits up to which Python reads a number."""


def case_of(words: list[str], command: str) -> "Case":
    """Return the case that the words of `command` state.

    Raises:
        SpecError: a word is not AXIS=EXTENT, an axis is given twice, or the operator refuses it.
    """
    from nearpeak.ops import OPS

    if "=" in words[0]:
        raise SpecError(f"{command}: {words[0]!r} is not an operator; name it first, then its axes: gemm m=256 n=256 …")
    if words[0] not in OPS:
        refuse_folder(words[0])
    if words[0] not in OPS and Path(words[0]).is_file():
        raise SpecError(f"{command}: {words[0]} is a file; tables of cases are known by .csv, .jsonl or .parquet")
    arguments: dict[str, Any] = {}
    for word in words[1:]:
        name, sign, value = word.partition("=")
        if not sign:
            raise SpecError(f"{command}: {word!r} is not AXIS=EXTENT; e.g. m=4096")
        if name in arguments:
            raise SpecError(f"{command}: {name} is given twice; give it once")
        try:
            arguments[name] = value_of(value)
        except SpecError as error:
            raise SpecError(f"{command}: {name}: {error}") from None
    phase = arguments.pop("phase", "forward")
    return OPS[words[0]].case(str(phase), **arguments)


def usage_of(operator: "Operator") -> Iterator[str]:
    """Yield the command that bounds a case of each phase, with every axis and, in brackets, its default.

    A default that follows from other axes shows as `…`.

    >>> from nearpeak.ops import OPS
    >>> next(usage_of(OPS["softmax"]))
    'nearpeak bound softmax rows= columns= dtype= [out_dtype=…] [log=false]'
    """
    for phase, signature in operator.signatures.items():
        words = [operator.name, *(["phase=backward"] if phase == "backward" else [])]
        words += [
            f"[{name}={plain(signature.defaults[name])}]" if name in signature.defaults else f"{name}="
            for name in signature.names()
        ]
        yield f"nearpeak bound {' '.join(words)}"


def plain(value: object) -> str:
    """Return a default as one writes it on the command line; `…` for one that follows from others."""
    value = getattr(value, "value", value)
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "…"}[value]
    return " ".join(plain(item) for item in value) if isinstance(value, (tuple, list)) else str(value)


def value_of(text: str) -> int | str | bool:
    """Return the number, the truth or the text that a word states.

    Raises:
        SpecError: the number has more digits than any extent.

    >>> value_of("4_096"), value_of("True"), value_of("bf16")
    (4096, True, 'bf16')
    """
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    digits = text.replace("_", "")
    if not (digits.isascii() and digits.isdigit()):  # other scripts have digits, too, and superscripts are none
        return text
    if len(digits) > _MOST_DIGITS:
        raise SpecError(f"{shown(text, str)} is not an extent; a whole number from 0 to 2^63 - 1 is right")
    return int(digits)
