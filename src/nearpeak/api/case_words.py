"""Cases stated in words: `OP AXIS=EXTENT ...`, as commands and tools take them."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nearpeak.base.folders import refuse_folder
from nearpeak.errors import SpecError, shown

if TYPE_CHECKING:
    from nearpeak.core.work.case import Case

_MOST_DIGITS = 4300
"""Digits up to which Python reads a number."""


def case_of(words: list[str], command: str) -> "Case":
    """Return the case that the words of `command` state.

    Raises:
        SpecError: a word is not AXIS=EXTENT, an axis is given twice, or the operator refuses it.
    """
    from nearpeak.frontends.huggingface.published_models import MODELS
    from nearpeak.ops import OPS

    if "=" in words[0]:
        raise SpecError(f"{command}: {words[0]!r} is not an operator; name it first, then its axes: gemm m=256 n=256 …")
    if words[0] not in OPS:
        refuse_folder(words[0])
    if words[0] not in OPS and Path(words[0]).is_file():
        raise SpecError(f"{command}: {words[0]} is a file; tables of cases are known by .csv, .jsonl or .parquet")
    if words[0] not in OPS and (words[0].startswith("hf:") or words[0].lower() in MODELS):
        raise SpecError(f"{command}: {words[0]} is a model, not an operator; see 'nearpeak analyze {words[0]}'")
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


def words_of(case: str, command: str) -> list[str]:
    """Return the words of one case, quotes resolved as a shell does.

    Raises:
        SpecError: the text is empty, or a quote in it does not end.
    """
    try:
        words = shlex.split(case)
    except ValueError as error:
        raise SpecError(f"{command}: case {case!r}: {str(error).lower()}") from None
    if not words:
        raise SpecError(
            f"{command}: case {case!r}: is empty; give e.g. 'gemm m=4096 n=4096 k=4096 dtype=bf16' 'm=4097'"
        )
    return words


def replaced_words(words: list[str], other: list[str]) -> list[str]:
    """Return the words of the second case, those that it leaves out taken from the first.

    >>> replaced_words(["gemm", "m=1", "n=2"], ["m=3"])
    ['gemm', 'm=3', 'n=2']
    """
    if other and "=" not in other[0]:
        return other
    new = dict(word.partition("=")[::2] for word in other)
    merged = [f"{name}={new.pop(name)}" if (name := word.partition("=")[0]) in new else word for word in words]
    return merged + [f"{name}={value}" for name, value in new.items()]
