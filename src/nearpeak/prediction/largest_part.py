"""Compiled search for the largest part of each predicted time."""

from typing import Any

import numpy as np

from nearpeak.base.compilation import compiled_exactly

_BLOCK = 512
"""Rows whose largest parts so far stay in a core's first cache."""


def largest(parts_s: Any) -> tuple[Any, Any]:
    """Return the place of the largest part of each row, the first of equal ones, and that part.

    >>> largest(np.array([[1.0, 3.0, 3.0], [2.0, 0.0, 1.0]]))
    (array([1, 0]), array([3., 2.]))
    """
    if _search.is_plain_for(len(parts_s)):
        places = parts_s.argmax(axis=1)
        return places, np.take_along_axis(parts_s, places[:, None], axis=1)[:, 0]
    places, most_s = np.empty(len(parts_s), dtype=np.int64), np.empty(len(parts_s))
    _search.machine_code(np.ascontiguousarray(parts_s.T), places, most_s)
    return places, most_s


@compiled_exactly(owned=False)
def _search(columns: Any, places: Any, most_s: Any) -> None:
    """Write the place of the largest part of each row, and the part."""
    for start in range(0, places.shape[0], _BLOCK):
        end = min(start + _BLOCK, places.shape[0])
        block, most = places[start:end], most_s[start:end]
        block[:], most[:] = 0, -np.inf
        for place in range(columns.shape[0]):
            column = columns[place, start:end]
            for row in range(end - start):
                is_larger = column[row] > most[row]
                block[row] = place if is_larger else block[row]
                most[row] = column[row] if is_larger else most[row]
