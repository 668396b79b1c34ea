"""Price and energy of tokens: rented or owned devices, tariffs, and the power of a run's steps."""

from collections.abc import Callable

import numpy as np

from nearpeak.errors import SpecError
from nearpeak.systems.serving.request_columns import Floats
from nearpeak.systems.serving.serving_outcome import Outcome

HOUR_S = 3600.0


def price_per_million_tokens(
    device_count: float, price_per_hour: float, tokens_per_s: float, *, utilisation: float = 1.0
) -> float:
    """Return the price of a million tokens, in the currency of the price of a device-hour.

    Args:
        utilisation: share of the rented time in which tokens come at that rate.

    >>> round(price_per_million_tokens(8, 2.5, 2000, utilisation=0.6), 3)
    4.63
    """
    if tokens_per_s <= 0 or not 0 < utilisation <= 1 or device_count < 0 or price_per_hour < 0:
        raise SpecError(
            f"price: {device_count:g} devices at {price_per_hour:g}/h, {tokens_per_s:g} tokens/s, utilisation "
            f"{utilisation:g}; tokens must be above 0, utilisation above 0 and at most 1, the others at least 0"
        )
    return device_count * price_per_hour / (HOUR_S * tokens_per_s * utilisation) * 1e6


def owned_price_per_hour(purchase: float, life_s: float, *, power_w: float, tariff_per_kwh: float, pue: float) -> float:
    """Return what a device costs per hour that is bought and powered: purchase over its life, and electricity.

    Args:
        pue: power of the site over that of its devices.

    >>> round(owned_price_per_hour(35040, 4 * 365 * 86400, power_w=1000, tariff_per_kwh=0.1, pue=1.3), 2)
    1.13
    """
    if life_s <= 0 or pue < 1:
        raise SpecError(f"price: life {life_s:g} s must be above 0 and PUE {pue:g} at least 1")
    return purchase / (life_s / HOUR_S) + power_w / 1000 * pue * tariff_per_kwh


def run_energy_j(
    outcome: Outcome, busy_w: float | Callable[[Floats, Floats, Floats], Floats], *, idle_w: float, pue: float = 1.0
) -> float:
    """Return the energy of a run in joules, from power in steps and between them, of all replicas.

    Args:
        busy_w: power of a replica in a step: a number, or a function of the columns of recorded steps (new tokens of
            prompts, decoding sequences, their cached tokens).
        idle_w: power of a replica between steps, while it is there.
    """
    idle_s = float(np.maximum(outcome.rented_s - outcome.busy_s, 0.0).sum())
    if not callable(busy_w):
        return pue * (busy_w * float(outcome.busy_s.sum()) + idle_w * idle_s)
    if outcome.steps is None:
        raise SpecError("energy: power by step needs the steps of the run: record them (is_logged)")
    steps = outcome.steps
    power = busy_w(steps.prompt_count, steps.decode_count, steps.kv_count)
    return pue * (float((power * steps.duration_s).sum()) + idle_w * idle_s)
