"""Slices and rows of case columns, and detection of rows whose counts could overflow 64 bits."""

from collections.abc import Mapping
from typing import Any

import numpy as np

PIECE_ROWS = 8192
"""Rows per piece: a dozen columns of them fit in a core's own cache."""
_SAFE_PRODUCT = 2.0**54
"""Product of extents up to which every count stays below 2^63: rules multiply it by less than 512."""


def some_rows(axes: Mapping[str, Any], where: Any) -> dict[str, Any]:
    """Return some rows of the axes of a group."""
    return {name: value if isinstance(value, int) else value[where] for name, value in axes.items()}


def row_of(axes: Mapping[str, Any], index: int) -> dict[str, int]:
    """Return one row of the axes of a group as exact integers."""
    return {name: value if isinstance(value, int) else int(value[index]) for name, value in axes.items()}


def wide_rows(axes: Mapping[str, Any], rows: int, degree: int) -> Any:
    """Return which rows could overflow 64 bits, none when no row could.

    Every count of a rule is at most a small multiple of the product of its extents, to the rule's degree.
    """
    product = np.ones(rows)
    for value in axes.values():
        product *= np.maximum(value, 1)
    wide = product**degree > _SAFE_PRODUCT if degree > 1 else product > _SAFE_PRODUCT
    return wide if wide.any() else None
