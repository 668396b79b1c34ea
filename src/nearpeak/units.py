"""Parsing and formatting of quantities with SI and binary prefixes; numbers are in base units."""

import math
import re
from datetime import UTC, datetime

from nearpeak.errors import SpecError, shown

DECIMAL_FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
SMALL_FACTORS = {"m": 1e-3, "u": 1e-6, "µ": 1e-6, "n": 1e-9, "p": 1e-12}
BINARY_FACTORS = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_FACTORS: dict[str, float] = {**DECIMAL_FACTORS, **SMALL_FACTORS, **BINARY_FACTORS}
_BINARY_UNITS = ("B", "B/s")
_QUANTITY = re.compile(r"([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?) ?([^\W\d_]\S*)")


def parse(text: object, unit: str) -> float:
    """Return the number of `unit` that `text` states, in base units.

    The text is a number and a prefixed unit, one space between them or none; decimal and binary prefixes are distinct.

    Raises:
        SpecError: the text is not a quantity, or its unit is not `unit` with a known prefix.

    >>> parse("4.8 TB/s", "B/s")
    4800000000000.0
    >>> parse("64KiB", "B")
    65536.0
    """
    match = _QUANTITY.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise SpecError(f"quantity: {shown(text)} is not a number and a unit; e.g. {_example(unit)}")
    number, prefixed = match.groups()
    value = float(number) * _factor(prefixed, unit, text)
    if math.isinf(value):
        raise SpecError(f"quantity: {shown(text)} is not finite; write a smaller number")
    return value


def parse_count(text: object, unit: str) -> int:
    """Return the whole number of `unit` that `text` states.

    >>> parse_count("141 GB", "B")
    141000000000
    """
    value = parse(text, unit)
    if value != int(value):
        raise SpecError(f"quantity: {shown(text)} is not a whole number of {unit}")
    return int(value)


def parse_share(text: object, where: str) -> float:
    """Return the share that `text` states in per cent, between 0 and 100, both left out.

    Raises:
        SpecError: the text is no such share; the message begins with `where`.

    >>> parse_share("2%", "--tolerance"), parse_share("80 %", "at_least")
    (0.02, 0.8)
    """
    digits = text.removesuffix("%").strip() if isinstance(text, str) and text.endswith("%") else ""
    try:
        share = float(digits) / 100
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise SpecError(f"{where} {shown(text)}: is not a share in per cent between 0 and 100; e.g. 2%")
    return share


def time_text(at_ns: int) -> str:
    """Return a time in ns since 1970 to the minute, in UTC; a dash where no calendar reaches.

    >>> time_text(86_400 * 10**9), time_text(10**30)
    ('1970-01-02 00:00', '–')
    """
    try:
        return datetime.fromtimestamp(at_ns / 1e9, tz=UTC).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, ValueError, OSError):
        return "–"


def show(value: float, unit: str) -> str:
    """Return `value` in base `unit` as text with four significant digits and a decimal prefix.

    >>> show(1.2826e-4, "s")
    '128.3 µs'
    >>> show(4.8e12, "B/s")
    '4.8 TB/s'
    >>> show(0, "B")
    '0 B'
    """
    if value == 0:
        return f"0 {unit}"
    prefixes = {**DECIMAL_FACTORS, "m": 1e-3, "µ": 1e-6, "n": 1e-9} if unit in ("s", "J") else dict(DECIMAL_FACTORS)
    if unit == "s":
        prefixes = {p: f for p, f in prefixes.items() if f <= 1}
    fitting = [(f, p) for p, f in prefixes.items() if float(f"{abs(value):.4g}") >= f]
    factor, prefix = max(fitting) if fitting else min((f, p) for p, f in prefixes.items())
    return f"{_four_digits(value / factor)} {prefix}{unit}"


def signed_percent(ratio: float) -> str:
    """Return a relative change in percent with its sign; none where it rounds to zero.

    >>> signed_percent(0.0312), signed_percent(-0.0004), signed_percent(-0.25)
    ('+3.1 %', '0.0 %', '-25.0 %')
    """
    percent = round(100 * ratio, 1)
    return f"{percent:+.1f} %" if percent else "0.0 %"


def counted(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> counted(1, "job"), counted(2, "batch"), counted(1300, "call")
    ('1 job', '2 batches', '1,300 calls')
    """
    return f"{count} {noun}" if count == 1 else f"{count:,} {noun}{'es' if noun.endswith('h') else 's'}"


def one_or_several(count: float, singular: str, plural: str) -> str:
    """Return a count, rounded, with the words that agree with it.

    >>> one_or_several(1.2, "kernel is", "kernels are"), one_or_several(1300, "kernel is", "kernels are")
    ('1 kernel is', '1,300 kernels are')
    """
    return f"1 {singular}" if round(count) == 1 else f"{round(count):,} {plural}"


def _four_digits(number: float) -> str:
    """Return `number` with four significant digits and no exponent below a million.

    >>> _four_digits(1234.56), _four_digits(0.5)
    ('1235', '0.5')
    """
    text = f"{number:.4g}"
    return f"{number:.0f}" if "e" in text and abs(number) < 1e6 and abs(number) >= 1 else text


def _factor(prefixed: str, unit: str, text: object) -> float:
    """Return the factor of the prefix in `prefixed`, which must end in exactly `unit`."""
    prefix = prefixed[: -len(unit)] if prefixed.endswith(unit) else None
    if prefix is None or prefix not in _FACTORS:
        raise SpecError(f"quantity: {text!r} is not in {unit}; write e.g. {_example(unit)}")
    if prefix in BINARY_FACTORS and unit not in _BINARY_UNITS:
        raise SpecError(f"quantity: {text!r} has a binary prefix on {unit}; use a decimal one")
    return _FACTORS[prefix]


def _example(unit: str) -> str:
    return f"'1.5 {'m' if unit == 's' else 'G'}{unit}'"
