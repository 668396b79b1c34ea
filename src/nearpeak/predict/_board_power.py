"""Which share of its documented rate a board's power sustains, and how that moves to another board of its kind."""

from nearpeak.core.target import Target

_KNEE = 0.75
"""Share of the highest clock below which voltage, and with it the energy of a product, falls no further."""
_BY_POWER = 0.6
"""Sustained share of the rate below which kernels set the pace, not power."""
_MOST = 0.95
"""Sustained share of the rate that no board limit stands against."""


Rate = tuple[float, float]
"""Reached share of the documented rate, and loss of clock under sustained products."""


def repowered(rate: Rate, target: Target, device: Target, units: tuple[str, str]) -> Rate:
    """Return the rate that `target` has where `device` has the given one.

    Args:
        units: that form the products, of the target and of the device.

    Source: dynamic power f V(f)^2 with V linear above a floor (prediction.md, power and clock).
    """
    if _sustained(rate) < _BY_POWER:
        return rate
    share = share_of_rate(headroom(target, units[0]), product_energy(device, units[1], rate))
    if share <= _sustained(rate):
        return slowed(rate, share)
    gain = max(min(share, _MOST) / _sustained(rate), 1.0)
    loss = 1.0 + rate[1]
    return rate[0] * max(gain / loss, 1.0), max(loss / gain, 1.0) - 1.0


def slowed(rate: Rate, share: float) -> Rate:
    """Return the rate lowered to a sustained share of the documented one, where it is above.

    >>> slowed((0.8, 0.0), 0.4), slowed((0.8, 0.0), 0.9)
    ((0.8, 1.0), (0.8, 0.0))
    """
    return (rate[0], (1.0 + rate[1]) * _sustained(rate) / share - 1.0) if share < _sustained(rate) else rate


def product_energy(device: Target, unit: str, rate: Rate) -> float:
    """Return the board's energy per product at the highest clock, if it is power that limits the device; J per FLOP."""
    share = _sustained(rate)
    return headroom(device, unit) / (share * max(share, _KNEE) ** 2)


def _sustained(rate: Rate) -> float:
    """Return the share of the documented rate that long products reach."""
    return rate[0] / (1.0 + rate[1])


def share_of_rate(board: float, energy: float) -> float:
    """Return the share of the documented rate that a board sustains.

    >>> share_of_rate(1.0, 1.0), share_of_rate(0.25, 1.0)
    (1.0, 0.4444444444444444)

    Args:
        board: power over the documented rate, J per FLOP.
        energy: of a product at the highest clock, J per FLOP.
    """
    high = float((board / energy) ** (1 / 3))
    return high if high >= _KNEE else board / (energy * _KNEE**2)


def is_held(device: Target, unit: str, energy: float) -> bool:
    """Return whether the power of a board limits products that take `energy`, J per FLOP at the highest clock."""
    return share_of_rate(headroom(device, unit), energy) < _MOST


def headroom(device: Target, unit: str) -> float:
    """Return the power of the board over the documented rate, J per FLOP."""
    assert device.power_w is not None
    return float(device.power_w / device.peaks[unit].flop_per_s)
