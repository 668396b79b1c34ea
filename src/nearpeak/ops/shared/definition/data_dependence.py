"""Worst-case values of axes that depend on data, such as the rows that an embedding touches."""

import dataclasses
from collections.abc import Mapping
from functools import reduce
from operator import mul
from typing import Any

from nearpeak.core.work.case import Case
from nearpeak.ops import OPS
from nearpeak.ops.shared.definition.array_arithmetic import maximum, minimum


def highest_case(case: Case, *, captured: bool = False) -> Case | None:
    """Return the case with its values at their worst; none where the case does not depend on values or gives them.

    Args:
        captured: the case was captured, so that it states at most the least of what the values could be.

    >>> from nearpeak.ops import case
    >>> highest = highest_case(case("embedding", tokens=8, dim=4, vocab=100, dtype="bf16"))
    >>> dict(highest.axes)["touched_rows"]
    8
    >>> highest_case(case("embedding", tokens=8, dim=4, vocab=100, touched_rows=5, dtype="bf16")) is None
    True
    """
    if not OPS[case.op].data_axes:
        return None
    axes = dict(case.axes)
    worst = highest_axes(case.op, case.phase, axes, captured=captured)
    return None if worst == axes else dataclasses.replace(case, axes=tuple(worst.items()))


def highest_axes(op: str, phase: str, axes: Mapping[str, Any], *, captured: bool = False) -> dict[str, Any]:
    """Return the axes, integers or columns, with those that stand for unknown values at their largest."""
    defaults, worst = OPS[op].signatures[phase].defaults, dict(axes)
    for name, limits in OPS[op].data_axes.items():
        if name not in axes:
            continue
        most = reduce(minimum, (reduce(mul, (axes[axis] for axis in limit.split("*"))) for limit in limits))
        unknown = captured or axes[name] == defaults[name]
        # Known values stay; of unknown ones, the most that the extents permit, and never less than the least.
        worst[name] = maximum(axes[name], most * unknown + 0 * axes[name])
    return worst
