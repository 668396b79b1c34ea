"""Text syntax of emulations: accumulator bits, summation order, formats of operands and results."""

from dataclasses import replace
from typing import Any

from nearpeak.errors import SpecError
from nearpeak.simulation.emulation.accumulator import FP32, HOPPER_FP8, Accumulator

_NAMED = {"fp32": FP32, "hopper_fp8": HOPPER_FP8}
_COUNTS = {"bits": "significant_bits_count", "group": "group_count", "promotion": "promotion_count"}
_FORMATS = ("factors", "vector")


def emulation_of_words(text: str) -> tuple[Accumulator, dict[str, str]]:
    """Return the accumulator, and further arguments of `emulated_case.emulated`.

    Args:
        text: `fp32` or `hopper_fp8`, then any of bits=, group=, promotion=, rounding= of sums, factors=, vector=.

    Raises:
        SpecError: a word that is not known, or a count that is none.

    >>> emulation_of_words("hopper_fp8 promotion=128 factors=mxfp8")[1]
    {'factors': 'mxfp8'}
    """
    accumulator, how = FP32, dict[str, str]()
    counts = dict[str, Any]()
    for place, word in enumerate(text.split()):
        key, sign, value = word.partition("=")
        if not sign and place == 0 and key in _NAMED:
            accumulator = _NAMED[key]
        elif sign and key in _COUNTS:
            if not value.isdigit():
                raise SpecError(f"--emulate: {word!r}: {key} is a whole number")
            counts[_COUNTS[key]] = int(value)
        elif sign and key == "rounding":
            counts["rounding"] = value
        elif sign and key in _FORMATS:
            how[key] = value
        else:
            known = ", ".join((*_NAMED, *(f"{name}=" for name in (*_COUNTS, "rounding", *_FORMATS))))
            raise SpecError(f"--emulate: {word!r} is not known; there are {known}")
    return replace(accumulator, **counts), how
