"""The exceptions that nearpeak raises, each with its exit code on the command line."""

import re
from collections.abc import Callable

UNAVAILABLE_CODE, SLOWER_CODE, INCONCLUSIVE_CODE, INCORRECT_CODE = 3, 10, 11, 12
"""Exit codes of the command line that outweigh others: when several apply, 3, then 12, then 10, then 11."""
EXIT_CODES = {
    0: "fine, or a list with whatever is in it",
    1: "a case or model that cannot be captured or is not modelled, a failed side of compare, a refused row or job, a "
    "damaged store",
    2: "wrong use, name, file or store",
    UNAVAILABLE_CODE: "a package or device is missing, or a measured case has no result (crash, timeout)",
    SLOWER_CODE: "slower, or a limit (--within), rule or deadline is not kept",
    INCONCLUSIVE_CODE: "inconclusive: it cannot be told, nothing to compare with, no winner",
    INCORRECT_CODE: "numerically wrong",
    130: "interrupted",
}
"""What each exit code means, in every command."""
MOST_CHARACTERS = 800
"""Characters of a message; longer ones quote a long text of the user's, which is cut."""
_SHOWN_CHARACTERS = 60
"""Characters of a value that a message shows at most."""
_LONG = re.compile(r"""(?<!\w)'[^']{60,}+'|(?<!\w)"[^"]{60,}+"|\S{200,}+""")
"""What is cut first: quoted text, and words that are longer than a path."""
_DIGITS = re.compile(r"\d{80,}+")
"""Numbers that nobody reads, cut in messages of any length."""
_FIRST, _LAST = 500, 250
"""Characters that are kept of a message that is too long nevertheless."""


def shown(value: object, write: Callable[[object], str] = repr) -> str:
    """Return a value as messages name it, cut where it is long.

    >>> shown("x" * 100_000)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx… (100002 characters)"
    """
    try:
        text = write(value)
    except ValueError:  # Python does not write out whole numbers of more than 4,300 digits
        return f"a number of {value.bit_length()} bits" if isinstance(value, int) else f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:40]}… ({len(text)} characters)"


def error_type(name: object, otherwise: type["NearpeakError"]) -> type["NearpeakError"]:
    """Return the type of error that another process names, `otherwise` where it names none of these.

    >>> error_type("SpecError", CaptureError).__name__, error_type("shown", CaptureError).__name__
    ('SpecError', 'CaptureError')
    """
    candidate = globals().get(name) if isinstance(name, str) else None
    return candidate if isinstance(candidate, type) and issubclass(candidate, NearpeakError) else otherwise


def _fitting(message: str) -> str:
    """Return a message without numbers of many digits, whose quoted texts are cut where it is too long.

    >>> _fitting(f"a.toml: tolerance {'9' * 10_000!r}: is no share; e.g. 2%")
    "a.toml: tolerance '9999999999999999999999999999999999999999… (10000 characters)': is no share; e.g. 2%"
    >>> _fitting("a.toml: is not known: " + "word " * 10_000)[485:530]
    'd word word wor… (50022 characters) …word wor'
    """
    message = _DIGITS.sub(lambda text: shown(text[0], str), message)
    if len(message) <= MOST_CHARACTERS:
        return message
    short = _LONG.sub(lambda text: shown(text[0], str), message)
    if len(short) <= MOST_CHARACTERS:
        return short
    return f"{short[:_FIRST]}… ({len(message)} characters) …{short[-_LAST:]}"


class NearpeakError(Exception):
    """Base of all errors meant for people: one line that says where, what was got and what would be right."""

    exit_code = 1

    def __init__(self, *parts: object) -> None:
        """Keep the message; what it quotes of a user's input is cut where that is long."""
        super().__init__(*(_fitting(part) if isinstance(part, str) else part for part in parts))


class SpecError(NearpeakError, ValueError):
    """Malformed or contradictory case, target, unit, option or file."""

    exit_code = 2


class UnknownNameError(SpecError, LookupError):
    """A name that is not registered; the message lists the closest ones."""


class NotModelledError(NearpeakError, NotImplementedError):
    """A well-formed question for which there is no rule or no figure; it is never answered 0, 1.0 or infinity."""


class MissingExtraError(NearpeakError, ImportError):
    """An optional package is absent; the message names the extra that installs it."""

    exit_code = 3


class CaptureError(NearpeakError):
    """A model, file or trace that cannot be turned into a workload."""


class MeasureError(NearpeakError):
    """A measurement that could not be taken."""

    exit_code = 3


class ImplausibleError(NearpeakError):
    """A measurement below its bound: a rule, a target figure or a timer is wrong."""


class UnfitError(MeasureError):
    """The device or its host is temporarily unfit for measurements; later or elsewhere they are possible."""


class IncorrectError(MeasureError):
    """An implementation whose results fail validation."""

    exit_code = 12


class StoreError(NearpeakError):
    """A store that cannot be opened, read or written; nothing of what was to be written is in it."""

    exit_code = 2


class SchemaVersionError(StoreError):
    """A store of another version than this nearpeak writes; the message names the command that it needs."""


class NotFoundError(StoreError):
    """A run, series, alert or the like that the store does not hold."""
