"""Closed forms of queues: waits of single servers, Little's law, and the fixed point of batched decoding."""

from collections.abc import Callable

from nearpeak.errors import SpecError


def mean_wait(load: float, service_s: float, *, cv: float = 0.0) -> float:
    """Return the mean wait in seconds before a single server with Poisson arrivals (Pollaczek and Khinchine).

    Args:
        load: arrival rate times service time; below 1.
        cv: standard deviation of the service time over its mean; 0 for M/D/1, 1 for M/M/1.

    >>> round(mean_wait(0.8, 1.0), 9)
    2.0
    """
    if not 0 <= load < 1:
        raise SpecError(f"queue: load {load:g} must be at least 0 and below 1; the wait grows without end otherwise")
    return load * (1 + cv * cv) / (2 * (1 - load)) * service_s


def decode_batch(rate_per_s: float, output_count: float, step_s: Callable[[float], float], *, limit: float) -> float:
    """Return the mean number of decoding sequences B = rate · output · step(B), at most `limit`.

    Args:
        step_s: time of a decode step by its sequences, in seconds.

    >>> decode_batch(2.0, 100, lambda batch: 0.01 + 0.001 * batch, limit=256)
    2.5
    """
    low, high = 0.0, float(limit)
    if rate_per_s * output_count * step_s(high) >= high:
        return high
    for _ in range(100):
        middle = (low + high) / 2
        if rate_per_s * output_count * step_s(middle) > middle:
            low = middle
        else:
            high = middle
    return round(high, 9)
