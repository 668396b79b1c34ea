"""A case as words of the command line: OP AXIS=EXTENT and so on."""

from typing import TYPE_CHECKING, Any

from nearpeak.errors import SpecError

if TYPE_CHECKING:
    from nearpeak.core.case import Case


def case_of(words: list[str], command: str) -> "Case":
    """Return the case that the words of `command` state.

    Raises:
        SpecError: a word is not AXIS=EXTENT, an axis is given twice, or the operator refuses it.
    """
    from nearpeak.ops import OPS

    arguments: dict[str, Any] = {}
    for word in words[1:]:
        name, sign, value = word.partition("=")
        if not sign:
            raise SpecError(f"{command}: {word!r} is not AXIS=EXTENT; e.g. m=4096")
        if name in arguments:
            raise SpecError(f"{command}: {name} is given twice; give it once")
        arguments[name] = _value(value)
    phase = arguments.pop("phase", "forward")
    return OPS[words[0]].case(str(phase), **arguments)


def _value(text: str) -> int | str | bool:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    digits = text.replace("_", "")
    return int(digits) if digits.isdigit() else text
