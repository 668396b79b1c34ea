"""What a group of a coefficient file must hold."""

import math
from collections.abc import Mapping
from typing import Any

from nearpeak.errors import SpecError

_HELD = {"scalars": (dict, "table"), "row_count": (int, "whole number"), "source": (str, "text"),
         "unidentified": (list, "list")}  # fmt: skip
"""What a group holds beside its version and intervals."""


def check_entry(entry: Mapping[str, Any], name: str, regimes: frozenset[str]) -> None:
    """Refuse a group that holds something else than `coefficient_file` writes."""
    for key, (kind, words) in _HELD.items():
        if not isinstance(entry.get(key, [] if key == "unidentified" else None), kind):
            raise SpecError(f"calibration {name}: {key} is {entry.get(key)!r}; a {words} is right, fit again")
    for key in ("interval", *(("plain_interval",) if "plain_interval" in entry else ())):
        ends = entry.get(key)
        if not isinstance(ends, dict) or regimes - ends.keys() or not all(map(_is_interval, ends.values())):
            wanted = ", ".join(sorted(regimes))
            raise SpecError(
                f"calibration {name}: {key} is {ends!r}; [low, high] around 1 for each of {wanted} is right, fit again"
            )


def _is_interval(ends: Any) -> bool:
    """Return whether these are ends, as shares of a predicted time, that the prediction itself lies between."""
    is_pair = isinstance(ends, list) and len(ends) == 2 and all(type(one) in (int, float) for one in ends)
    return is_pair and 0 < ends[0] <= 1 <= ends[1] < math.inf
