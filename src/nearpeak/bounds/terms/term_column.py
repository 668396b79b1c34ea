"""One term of a bound for a case or a column of cases, with its formula and quantities."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True, kw_only=True)
class TermColumn:
    """One term for one case (a float) or for many (an array)."""

    name: str
    """Resource."""
    time_s: Any
    """Time, a float or an array."""
    status: str
    """`proved` or `model`."""
    formula: str
    """How the time follows, for people."""
    expression: str = ""
    """The same over `quantities`, as `nearpeak.bounds.proof_checker` evaluates it."""
    quantities: Mapping[str, Any] = field(default_factory=dict)
    """What the expression names; the suffix is the unit."""


def larger(left: Any, right: Any) -> Any:
    """Return the larger time or count, element by element; plain integers stay exact.

    >>> larger(1.0, 2.0)
    2.0
    """
    if isinstance(left, (int, float)) and isinstance(right, (int, float)):
        return max(left, right)
    return np.maximum(left, right)


def beyond(size_bytes: Any, cache_bytes: int | None) -> Any:
    """Return the bytes beyond the cache's capacity; an unknown capacity could hold them all.

    >>> beyond(8, 5), beyond(8, None)
    (3, 0)
    """
    if cache_bytes is None:
        return size_bytes * 0
    if isinstance(size_bytes, int):
        return max(size_bytes - cache_bytes, 0)
    return np.maximum(size_bytes - cache_bytes, 0)


def is_zero(time_s: Any) -> bool:
    """Say whether a single case's term is 0 and need not be shown; columns are kept."""
    return isinstance(time_s, float) and time_s == 0.0
