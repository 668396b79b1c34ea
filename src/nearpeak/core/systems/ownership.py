"""Cost of a device that is bought and powered: price, years of use, tariff and the site's overhead of power."""

from typing import NamedTuple

from nearpeak.errors import SpecError

YEAR_S = 365 * 86_400.0


class Ownership(NamedTuple):
    """What owning a device costs.

    >>> ownership_of("35040,4,0.1").life_s / 86400
    1460.0
    """

    usd_per_device: float
    """Purchase of a device with its share of host and network."""
    life_s: float
    """Time of use."""
    usd_per_kwh: float
    """Tariff of electricity."""
    site_ratio: float = 1.0
    """Power of the site over that of its devices (PUE)."""


def ownership_of(text: str) -> Ownership:
    """Return what owning a device costs, as `USD_PER_DEVICE,YEARS,USD_PER_KWH[,PUE]` states it.

    >>> ownership_of("30000,4")
    Traceback (most recent call last):
    nearpeak.errors.SpecError: --owned '30000,4': is not USD_PER_DEVICE,YEARS,USD_PER_KWH[,PUE], e.g. 30000,4,0.1,1.2
    """
    wrong = SpecError(f"--owned {text!r}: is not USD_PER_DEVICE,YEARS,USD_PER_KWH[,PUE], e.g. 30000,4,0.1,1.2")
    try:
        figures = [float(part) for part in text.split(",")]
    except ValueError:
        raise wrong from None
    price, years, tariff, site = (*figures, 1.0)[:4] if len(figures) in (3, 4) else (-1.0, 0.0, 0.0, 0.0)
    if not (0 <= price < 1e9 and 0 < years <= 100 and 0 <= tariff < 1e3 and 1 <= site < 100):
        raise wrong
    return Ownership(usd_per_device=price, life_s=years * YEAR_S, usd_per_kwh=tariff, site_ratio=site)
