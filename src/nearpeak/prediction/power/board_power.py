"""Share of the documented peak rate that a board sustains under its power limit, transferred between boards."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from nearpeak.core.work.target import Target
from nearpeak.prediction.documented_target import documented_of
from nearpeak.prediction.kernel_model import CoefficientRange
from nearpeak.prediction.power.product_energy import (
    burst_clock,
    expected_energy,
    generation_energy,
    share_at,
    work_and_energy,
)
from nearpeak.prediction.power.voltage import clock_drawing, drawn_ratio

_BY_POWER = 0.6
"""Sustained share of the rate below which kernels set the pace, not power."""
_MOST = 0.95
"""Sustained share of the rate above which no board limit applies."""
_ALIKE = 1e-6
"""Difference between shares that is of rounding alone."""
_AT_REST_RATIO, _AT_REST_SM_W = 0.13, 0.283
"""Clock-independent power of a board, as a share of its limit and per multiprocessor: 32.3 of 250 W and 0.283 W.

Source: AccelWattch (MICRO'21), Quadro GV100; that other boards are alike is an assumption.
"""
_LEAST_LEFT_RATIO = 0.1
"""Share of its limit that a board has left for work at least: it was built for some."""

Rate = tuple[float, float]
"""Reached share of the documented rate, and loss of clock under sustained products."""


def repowered(rate: Rate, target: Target, device: Target, units: tuple[str, str], dtype: str = "") -> Rate:
    """Return the rate that `target` has where `device` has the given one.

    Voltage belongs to a clock of the chip, not to a share of what a document quotes: a board that is quoted at a higher
    clock takes more energy for the same share of its rate. So does a coarser process at the same clock. Kernels that
    leave much of each clock unused keep what they do of it, see `reclocked`.

    Args:
        units: that model the products, of the target and of the device.
        dtype: format of the products; empty where a rate is not of products alone.

    Source: dynamic power f V(f)^2 with V linear above a floor (prediction.md, power and clock).
    """
    if not is_paced_by_power(rate):
        return reclocked(rate, target, device, units, dtype) if dtype else rate
    boards = (target, units[0]), (device, units[1])
    top = max(max(board.clock_hz, clock_hz(board, unit)) for board, unit in boards)
    here, there = (clock_hz(board, unit) / top for board, unit in boards)
    energy = product_energy(device, units[1], rate, there) * generation_energy(target) / generation_energy(device)
    return with_share(rate, share_of_rate(headroom(target, units[0]), energy, here))


def reclocked(rate: Rate, target: Target, device: Target, units: tuple[str, str], dtype: str) -> Rate:
    """Return the rate with the work per clock that kernels do on `device`, at the clock that `target` has power for.

    The energy of a product tells both apart, where it is known; the rate stays where it is not.
    """
    energies = [expected_energy(board, unit, dtype) for board, unit in zip((target, device), units, strict=True)]
    if energies[0] is None or energies[1] is None or not target.power_w or not device.power_w:
        return rate
    here, there = (
        min(clock_hz(board, unit) / board.clock_hz, 1.0) for board, unit in zip((target, device), units, strict=True)
    )
    work, energy = work_and_energy(sustained_share(rate) * there, headroom(device, units[1]) * there, energies[1])
    share = share_at(work, headroom(target, units[0]) * here, energy * energies[0] / energies[1])
    return with_share(rate, share / here)


def with_share(rate: Rate, share: float) -> Rate:
    """Return the rate at a sustained share of the documented one: a gain first takes back what the clock loses.

    >>> with_share((0.8, 0.0), 0.4), with_share((0.8, 0.25), 0.8)
    ((0.8, 1.0), (0.8, 0.0))
    """
    if math.isclose(share, sustained_share(rate), rel_tol=_ALIKE):
        return rate
    if share <= sustained_share(rate):
        return slowed(rate, share)
    gain = max(min(share, _MOST) / sustained_share(rate), 1.0)
    loss = 1.0 + rate[1]
    return rate[0] * max(gain / loss, 1.0), max(loss / gain, 1.0) - 1.0


def repower(
    vector: Any,
    coefficients: Sequence[CoefficientRange],
    target: Target,
    device: Target,
    unit: Callable[[Target], str],
    dtype: str = "",
) -> None:
    """Move the sustained rate in a device's coefficient vector to `target`, if both state their power limits."""
    if target.power_w and device.power_w:
        names = [coefficient.name for coefficient in coefficients]
        places = [names.index(name) for name in ("tensor_ratio", "clock_ratio")]
        rate = repowered(tuple(vector[places]), target, device, (unit(target), unit(device)), dtype)
        vector[places] = [min(v, coefficients[place].high_value) for v, place in zip(rate, places, strict=True)]


def slowed(rate: Rate, share: float) -> Rate:
    """Return the rate lowered to a sustained share of the documented one, where it is above.

    >>> slowed((0.8, 0.0), 0.4), slowed((0.8, 0.0), 0.9)
    ((0.8, 1.0), (0.8, 0.0))
    """
    return (rate[0], (1.0 + rate[1]) * sustained_share(rate) / share - 1.0) if share < sustained_share(rate) else rate


def product_energy(device: Target, unit: str, rate: Rate, clock: float = 1.0) -> float:
    """Return the board's energy per product at the highest clock, if it is power that limits the device; J per FLOP.

    Args:
        clock: of the documented rate, as a share of the highest.
    """
    return headroom(device, unit) * clock / float(drawn_ratio(sustained_share(rate) * clock))


def sustained_share(rate: Rate) -> float:
    """Return the share of the documented rate that long products reach."""
    return rate[0] / (1.0 + rate[1])


def share_of_rate(board: float, energy: float, clock: float = 1.0) -> float:
    """Return the share of the documented rate that a board sustains.

    >>> round(share_of_rate(1.0, 1.0), 6), round(share_of_rate(0.25, 1.0), 2), round(share_of_rate(0.25, 1.0, 0.5), 2)
    (1.0, 0.51, 0.59)

    Args:
        board: power over the documented rate, J per FLOP.
        energy: of a product at the highest clock, J per FLOP.
        clock: of the documented rate, as a share of the highest.
    """
    return float(clock_drawing(board * clock / energy)) / clock


def is_held(device: Target, unit: str, energy: float) -> bool:
    """Return whether the power of a board limits products that take `energy`, J per FLOP at the highest clock."""
    return share_of_rate(headroom(device, unit), energy) < _MOST


def is_paced_by_power(rate: Rate) -> bool:
    """Return whether a sustained rate may tell what power allows: slower kernels set their own pace.

    >>> is_paced_by_power((0.9, 0.2)), is_paced_by_power((0.9, 0.8))
    (True, False)
    """
    return sustained_share(rate) >= _BY_POWER


def clock_hz(device: Target, unit: str) -> float:
    """Return the clock at which the rate of a unit is documented."""
    return float(device.peaks[unit].clock_hz)


def headroom(device: Target, unit: str) -> float:
    """Return the power of the board, less what it draws at rest, over the documented rate; J per FLOP.

    >>> from nearpeak.targets import target_of
    >>> round(headroom(target_of("l40s"), "tensor.bf16") * 1e12, 2)
    0.73
    """
    return (_limit_w(device) - at_rest_w(device)) / device.peaks[unit].flop_per_s


def clock_in_bursts(device: Target, unit: str, share: float, energy: float) -> float:
    """Return the clock of products in bursts, of the highest, by the share of the documented rate that they reach.

    Args:
        energy: of a product at the highest clock, J per FLOP.
    """
    documented = min(clock_hz(device, unit) / device.clock_hz, 1.0)
    return burst_clock(share * documented, headroom(device, unit) * documented, energy)


def at_rest_w(device: Target) -> float:
    """Return the power that a board draws whatever its clock; at most so much that some of its limit is left.

    >>> from nearpeak.targets import target_of
    >>> round(at_rest_w(target_of("b200_sxm")))
    172
    """
    limit_w = _limit_w(device)
    rest_w = _AT_REST_RATIO * limit_w + _AT_REST_SM_W * (device.sm_count or 0)
    return float(min(rest_w, (1 - _LEAST_LEFT_RATIO) * limit_w))


def _limit_w(device: Target) -> float:
    """Return the power limit, at most the documented one: what a board does beyond it nobody states."""
    assert device.power_w is not None
    return min(device.power_w, documented_of(device).power_w or device.power_w)
