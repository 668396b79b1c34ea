"""What a step gains from another device: sweeps over figures of the architecture, and which figure buys most."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from nearpeak.core.target import Target
from nearpeak.core.workload import Workload
from nearpeak.errors import SpecError
from nearpeak.sim.simulation import simulate_step
from nearpeak.targets import target_of
from nearpeak.units import parse, show

UNITS = {"sm_count": "", "clock.max": "Hz", "dram.bandwidth": "B/s", "l2.capacity": "B"}
"""Figures that are changed one by one, with their units; those of a unit's peak follow from clock and count."""
COST_RATIO = {"sm_count": 0.5, "clock.max": 0.0, "dram.bandwidth": 0.2, "l2.capacity": 0.15}
"""Share of a die that each figure takes, the rest being fixed. An assumption for lack of a published breakdown: give
your own where it matters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """A step on one edited device."""

    edits: tuple[str, ...]
    """Edits as `--set` takes them."""
    time_s: float
    """Simulated time of the step."""
    time_ratio: float
    """Of the time on the device as it is."""
    cost_ratio: float
    """Area of the die, of that of the device as it is, by `COST_RATIO` or the user's shares."""
    is_best: bool = False
    """Whether nothing that costs no more is faster."""


def sensitivity(workload: Workload, name: str, factor_ratio: float = 1.25) -> tuple[WhatIf, ...]:
    """Return the step with each figure changed alone by a factor, the largest effect first.

    Raises:
        SpecError: the factor is not positive.
    """
    if not factor_ratio > 0:
        raise SpecError(f"sensitivity: a factor of {factor_ratio:g}; more than 0 is right")
    base = target_of(name)
    figures = {key: value for key, value in _figures(base).items() if value}
    sets = [(f"{key}={_stated(key, value * factor_ratio)}",) for key, value in figures.items()]
    found = _all(workload, name, sets, COST_RATIO)
    return tuple(sorted(found, key=lambda one: -abs(1 - one.time_ratio)))


def sweep(
    workload: Workload, name: str, axes: Mapping[str, Sequence[str]], costs: Mapping[str, float] = COST_RATIO
) -> tuple[WhatIf, ...]:
    """Return the step on every combination of the values of each figure, those first that nothing dominates.

    Args:
        axes: values as `--set` takes them, by figure.
        costs: share of the die by figure.
    """
    sets = [
        tuple(f"{key}={value}" for key, value in zip(axes, values, strict=True))
        for values in itertools.product(*axes.values())
    ]
    return tuple(_with_best(list(_all(workload, name, sets, costs))))


def _all(
    workload: Workload, name: str, sets: Sequence[tuple[str, ...]], costs: Mapping[str, float]
) -> Iterator[WhatIf]:
    base = target_of(name)
    base_s, figures = simulate_step(workload, base).time_s, _figures(base)
    if not base_s > 0:
        raise SpecError(f"{workload.name}: no call of it is modelled on {name}; 'nearpeak simulate' says why")
    for edits in sets:
        device = target_of(name, edits)
        time_s = simulate_step(workload, device).time_s
        yield WhatIf(
            edits=edits, time_s=time_s, time_ratio=time_s / base_s, cost_ratio=_cost(_figures(device), figures, costs)
        )


def _figures(target: Target) -> dict[str, float]:
    return {
        "sm_count": float(target.sm_count), "clock.max": target.clock_hz,
        "dram.bandwidth": target.dram.bandwidth_bytes_per_s or 0.0, "l2.capacity": float(target.l2.capacity_bytes or 0),
    }  # fmt: skip


def _stated(key: str, value: float) -> str:
    """Return a figure as an edit states it."""
    if key == "sm_count":
        return str(round(value))
    return f'"{round(value / 2**20)} MiB"' if UNITS[key] == "B" else f'"{show(value, UNITS[key])}"'


def _cost(new: Mapping[str, float], old: Mapping[str, float], costs: Mapping[str, float]) -> float:
    fixed = 1.0 - sum(costs.values())
    return fixed + sum(share * (new[key] / old[key] if old[key] else 1.0) for key, share in costs.items())


def _with_best(found: list[WhatIf]) -> Iterator[WhatIf]:
    """Yield all in order of cost, and say which are on the edge."""
    fastest = float("inf")
    for one in sorted(found, key=lambda each: (each.cost_ratio, each.time_s)):
        best = one.time_s < fastest
        fastest = min(fastest, one.time_s)
        yield replace(one, is_best=best)


def axes_of(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the values of each figure of texts such as `sm_count=66,132`.

    >>> axes_of(["sm_count=66,132"])
    {'sm_count': ('66', '132')}
    """
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        key, sign, values = text.partition("=")
        if not sign or not values or key in found:
            raise SpecError(
                f"--sweep {text!r}: is not FIGURE=VALUE,VALUE,… with each figure once; e.g. sm_count=66,132"
            )
        if key not in UNITS:
            raise SpecError(f"--sweep {text!r}: {key} cannot be swept; {', '.join(UNITS)} can")
        found[key] = tuple(_value(key, value.strip(), text) for value in values.split(","))
    return found


def _value(key: str, value: str, text: str) -> str:
    """Return one value as an edit states it, checked."""
    if key == "sm_count":
        if not value.isdigit():
            raise SpecError(f"--sweep {text!r}: {value!r} is no number of multiprocessors")
        return value
    bare = value.strip('"')
    parse(bare, UNITS[key])
    return f'"{bare}"'
