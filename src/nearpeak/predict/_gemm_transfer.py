"""Scalars of products of one device for another: what documented power and launch floors say about the difference."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nearpeak.core.dtype import DTYPES
from nearpeak.core.target import Target
from nearpeak.predict._gemm_scalars import SCALARS
from nearpeak.predict._units import unit_of

_LAUNCH, _TENSOR, _CLOCK, _BALANCED = (
    [one.name for one in SCALARS].index(name)
    for name in ("launch_s", "tensor_ratio", "clock_ratio", "balanced_elements")
)
_PACED = [
    [one.name for one in SCALARS].index(name)
    for name in (
        "tile_start_s", "split_s", "step_s", "grid_ramp_s", "quantise_s", "quantise_row_s", "quantise_ramp_s", "pad_s",
    )
]  # fmt: skip
"""Waits that are a number of clocks: of barriers, pipelines and short kernels."""
_KNEE = 0.75
"""Share of the highest clock below which voltage, and with it the energy of a product, falls no further."""
_BY_POWER = 0.6
"""Sustained share of the rate below which kernels set the pace, not power."""
_MOST = 0.95
"""Sustained share of the rate that no board limit stands against."""
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
                _repower(one, _energy(device, dtypes, one), _headroom(target, dtypes))
        elif unit_of(target, dtypes).startswith("vector."):
            least = min(_energy(device, dtypes, one) / _generation(device) for device, one in known)
            share = _share(_headroom(target, dtypes), least * _generation(target))
            for one in values:
                _slow(one, share)
    return values


def _clock_hz(device: Target, dtypes: Mapping[str, str]) -> float:
    """Return the clock of the documented rate."""
    return float(device.peaks[unit_of(device, dtypes)].clock_hz)


def _rebalance(values: Any, target: Target, device: Target, dtypes: Mapping[str, str]) -> None:
    """Keep the bytes per clock from the cache where products per clock differ: their rate is held back, not loads."""
    rates = [one.peaks[unit_of(one, dtypes)].flop_per_clock for one in (target, device)]
    values[_BALANCED] = max(values[_BALANCED] * min(rates[0] / rates[1], 1.0), SCALARS[_BALANCED].low_value)


def _repower(values: Any, energy: float, headroom: float) -> None:
    """Move the sustained rate of a device to that of another board of its kind."""
    sustained = _sustained(values)
    if sustained < _BY_POWER:
        return
    share = _share(headroom, energy)
    if share <= sustained:
        _slow(values, share)
        return
    gain = max(min(share, _MOST) / sustained, 1.0)
    loss = 1.0 + values[_CLOCK]
    values[_CLOCK] = max(loss / gain, 1.0) - 1.0
    values[_TENSOR] = min(values[_TENSOR] * max(gain / loss, 1.0), SCALARS[_TENSOR].high_value)


def _slow(values: Any, share: float) -> None:
    """Lower the sustained rate to a share of the documented one, where it is above."""
    sustained = _sustained(values)
    if share < sustained:
        clock = (1.0 + values[_CLOCK]) * sustained / share - 1.0
        values[_CLOCK] = min(clock, SCALARS[_CLOCK].high_value)


def _sustained(values: Any) -> float:
    """Return the share of the documented rate that long products reach."""
    return float(values[_TENSOR] / (1.0 + values[_CLOCK]))


def _energy(device: Target, dtypes: Mapping[str, str], values: Any) -> float:
    """Return the board's energy per product at the highest clock, if it is power that limits the device; J per FLOP."""
    share = _sustained(values)
    return _headroom(device, dtypes) / (share * max(share, _KNEE) ** 2)


def _share(headroom: float, energy: float) -> float:
    """Return the share of the documented rate that a board's power sustains."""
    high = float((headroom / energy) ** (1 / 3))
    return high if high >= _KNEE else headroom / (energy * _KNEE**2)


def _headroom(device: Target, dtypes: Mapping[str, str]) -> float:
    """Return the power of the board over the documented rate, J per FLOP."""
    assert device.power_w is not None
    return float(device.power_w / device.peaks[unit_of(device, dtypes)].flop_per_s)


def _generation(device: Target) -> float:
    return next((energy for name, energy in _ENERGY.items() if device.architecture.startswith(name)), 1.0)
