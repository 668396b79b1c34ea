"""Transfer of GEMM coefficients between devices by documented power limits and launch floors."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DTYPES
from nearpeak.core.work.target import Target
from nearpeak.prediction.gemm.gemm_coefficients import COEFFICIENTS
from nearpeak.prediction.power.board_power import (  # fmt: skip
    clock_hz,
    headroom,
    is_held,
    is_paced_by_power,
    product_energy,
    reclocked,
    repower,
    share_of_rate,
    slowed,
)
from nearpeak.prediction.power.product_energy import generation_energy, scales_by_vectors
from nearpeak.prediction.product_units import unit_of

_LAUNCH, _TENSOR, _CLOCK, _BALANCED, _DRAM = (
    [coefficient.name for coefficient in COEFFICIENTS].index(name)
    for name in ("launch_s", "tensor_ratio", "clock_ratio", "balanced_elements", "dram_ratio")
)
_RATE = [_TENSOR, _CLOCK]
_OF_TABLE = [
    [coefficient.name for coefficient in COEFFICIENTS].index(name) for name in ("far_ratio", "unaligned_ratio")
]
"""Coefficients that tell sessions of one table apart, not devices: docs/lab/products_unseen.md."""
_LEAST_READ = 0.7
"""Share of the memory rate that products of NVIDIA's other devices, and norms on all, exceed: less is of kernels."""
_BLOCKS_COST = 1.41
"""By how much more of their rate bf16 and fp8 with one scale sustain than fp8 in blocks, on the same device: 1.22 and
1.20 on the H100, 1.10 and 1.07 on the B200, 2.29 and 2.03 on the L40S, by fitted coefficients; their geometric mean."""
_LEAST_READ_SINGLE = 0.6
"""Share of the memory rate that products without scales of blocks exceed on all devices: 0.61 on the MI100."""
_PACED = [
    [coefficient.name for coefficient in COEFFICIENTS].index(name)
    for name in (
        "tile_start_s", "split_s", "step_s", "grid_ramp_s", "quantise_s", "quantise_row_s", "quantise_ramp_s", "pad_s",
    )
]  # fmt: skip
"""Waits that are a number of clocks: of barriers, pipelines and short kernels."""
_KEPT = [coefficient.name for coefficient in COEFFICIENTS].index("quantise_residency_ratio")
_LITTLE = 1e-6
"""Least value in a geometric mean."""
_ISSUED, _LANES_FLOP = 0.8, 256
"""Most of the rate of vector units that products reach, and FLOP per clock from which that is so: schedulers with as
many lanes as a warp issue one instruction a clock, a product or a load; where a warp takes two clocks, as on the
P100, V100, T4 and A100, loads go in between. The P4 reaches 0.81 (its fit).
"""
_HALVED_FLOP = 2048
"""FLOP per clock of a multiprocessor from which chips have caches of two parts; boards' chips have half of it."""


def transferred(
    target: Target, dtypes: Mapping[str, str], measured: Sequence[tuple[Target, Any]], *, is_related: bool
) -> list[Any]:
    """Return the coefficients of each measured device with the clock, launch floor and board power of `target`.

    Args:
        is_related: whether the devices run the kernels of `target`, so that a product takes the same energy on them.

    Source: dynamic power f V(f)^2 with V linear above a floor (prediction.md, power and clock); floors as documented.
    """
    values = [np.array(vector) for _, vector in measured]
    for (device, _), vector in zip(measured, values, strict=True):
        slower = _clock_hz(device, dtypes) / _clock_hz(target, dtypes)
        vector[_PACED] *= slower
        if DTYPES[dtypes["dtype"]].scheme is not None:  # launching is split between two kernels' coefficients
            vector[_LAUNCH] *= slower
        elif target.launch_floor_s and device.launch_floor_s:
            vector[_LAUNCH] *= target.launch_floor_s / device.launch_floor_s
        vector[_OF_TABLE] = [COEFFICIENTS[place].usual_value for place in _OF_TABLE]
        if device.vendor == "NVIDIA":
            vector[_DRAM] = max(vector[_DRAM], _LEAST_READ)
    (_move_to_related if is_related else _move_to_other)(values, target, dtypes, measured)
    return values


def reformatted(group: str, values: Sequence[float]) -> list[float]:
    """Return coefficients of a group for formats of other ones: what kernels lose by scaling blocks stays with those.

    >>> slow = [0.3] * len(COEFFICIENTS)
    >>> [round(reformatted(group, slow)[_TENSOR], 2) for group in ("fp8_block", "fp8_tensor")]
    [0.42, 0.3]
    """
    moved = list(values)
    if group == "fp8_block":
        moved[_TENSOR] = min(moved[_TENSOR] * _BLOCKS_COST, COEFFICIENTS[_TENSOR].high_value)
        moved[_DRAM] = max(moved[_DRAM], _LEAST_READ_SINGLE)
    return moved


def _move_to_related(
    values: Sequence[Any], target: Target, dtypes: Mapping[str, str], measured: Sequence[tuple[Target, Any]]
) -> None:
    """Move coefficients of devices that run the kernels of `target` to its rate and power."""
    for (device, _), vector in zip(measured, values, strict=True):
        # Bytes per clock from the cache stay where products per clock differ: held back, or more of a new format.
        units = unit_of(target, dtypes), unit_of(device, dtypes)
        rates = [board.peaks[unit].flop_per_clock for board, unit in zip((target, device), units, strict=True)]
        ratio = rates[0] / rates[1] if units[0].startswith("tensor.") else min(rates[0] / rates[1], 1.0)
        low, high = COEFFICIENTS[_BALANCED].low_value, COEFFICIENTS[_BALANCED].high_value
        vector[_BALANCED] = min(max(vector[_BALANCED] * ratio, low), high)
        repower(vector, COEFFICIENTS, target, device, lambda board: unit_of(board, dtypes), dtypes["dtype"])


def _move_to_other(
    values: Sequence[Any], target: Target, dtypes: Mapping[str, str], measured: Sequence[tuple[Target, Any]]
) -> None:
    """Move coefficients of unrelated devices to the documented cache, clocks and power of `target`."""
    _recache(values, target, [device for device, _ in measured])
    for (device, _), vector in zip(measured, values, strict=True):
        reached = vector[_TENSOR] * _boost_ratio(target, dtypes) / _boost_ratio(device, dtypes)
        if _shares_issue(target, dtypes) and not _shares_issue(device, dtypes):
            reached = min(reached, _ISSUED)
        vector[_TENSOR] = min(reached, COEFFICIENTS[_TENSOR].high_value)
    if _tells_by_clock(target, dtypes):
        _reclock(values, target, dtypes, measured)
        return
    known = [
        (device, original)
        for device, original in measured
        if device.power_w and is_paced_by_power(tuple(np.asarray(original)[_RATE]))
    ]
    if known and _is_bound_by_power(target, dtypes):
        least = min(
            product_energy(device, unit_of(device, dtypes), tuple(np.asarray(original)[_RATE])) / _scale(device, dtypes)
            for device, original in known
        )
        _let_go(values, [device for device, _ in measured], dtypes, least)
        if target.power_w:
            share = share_of_rate(headroom(target, unit_of(target, dtypes)), least * _scale(target, dtypes))
            for vector in values:
                vector[_RATE] = slowed(tuple(vector[_RATE]), share)
                vector[_CLOCK] = min(vector[_CLOCK], COEFFICIENTS[_CLOCK].high_value)


def _tells_by_clock(target: Target, dtypes: Mapping[str, str]) -> bool:
    """Return whether the energy of a product is known so well that it tells work per clock and clock apart.

    AMD measured both on two boards of CDNA 3; units that scale short blocks by themselves do nothing but products.
    """
    scheme = DTYPES[dtypes["dtype"]].scheme
    has_short = scheme is not None and scheme.a.column_count > 0 and not scales_by_vectors(dtypes["dtype"])
    return has_short or (target.vendor == "AMD" and not unit_of(target, dtypes).startswith("vector."))


def _reclock(
    values: Sequence[Any], target: Target, dtypes: Mapping[str, str], measured: Sequence[tuple[Target, Any]]
) -> None:
    """Move the rates of devices to the clock that the power of `target` gives, with their work per clock."""
    for (device, original), vector in zip(measured, values, strict=True):
        units = unit_of(target, dtypes), unit_of(device, dtypes)
        vector[_RATE] = reclocked(tuple(np.asarray(original)[_RATE]), target, device, units, dtypes["dtype"])
        vector[_TENSOR] = min(vector[_TENSOR], COEFFICIENTS[_TENSOR].high_value)
        vector[_CLOCK] = min(vector[_CLOCK], COEFFICIENTS[_CLOCK].high_value)


def _let_go(values: Sequence[Any], devices: Sequence[Target], dtypes: Mapping[str, str], least: float) -> None:
    """Give power-limited devices the rate of those that are not limited: kernels would reach as much.

    Args:
        least: energy of a product over `_scale`, the least among the devices.
    """
    held = [
        bool(vector.power_w) and is_held(vector, unit_of(vector, dtypes), least * _scale(vector, dtypes))
        for vector in devices
    ]
    free = [np.maximum(vector[_RATE], _LITTLE) for vector, is_so in zip(values, held, strict=True) if not is_so]
    if not free:
        return
    tensor, clock = np.exp(np.log(free).mean(axis=0))
    for vector, is_so in zip(values, held, strict=True):
        if is_so:
            vector[_RATE] = max(vector[_TENSOR], tensor), min(vector[_CLOCK], clock)


def _boost_ratio(device: Target, dtypes: Mapping[str, str]) -> float:
    """Return the highest clock over that of the documented rate: products run at it until power holds them back."""
    return max(device.clock_hz / _clock_hz(device, dtypes), 1.0)


def _shares_issue(device: Target, dtypes: Mapping[str, str]) -> bool:
    """Return whether products run on vector units whose schedulers issue no load beside them."""
    unit = unit_of(device, dtypes)
    return device.vendor == "NVIDIA" and unit == "vector.fp32" and device.peaks[unit].flop_per_clock >= _LANES_FLOP


def _is_bound_by_power(target: Target, dtypes: Mapping[str, str]) -> bool:
    """Return whether power of other kinds of devices tells what `target` sustains: where little but products takes it.

    Kernels that scale parts of the sum do so on vector units: what they take is far from the least. Vector units tell
    nothing of matrix units, as on devices whose 16-bit products run on the former.
    """
    is_vector, scheme = unit_of(target, dtypes).startswith("vector."), DTYPES[dtypes["dtype"]].scheme
    if dtypes["dtype"] in ("fp32", "fp64"):
        return is_vector
    return not is_vector and (scheme is None or scheme.a.column_count == 0)


def _clock_hz(device: Target, dtypes: Mapping[str, str]) -> float:
    """Return the clock of the documented rate."""
    return clock_hz(device, unit_of(device, dtypes))


def _recache(values: Sequence[Any], target: Target, devices: Sequence[Target]) -> None:
    """Take what stays in cache between two kernels from caches of the target's kind alone; else it is not known."""
    is_alike = [_is_halved(device) == _is_halved(target) for device in devices]
    alike = [vector[_KEPT] for vector, same in zip(values, is_alike, strict=True) if same]
    known = float(np.exp(np.log(alike).mean())) if alike else COEFFICIENTS[_KEPT].usual_value
    for vector, same in zip(values, is_alike, strict=True):
        vector[_KEPT] = vector[_KEPT] if same else known


def _is_halved(device: Target) -> bool:
    """Return whether the cache is two parts, far from each other: A100, Hopper, data-centre Blackwell.

    Source: NVIDIA A100 and H100 architecture whitepapers, two partitions; B200, one on each die.
    """
    unit = device.peaks.get("tensor.bf16")
    large = unit is not None and unit.flop_per_clock >= _HALVED_FLOP
    return device.vendor == "NVIDIA" and (device.architecture == "hopper" or large)


def _scale(device: Target, dtypes: Mapping[str, str]) -> float:
    """Return the energy of a product at the highest clock, up to a factor that devices share.

    Matrix units of one process run at 1.4 to 2.5 GHz, at a voltage that grows with the clock. Over generation and
    squared clock, what the H100, the B200 and the L40S sustain is about the same energy: 0.73, 0.62 and 0.64 pJ in
    bf16, 0.38, 0.33 and 0.39 in fp8.
    """
    if dtypes["dtype"] in ("fp32", "fp64"):
        return generation_energy(device)
    return generation_energy(device) * _clock_hz(device, dtypes) ** 2
