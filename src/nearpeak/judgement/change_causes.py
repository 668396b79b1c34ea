"""Attribution of a change: axis values shared by the series that changed together."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from nearpeak.errors import SpecError

UNLIKELY_RATIO = 0.01
"""Axis values with a smaller chance of coincidence than this are reported."""

LEAST_SHARED = 2
"""Series that shifted and carry a value; one alone shares nothing with any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedValue:
    """A value of an axis that the series whose level changed share more than accident explains."""

    axis: str
    """Name of the axis: operator, device, runner, …"""
    value: str
    """Value of the axis."""
    text: str
    """Evidence in one sentence."""
    chance_ratio: float
    """Chance that so much would come together by accident."""


def co_moved(axes: Mapping[str, Mapping[str, str]], shifted: Collection[str]) -> tuple[SharedValue, ...]:
    """Return the values of axes that series which shifted share more than accident explains, the least likely first.

    For each value, K of N series carry it and k of the n shifted ones do; the chance is that of k or more when n are
    drawn from N. What every series carries says nothing, and neither does what one of the shifted carries alone.

    Args:
        axes: of each series, its value on each axis (operator, device, runner).
        shifted: series whose level changed; all must be among `axes`.

    Raises:
        SpecError: a shifted series that is not known.

    >>> axes = {f"s{i}": {"host": "a" if i < 5 else "b"} for i in range(20)}
    >>> [(one.value, round(one.chance_ratio, 5)) for one in co_moved(axes, ["s0", "s1", "s2", "s3", "s4"])]
    [('a', 6e-05)]
    """
    unknown = sorted(set(shifted) - set(axes))
    if unknown:
        raise SpecError(f"attribution: shifted series {unknown[0]!r} is not among the {len(axes)} series given")
    moved = set(shifted)
    pairs = sorted({pair for cause in axes.values() for pair in cause.items()})
    causes = []
    for axis, value in pairs:
        carrying = {name for name, cause in axes.items() if cause.get(axis) == value}
        both = len(carrying & moved)
        chance = hypergeometric_tail(len(axes), len(carrying), len(moved), both)
        if both >= LEAST_SHARED and chance < UNLIKELY_RATIO:
            text = f"{both} of {len(moved)} that shifted have {axis} {value}, and {len(carrying)} of all {len(axes)}"
            causes.append(SharedValue(axis=axis, value=value, text=text, chance_ratio=chance))
    return tuple(sorted(causes, key=lambda cause: (cause.chance_ratio, cause.axis, cause.value)))


def hypergeometric_tail(total: int, marked: int, drawn: int, least: int) -> float:
    """Return the chance of `least` marked ones or more among `drawn` of `total`, of which `marked` are marked.

    >>> hypergeometric_tail(10, 5, 2, 2), hypergeometric_tail(10, 5, 2, 0)
    (0.2222222222222222, 1.0)
    """
    ways = sum(
        math.comb(marked, k) * math.comb(total - marked, drawn - k) for k in range(least, min(marked, drawn) + 1)
    )
    return ways / math.comb(total, drawn)
