"""What a change is put down to: the machine, the same code, what moved together, the stack, code against stack."""

import itertools
import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from nearpeak.analyze.launches import FLOOR_RATIO, MARGIN_RATIO, Floats, judged_column
from nearpeak.analyze.paired import ALPHA_RATIO
from nearpeak.core.attribution import (
    CO_MOVEMENT,
    DEVICE,
    FACTORIAL,
    INFRA,
    NOT_CODE,
    STACK,
    Attribution,
    FactorialEffects,
    Side,
)
from nearpeak.core.paired import INCONCLUSIVE, INVARIANT, Judgement
from nearpeak.errors import SpecError

UNLIKELY_RATIO = 0.01
"""What comes together with a smaller chance than this is told."""
Difference = Sequence[tuple[str, str, str]]
"""Components that differ: name, version in good, version in bad."""


def attributed(
    good: Side,
    bad: Side,
    difference: Difference,
    *,
    together: Sequence[Attribution] = (),
    effects: FactorialEffects | None = None,
    elsewhere: Judgement | None = None,
) -> tuple[Attribution, ...]:
    """Return what a change may be put down to, in the order of the questions; a final answer ends them.

    The machine's state on either side; the same machine code, launch and stack on both (then it is not the code); what
    moved together (`co_moved`); components that differ (none: only the code is left); code against stack (`factorial`);
    the same builds on a second device of the model.

    Args:
        elsewhere: verdict of bad against good on a second device; none where it was not asked.

    >>> [one.step for one in attributed(Side(faults=("throttled",)), Side(), ())]
    ['infra']
    """
    faults = [*(f"good: {one}" for one in good.faults), *(f"bad: {one}" for one in bad.faults)]
    if faults:
        return (Attribution(step=INFRA, axis="", key="", text="; ".join(faults), final=True),)
    if _same(good, bad):
        text = "machine code, launch configuration and stack are the same on both sides"
        return (Attribution(step=NOT_CODE, axis="", key=good.code_digest, text=text, final=True),)
    found = list(together)
    for name, before, after in difference:
        text = f"{name} changed from {before or 'none'} to {after or 'none'}"
        axis = "driver" if "driver" in name.lower() else "component"
        found.append(Attribution(step=STACK, axis=axis, key=name, text=text))
    if not difference:
        text = "no component differs: only the code is left"
        found.append(Attribution(step=STACK, axis="commit", key="", text=text))
    if effects is not None:
        found += _by_effects(effects)
    if elsewhere is not None and elsewhere.verdict != INCONCLUSIVE:
        general = elsewhere.verdict != INVARIANT
        text = f"on a second device the ratio is {elsewhere.time_ratio:.4f}: {elsewhere.verdict}"
        axis, key = ("", "general") if general else ("device", "this one")
        found.append(Attribution(step=DEVICE, axis=axis, key=key, text=text, final=not general))
    return tuple(found)


def _same(good: Side, bad: Side) -> bool:
    """Return whether all that could differ is known and equal."""
    known = bool(good.code_digest) and good.code_digest == bad.code_digest
    return known and dict(good.configuration) == dict(bad.configuration) and set(good.stack) == set(bad.stack)


def _by_effects(effects: FactorialEffects) -> list[Attribution]:
    pairs = (("code", effects.code), ("stack", effects.stack), ("interaction", effects.interaction))
    return [
        Attribution(step=FACTORIAL, axis=axis, key=one.verdict, text=f"{axis} makes a ratio of {one.time_ratio:.4f}")
        for axis, one in pairs
        if one.verdict not in (INVARIANT, INCONCLUSIVE)
    ]


def co_moved(axes: Mapping[str, Mapping[str, str]], shifted: Collection[str]) -> tuple[Attribution, ...]:
    """Return the values of axes that series which shifted share more than accident explains, the least likely first.

    For each value, K of N series carry it and k of the n shifted ones do; the chance is that of k or more when n are
    drawn from N. What every series carries says nothing.

    Args:
        axes: of each series, its value on each axis (commit, device, host, component, driver).
        shifted: series whose level changed; all must be among `axes`.

    Raises:
        SpecError: a shifted series that is not known.

    >>> axes = {f"s{i}": {"host": "a" if i < 5 else "b"} for i in range(20)}
    >>> [(one.key, round(one.chance_ratio, 5)) for one in co_moved(axes, ["s0", "s1", "s2", "s3", "s4"])]
    [('a', 6e-05)]
    """
    unknown = sorted(set(shifted) - set(axes))
    if unknown:
        raise SpecError(f"attribution: shifted series {unknown[0]!r} is not among the {len(axes)} series given")
    moved = set(shifted)
    pairs = sorted({pair for one in axes.values() for pair in one.items()})
    found = []
    for axis, value in pairs:
        carrying = {name for name, one in axes.items() if one.get(axis) == value}
        both = len(carrying & moved)
        chance = hypergeometric_tail(len(axes), len(carrying), len(moved), both)
        if chance < UNLIKELY_RATIO:
            text = f"{both} of {len(moved)} that shifted have {axis} {value}, and {len(carrying)} of all {len(axes)}"
            found.append(Attribution(step=CO_MOVEMENT, axis=axis, key=value, text=text, chance_ratio=chance))
    return tuple(sorted(found, key=lambda one: (one.chance_ratio or 0.0, one.axis, one.key)))


def hypergeometric_tail(total: int, marked: int, drawn: int, least: int) -> float:
    """Return the chance of `least` marked ones or more among `drawn` of `total`, of which `marked` are marked.

    >>> hypergeometric_tail(10, 5, 2, 2), hypergeometric_tail(10, 5, 2, 0)
    (0.2222222222222222, 1.0)
    """
    ways = sum(
        math.comb(marked, k) * math.comb(total - marked, drawn - k) for k in range(least, min(marked, drawn) + 1)
    )
    return ways / math.comb(total, drawn)


def factorial(launches: Sequence[tuple[bool, bool, float]], margin_ratio: float = MARGIN_RATIO) -> FactorialEffects:
    """Return what code, stack and both together did, out of launches in the order in which they ran.

    Args:
        launches: whether the code is new, whether the stack is, and the launch's median time in seconds.

    Raises:
        SpecError: one of the four combinations has fewer than two launches, or a time is not positive and finite.

    >>> cells = [(False, False), (True, False), (False, True), (True, True)]
    >>> times = [1.0 + 0.05 * code + 0.0001 * i for i in range(4) for code, stack in cells]
    >>> effects = factorial([(*cell, time) for cell, time in zip(cells * 4, times)])
    >>> effects.code.verdict, effects.stack.verdict
    ('regression', 'invariant')
    """
    for cell in itertools.product((False, True), repeat=2):
        if (count := sum(one[:2] == cell for one in launches)) < 2:
            new = ["new" if part else "old" for part in cell]
            side = f"{new[0]} code on the {new[1]} stack"
            raise SpecError(f"attribution: {count} launches of the {side}; at least 2 are needed")
    if not all(math.isfinite(time) and time > 0 for _, _, time in launches):
        raise SpecError("attribution: a time is not positive and finite")
    x = np.log([time for _, _, time in launches])
    halves = np.array([one[:2] for one in launches], dtype=np.float64) - 0.5
    code, stack = halves[:, 0], halves[:, 1]
    # Coded by halves, each effect is the mean over the other's two states, and the product is the interaction.
    columns: list[Floats] = [
        np.ones(x.size),
        code,
        stack,
        code * stack,
        np.arange(x.size, dtype=np.float64) - (x.size - 1) / 2,
    ]
    limits = (ALPHA_RATIO, FLOOR_RATIO, margin_ratio)
    found = [judged_column(x, columns, which, limits)[0] for which in (1, 2, 3)]
    return FactorialEffects(code=found[0], stack=found[1], interaction=found[2])
