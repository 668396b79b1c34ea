"""Scalars of products of one device for another: what documented power and launch floors say about the difference."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nearpeak.core.work.dtype import DTYPES
from nearpeak.core.work.target import Target
from nearpeak.prediction.gemm.gemm_coefficients import SCALARS
from nearpeak.prediction.power.board_power import (  # fmt: skip
    clock_hz,
    generation_energy,
    headroom,
    is_held,
    is_paced_by_power,
    product_energy,
    repowered,
    share_of_rate,
    slowed,
)
from nearpeak.prediction.product_units import unit_of

_LAUNCH, _TENSOR, _CLOCK, _BALANCED, _DRAM = (
    [one.name for one in SCALARS].index(name)
    for name in ("launch_s", "tensor_ratio", "clock_ratio", "balanced_elements", "dram_ratio")
)
_RATE = [_TENSOR, _CLOCK]
_OF_TABLE = [[one.name for one in SCALARS].index(name) for name in ("far_ratio", "unaligned_ratio")]
"""Scalars that tell sessions of one table apart, not devices: docs/lab/products_unseen.md."""
_LEAST_READ = 0.7
"""Share of the memory rate that products of NVIDIA's other devices, and norms on all, exceed: less is of kernels."""
_BLOCKS_COST = 1.41
"""By how much more of their rate bf16 and fp8 with one scale sustain than fp8 in blocks, on the same device: 1.22 and
1.20 on the H100, 1.10 and 1.07 on the B200, 2.29 and 2.03 on the L40S, by fitted scalars; their geometric mean."""
_LEAST_READ_SINGLE = 0.6
"""Share of the memory rate that products without scales of blocks exceed on all devices: 0.61 on the MI100."""
_PACED = [
    [one.name for one in SCALARS].index(name)
    for name in (
        "tile_start_s", "split_s", "step_s", "grid_ramp_s", "quantise_s", "quantise_row_s", "quantise_ramp_s", "pad_s",
    )
]  # fmt: skip
"""Waits that are a number of clocks: of barriers, pipelines and short kernels."""
_KEPT = [one.name for one in SCALARS].index("quantise_residency_ratio")
_LITTLE = 1e-6
"""Least value in a geometric mean."""
_HALVED_FLOP = 2048
"""FLOP per clock of a multiprocessor from which chips have caches of two parts; boards' chips have half of it."""


def transferred(
    target: Target, dtypes: Mapping[str, str], measured: Sequence[tuple[Target, Any]], *, is_kin: bool
) -> list[Any]:
    """Return the scalars of each measured device with the clock, launch floor and board power of `target`.

    Args:
        is_kin: whether the devices run the kernels of `target`, so that a product takes the same energy on them.

    Source: dynamic power f V(f)^2 with V linear above a floor (prediction.md, power and clock); floors as documented.
    """
    values = [np.array(one) for _, one in measured]
    for (device, _), one in zip(measured, values, strict=True):
        slower = _clock_hz(device, dtypes) / _clock_hz(target, dtypes)
        one[_PACED] *= slower
        if DTYPES[dtypes["dtype"]].scheme is not None:  # launching is split between two kernels' scalars
            one[_LAUNCH] *= slower
        elif target.launch_floor_s and device.launch_floor_s:
            one[_LAUNCH] *= target.launch_floor_s / device.launch_floor_s
        one[_OF_TABLE] = [SCALARS[place].usual_value for place in _OF_TABLE]
        if device.vendor == "NVIDIA":
            one[_DRAM] = max(one[_DRAM], _LEAST_READ)
    (_move_to_kin if is_kin else _move_to_other)(values, target, dtypes, measured)
    return values


def reformatted(group: str, values: Sequence[float]) -> list[float]:
    """Return scalars of a group for formats of other ones: what kernels lose by scaling blocks stays with those.

    >>> slow = [0.3] * len(SCALARS)
    >>> [round(reformatted(group, slow)[_TENSOR], 2) for group in ("fp8_block", "fp8_tensor")]
    [0.42, 0.3]
    """
    found = list(values)
    if group == "fp8_block":
        found[_TENSOR] = min(found[_TENSOR] * _BLOCKS_COST, SCALARS[_TENSOR].high_value)
        found[_DRAM] = max(found[_DRAM], _LEAST_READ_SINGLE)
    return found


def _move_to_kin(
    values: Sequence[Any], target: Target, dtypes: Mapping[str, str], measured: Sequence[tuple[Target, Any]]
) -> None:
    """Give scalars of devices that run the kernels of `target` its rate and its power."""
    for (device, _), one in zip(measured, values, strict=True):
        # Bytes per clock from the cache stay where products per clock differ: their rate is held back, not loads.
        rates = [board.peaks[unit_of(board, dtypes)].flop_per_clock for board in (target, device)]
        one[_BALANCED] = max(one[_BALANCED] * min(rates[0] / rates[1], 1.0), SCALARS[_BALANCED].low_value)
        if target.power_w and device.power_w:
            units = unit_of(target, dtypes), unit_of(device, dtypes)
            rate = repowered(tuple(one[_RATE]), target, device, units)
            one[_RATE] = [min(v, SCALARS[place].high_value) for v, place in zip(rate, _RATE, strict=True)]


def _move_to_other(
    values: Sequence[Any], target: Target, dtypes: Mapping[str, str], measured: Sequence[tuple[Target, Any]]
) -> None:
    """Give scalars of other kinds of devices what documents say of the cache, the clocks and the power of `target`."""
    _recache(values, target, [device for device, _ in measured])
    for (device, _), one in zip(measured, values, strict=True):
        reached = one[_TENSOR] * _boost_ratio(target, dtypes) / _boost_ratio(device, dtypes)
        one[_TENSOR] = min(reached, SCALARS[_TENSOR].high_value)
    known = [
        (device, own) for device, own in measured if device.power_w and is_paced_by_power(tuple(np.asarray(own)[_RATE]))
    ]
    if known and _is_bound_by_power(target, dtypes):
        least = min(
            product_energy(device, unit_of(device, dtypes), tuple(np.asarray(own)[_RATE])) / _scale(device, dtypes)
            for device, own in known
        )
        _let_go(values, [device for device, _ in measured], dtypes, least)
        if target.power_w:
            share = share_of_rate(headroom(target, unit_of(target, dtypes)), least * _scale(target, dtypes))
            for one in values:
                one[_RATE] = slowed(tuple(one[_RATE]), share)
                one[_CLOCK] = min(one[_CLOCK], SCALARS[_CLOCK].high_value)


def _let_go(values: Sequence[Any], devices: Sequence[Target], dtypes: Mapping[str, str], least: float) -> None:
    """Give devices that their power holds back the rate of those that it does not: kernels would reach as much.

    Args:
        least: energy of a product over `_scale`, the least among the devices.
    """
    held = [bool(one.power_w) and is_held(one, unit_of(one, dtypes), least * _scale(one, dtypes)) for one in devices]
    free = [np.maximum(one[_RATE], _LITTLE) for one, is_so in zip(values, held, strict=True) if not is_so]
    if not free:
        return
    tensor, clock = np.exp(np.log(free).mean(axis=0))
    for one, is_so in zip(values, held, strict=True):
        if is_so:
            one[_RATE] = max(one[_TENSOR], tensor), min(one[_CLOCK], clock)


def _boost_ratio(device: Target, dtypes: Mapping[str, str]) -> float:
    """Return the highest clock over that of the documented rate: products run at it until power holds them back."""
    return max(device.clock_hz / _clock_hz(device, dtypes), 1.0)


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
    alike = [one[_KEPT] for one, same in zip(values, is_alike, strict=True) if same]
    known = float(np.exp(np.log(alike).mean())) if alike else SCALARS[_KEPT].usual_value
    for one, same in zip(values, is_alike, strict=True):
        one[_KEPT] = one[_KEPT] if same else known


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
