"""Checks of axes and choices, for single cases and whole columns, with errors that name the axis."""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from nearpeak.errors import SpecError, shown
from nearpeak.ops.shared.definition.array_arithmetic import maximum

WIDEST_WINDOW = 100_000
"""Taps of one dimension; they are counted one by one, and no real window comes near."""


def required_positive(where: str, **axes: int) -> None:
    """Refuse an axis below 1.

    >>> required_positive("conv", groups=1, sw=2)
    """
    for name, extent in axes.items():
        if _some(extent < 1):
            raise SpecError(f"{where}: {name}={_first(extent < 1, extent)} is below 1; it must be 1 or more")


_TRUTHS = {"true": True, "1": True, "false": False, "0": False}


def choice_of(where: str, name: str, value: object, wanted: type) -> str | bool:
    """Return a choice as its rule takes it: words and tables state true and false as text, and `2` as a number.

    >>> choice_of("cdist", "norm", 2, str), choice_of("softmax", "log", "True", bool)
    ('2', True)
    """
    if wanted is bool and (truth := _TRUTHS.get(str(value).lower())) is not None:
        return truth
    if wanted is str and isinstance(value, str):
        return value
    if wanted is str and isinstance(value, (int, float)) and not isinstance(value, bool) and value == value // 1:
        return str(int(value))
    raise SpecError(f"{where}: {name}={shown(value)} is not a {wanted.__name__}")


def required_one_of(where: str, known: Collection[str], **choices: str) -> None:
    """Refuse a choice that is none of those known.

    >>> required_one_of("gemm", ("nn", "nt", "tn", "tt"), layout="nt")
    """
    for name, value in choices.items():
        if value not in known:
            raise SpecError(f"{where}: {name}={shown(value)} is not one of {', '.join(known)}")


def required_window(where: str, **axes: int) -> None:
    """Refuse windows without a tap, and those that only a typing error makes so wide.

    >>> required_window("conv", kh=3, kw=3)
    """
    required_positive(where, **axes)
    for name, extent in axes.items():
        if _some(extent > WIDEST_WINDOW):
            extent_got = _first(extent > WIDEST_WINDOW, extent)
            raise SpecError(f"{where}: {name}={extent_got} is over {WIDEST_WINDOW} taps; is it a typing error?")


def required_at_most(where: str, most: Mapping[str, int], **axes: int) -> None:
    """Refuse an axis above another one, or above the product that the key of `most` spells.

    >>> required_at_most("gemm", {"batch": 4}, a_batch=1, b_batch=4)
    """
    for limit_name, limit in most.items():
        for name, extent in axes.items():
            refused = extent > limit
            if _some(refused):
                got, wanted = _first(refused, extent), _first(refused, limit)
                raise SpecError(f"{where}: {name}={got} contradicts {limit_name}={wanted}, which it may not exceed")


def required_multiple(where: str, part: Mapping[str, int], **axes: int) -> None:
    """Refuse an axis that is no whole multiple of another one; only 0 is a multiple of 0.

    >>> required_multiple("conv", {"groups": 2}, in_channels=4)
    """
    for part_name, size in part.items():
        for name, extent in axes.items():
            refused = extent % maximum(size, 1) + extent * (size == 0) != 0
            if _some(refused):
                got, wanted = _first(refused, extent), _first(refused, size)
                raise SpecError(f"{where}: {name}={got} contradicts {part_name}={wanted}; it must be a multiple of it")


def _some(refused: Any) -> bool:
    """Return whether any row is refused."""
    return refused if isinstance(refused, bool) else bool(np.any(refused))


def _first(refused: bool, extent: int) -> int:
    """Return the extent of the first refused row."""
    rows, extents = np.broadcast_arrays(refused, extent)
    return int(extents.reshape(-1)[int(np.argmax(rows.reshape(-1)))])
