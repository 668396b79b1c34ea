"""Architecture sweeps: step time as device figures vary, and the figure with the largest gain."""

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from nearpeak.core.answers.what_if import Sensitivity, WhatIf
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.core.work.workload import Workload
from nearpeak.errors import NearpeakError, SpecError
from nearpeak.simulation.machine_from_target import machine_of
from nearpeak.simulation.power_governor import Power
from nearpeak.simulation.run_energy import power_of, scaled
from nearpeak.simulation.step_simulation import Alone, alone
from nearpeak.targets import target_of
from nearpeak.units import parse, show

UNITS = {
    "sm_count": "", "clock.max": "Hz", "dram.bandwidth": "B/s", "l2.capacity": "B", "special.sm_clock": "OP",
    "link.nvlink.bandwidth": "B/s",
}  # fmt: skip
"""Figures that are changed one by one, with units, and `peak.UNIT.sm_clock`; rates follow from clock and count."""
COST_RATIO = {
    "sm_count": 0.5, "clock.max": 0.0, "dram.bandwidth": 0.2, "l2.capacity": 0.15, "special.sm_clock": 0.02,
    "link.nvlink.bandwidth": 0.05, "peak": 0.15,
}  # fmt: skip
"""Share of a die that each figure takes, the rest being fixed: what a product or a special-function unit takes is part
of the multiprocessors' half. An assumption for lack of a published breakdown: give your own where it matters."""
_INSIDE = ("special.sm_clock", "peak")
"""Figures whose area lies inside multiprocessors."""
_PEAK, _PER_CLOCK = "peak.", ".sm_clock"

Cases = tuple[tuple[Case, int], ...]
"""Distinct cases of a step and how often each runs."""
Times = tuple[tuple[float, float] | None, ...]
"""Time in s and energy in J of each case, all its calls together; none where it is not modelled."""


class Executor(Protocol):
    """Runs many devices concurrently: `concurrent.futures` executors, or a farm."""

    def map(self, function: Callable[[Any], Any], values: Iterable[Any], /, *, chunksize: int = 1) -> Iterator[Any]:
        """Yield the results in the order of the values."""


def sensitivity(
    workload: Workload, name: str, factor_ratio: float = 1.25, executor: Executor | None = None
) -> tuple[Sensitivity, ...]:
    """Return the step with each figure changed alone down and up by a factor, the largest swing first.

    Raises:
        SpecError: the factor is not more than 1.
    """
    if not factor_ratio > 1:
        raise SpecError(f"sensitivity: a factor of {factor_ratio:g}; more than 1 is right")
    figures = {key: value for key in _keys(workload, target_of(name)) if (value := figure(target_of(name), key))}
    sets = [
        (f"{key}={_stated(key, value * factor)}",)
        for key, value in figures.items() for factor in (1 / factor_ratio, factor_ratio)
    ]  # fmt: skip
    results = list(_all(workload, name, sets, COST_RATIO, executor))
    rows = [
        Sensitivity(name=key, less=less, more=more)
        for key, less, more in zip(figures, results[::2], results[1::2], strict=True)
    ]
    return tuple(sorted(rows, key=lambda row: -row.swing_ratio()))


def sweep(
    workload: Workload, name: str, axes: Mapping[str, Sequence[str]], costs: Mapping[str, float] = COST_RATIO,
    executor: Executor | None = None,
) -> tuple[WhatIf, ...]:  # fmt: skip
    """Return the step on every combination of the values of each figure, in order of area and time.

    Args:
        axes: values as `--set` takes them, by figure.
        costs: share of the die by figure.
        executor: runs devices concurrently; none runs them in sequence.
    """
    missing = [key for key in axes if not figure(target_of(name), key)]
    if missing:
        raise SpecError(
            f"--sweep: {name} states no {', '.join(missing)}, so that nothing can be compared with it; state it in a "
            f'file that says base = "{name}", and sweep that'
        )
    sets = [
        tuple(f"{key}={value}" for key, value in zip(axes, values, strict=True))
        for values in itertools.product(*axes.values())
    ]
    return with_best(tuple(_all(workload, name, sets, costs, executor)))


def _all(
    workload: Workload, name: str, sets: Sequence[tuple[str, ...]], costs: Mapping[str, float],
    executor: Executor | None,
) -> Iterator[WhatIf]:  # fmt: skip
    cases = tuple(_counts(workload).items())
    base = _each(cases, target_of(name), 1.0, 1.0)
    if not any(run is not None for run in base):
        raise SpecError(f"{workload.name}: no call of it is modelled on {name}; 'nearpeak simulate' says why")
    unknown_count = sum(call.call_count for call in workload.calls if call.case is None)
    run = partial(_what_if, cases, name, dict(costs), base, unknown_count)
    yield from map(run, sets) if executor is None else executor.map(run, sets, chunksize=max(1, len(sets) // 64))


def _counts(workload: Workload) -> Counter[Case]:
    counts: Counter[Case] = Counter()
    for call in workload.calls:
        if call.case is not None:
            counts[call.case] += call.call_count
    return counts


def _what_if(
    cases: Cases, name: str, costs: Mapping[str, float], base: Times, unknown_count: int, edits: tuple[str, ...]
) -> WhatIf:
    """Return a step on one edited device; ratios are over the calls modelled on both."""
    device, old = target_of(name, edits), target_of(name)
    keys = [edit.partition("=")[0] for edit in edits]
    area = _area(device, old, keys, costs)
    times = _each(cases, device, area, device.clock_hz / old.clock_hz)
    both = [(was, now) for was, now in zip(base, times, strict=True) if was is not None and now is not None]
    if not both:
        raise SpecError(f"{', '.join(edits)}: no call is modelled on such a device; give figures nearer to {name}")
    old_s, new_s = sum(was[0] for was, _ in both), sum(now[0] for _, now in both)
    old_j, new_j = sum(was[1] for was, _ in both), sum(now[1] for _, now in both)
    stated = power_of(device) is not None
    left = sum(count for (_, count), now in zip(cases, times, strict=True) if now is None)
    return WhatIf(
        edits=edits, time_s=sum(pair[0] for pair in times if pair), time_ratio=new_s / old_s, area_ratio=area,
        energy_j=sum(pair[1] for pair in times if pair) if stated else None,
        energy_ratio=new_j / old_j if stated and old_j else None, unmodelled_count=unknown_count + left,
    )  # fmt: skip


def _each(cases: Cases, device: Target, area_ratio: float, clock_ratio: float) -> Times:
    """Return time and energy of each case; a larger die draws more at rest and is given more power."""
    machine, known, powers = machine_of(device), dict[Case, Alone | str](), dict[str, Power | None]()
    times: list[tuple[float, float] | None] = []
    for case, count in cases:
        dtype = dict(case.dtypes).get("dtype", "bf16")
        if dtype not in powers:
            power = power_of(device, dtype)
            powers[dtype] = power and scaled(power, area_ratio, clock_ratio)
        result = alone(case, device, machine, known, powers[dtype])
        times.append(None if isinstance(result, str) else (result.time_s * count, result.energy_j * count))
    return tuple(times)


def _keys(workload: Workload, target: Target) -> list[str]:
    """Return the figures of a device that a step may gain from: units of its main format among them."""
    formats: Counter[str] = Counter()
    for case, count in _counts(workload).items():
        formats[dict(case.dtypes).get("dtype", "")] += count
    units = [f"tensor.{name}" for name, _ in formats.most_common() if f"tensor.{name}" in target.peaks][:1]
    return [*UNITS, *(f"{_PEAK}{unit}{_PER_CLOCK}" for unit in units)]


def figure(target: Target, key: str) -> float:
    """Return a figure of a device by the name that edits have for it; 0 where no document states it.

    >>> figure(target_of("h100_sxm"), "sm_count"), figure(target_of("h100_sxm"), "peak.tensor.bf16.sm_clock")
    (132.0, 4096.0)
    """
    if key.startswith(_PEAK):
        peak = target.peaks.get(key.removeprefix(_PEAK).removesuffix(_PER_CLOCK))
        return peak.flop_per_clock if peak else 0.0
    link = target.links.get("nvlink")
    value = {
        "sm_count": target.sm_count, "clock.max": target.clock_hz, "dram.bandwidth": target.dram.bandwidth_bytes_per_s,
        "l2.capacity": target.l2.capacity_bytes, "special.sm_clock": target.special_per_clock,
        "link.nvlink.bandwidth": link.bandwidth_bytes_per_s if link else None,
    }[key]  # fmt: skip
    return float(value or 0)


def _stated(key: str, value: float) -> str:
    """Return a figure as an edit states it."""
    if key == "sm_count":
        return str(round(value))
    unit = UNITS.get(key, "FLOP")
    return f'"{round(value / 2**20)} MiB"' if unit == "B" else f'"{show(value, unit)}"'


def _area(new: Target, old: Target, keys: Sequence[str], costs: Mapping[str, float]) -> float:
    """Return the area of a die, of that of the other: each figure that differs grows its share, and the rest stays."""
    area, each_sm = 1.0, 1.0
    for key in keys:
        before, after = figure(old, key), figure(new, key)
        share = costs.get("peak" if key.startswith(_PEAK) else key, 0.0)
        if not before or after == before or key == "sm_count":
            continue
        if key.startswith(_PEAK) or key in _INSIDE:
            each_sm += share * (after / before - 1) / max(costs.get("sm_count", 1.0), 1e-9)
        else:
            area += share * (after / before - 1)
    return area + costs.get("sm_count", 0.0) * (each_sm * new.sm_count / old.sm_count - 1)


def with_best(results: Sequence[WhatIf]) -> tuple[WhatIf, ...]:
    """Return all in order of area and time, and say which ones no other beats in time, energy and area."""
    order = sorted(results, key=lambda result: (result.area_ratio, result.time_s, result.energy_j or 0.0))
    edge: list[tuple[float, float]] = []
    rows = []
    for result in order:  # a smaller area was there before: only time and energy decide
        time_s, energy_j = result.time_s, result.energy_j if result.energy_j is not None else math.inf
        best = not any(t <= time_s and e <= energy_j for t, e in edge)
        if best:
            edge = [(t, e) for t, e in edge if not (t >= time_s and e >= energy_j)] + [(time_s, energy_j)]
        rows.append(replace(result, is_best=best))
    return tuple(rows)


def axes_of(texts: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the values of each figure of texts such as `sm_count=66,132`.

    >>> axes_of(["sm_count=66,132"])
    {'sm_count': ('66', '132')}
    """
    axes: dict[str, tuple[str, ...]] = {}
    for text in texts:
        key, sign, values = text.partition("=")
        if not sign or not values or key in axes:
            raise SpecError(
                f"--sweep {text!r}: is not FIGURE=VALUE,VALUE,… with each figure once; e.g. sm_count=66,132"
            )
        if key not in UNITS and not (key.startswith(_PEAK) and key.endswith(_PER_CLOCK)):
            raise SpecError(
                f"--sweep {text!r}: {key} cannot be swept; {', '.join(UNITS)} and {_PEAK}UNIT{_PER_CLOCK} can"
            )
        axes[key] = tuple(_value(key, value.strip(), text) for value in values.split(","))
    return axes


def _value(key: str, value: str, text: str) -> str:
    """Return one value as an edit states it, checked."""
    if key == "sm_count":
        if not value.isdigit() or not int(value):
            raise SpecError(f"--sweep {text!r}: {value!r} is no number of multiprocessors; at least 1 is right")
        return value
    bare = value.strip('"')
    try:
        amount = parse(bare, UNITS.get(key, "FLOP"))
    except NearpeakError as error:
        raise SpecError(f"--sweep {text!r}: {error}") from None
    if not 0 < amount < math.inf:
        raise SpecError(f"--sweep {text!r}: {value!r} is not more than 0")
    return f'"{bare}"'
