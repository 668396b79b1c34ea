"""Scalars of products of one device for another: what documented power and launch floors say about the difference."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nearpeak.core.dtype import DTYPES
from nearpeak.core.target import Target
from nearpeak.predict._board_power import headroom, product_energy, repowered, share_of_rate, slowed
from nearpeak.predict._gemm_scalars import SCALARS
from nearpeak.predict._units import unit_of

_LAUNCH, _TENSOR, _CLOCK, _BALANCED = (
    [one.name for one in SCALARS].index(name)
    for name in ("launch_s", "tensor_ratio", "clock_ratio", "balanced_elements")
)
_RATE = [_TENSOR, _CLOCK]
_PACED = [
    [one.name for one in SCALARS].index(name)
    for name in (
        "tile_start_s", "split_s", "step_s", "grid_ramp_s", "quantise_s", "quantise_row_s", "quantise_ramp_s", "pad_s",
    )
]  # fmt: skip
"""Waits that are a number of clocks: of barriers, pipelines and short kernels."""
_ENERGY = {"pascal": 1.0, "volta": 0.9, "turing": 0.9, "ampere": 0.55, "ada": 0.4, "hopper": 0.35, "blackwell": 0.33}
"""Energy of a product on vector units by generation, against 16 nm: an assumption after published process nodes."""


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
    if is_kin:
        for (device, _), one in zip(measured, values, strict=True):
            _rebalance(one, target, device, dtypes)
    known = [(device, one) for (device, _), one in zip(measured, values, strict=True) if device.power_w]
    if target.power_w and known:
        if is_kin:
            for device, one in known:
                _repower(one, target, device, dtypes)
        elif unit_of(target, dtypes).startswith("vector."):
            least = min(
                product_energy(device, unit_of(device, dtypes), tuple(one[_RATE])) / _generation(device)
                for device, one in known
            )
            share = share_of_rate(headroom(target, unit_of(target, dtypes)), least * _generation(target))
            for one in values:
                one[_RATE] = slowed(tuple(one[_RATE]), share)
                one[_CLOCK] = min(one[_CLOCK], SCALARS[_CLOCK].high_value)
    return values


def _clock_hz(device: Target, dtypes: Mapping[str, str]) -> float:
    """Return the clock of the documented rate."""
    return float(device.peaks[unit_of(device, dtypes)].clock_hz)


def _rebalance(values: Any, target: Target, device: Target, dtypes: Mapping[str, str]) -> None:
    """Keep the bytes per clock from the cache where products per clock differ: their rate is held back, not loads."""
    rates = [one.peaks[unit_of(one, dtypes)].flop_per_clock for one in (target, device)]
    values[_BALANCED] = max(values[_BALANCED] * min(rates[0] / rates[1], 1.0), SCALARS[_BALANCED].low_value)


def _repower(values: Any, target: Target, device: Target, dtypes: Mapping[str, str]) -> None:
    """Move the sustained rate of a device to that of another board of its kind."""
    units = unit_of(target, dtypes), unit_of(device, dtypes)
    found = repowered(tuple(values[_RATE]), target, device, units)
    values[_RATE] = [min(v, SCALARS[place].high_value) for v, place in zip(found, _RATE, strict=True)]


def _generation(device: Target) -> float:
    return next((energy for name, energy in _ENERGY.items() if device.architecture.startswith(name)), 1.0)
