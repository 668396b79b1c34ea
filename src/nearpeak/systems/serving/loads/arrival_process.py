"""Random loads: Poisson and gamma arrivals, requests at once, and closed loops, from a seed."""

from collections.abc import Sequence

import numpy as np

from nearpeak.errors import SpecError
from nearpeak.systems.serving.request_columns import Floats, Ints, Requests

Lengths = int | Sequence[int] | Ints
"""Tokens: one number for all requests, or a column to draw from."""


def open_load(
    rate_per_s: float, count: int, *, input_count: Lengths, output_count: Lengths, cv: float = 1.0, seed: int
) -> Requests:
    """Return requests whose gaps are gamma-distributed: `cv` 1 is a Poisson process, above 1 bursts, 0 a clock.

    Gaps and lengths are drawn apart, and gaps before they are divided by the rate: the same seed at another rate gives
    the same requests closer together (common random numbers).

    Args:
        cv: standard deviation of the gaps over their mean.
        input_count: of columns, rows are drawn together with those of `output_count` if both are equally long.

    >>> load = open_load(4.0, 1000, input_count=100, output_count=[10, 20], seed=1)
    >>> round(load.rate, 1), sorted(set(load.output_count.tolist()))
    (4.0, [10, 20])
    """
    if rate_per_s <= 0 or cv < 0:
        raise SpecError(f"load: rate {rate_per_s:g}/s must be above 0 and cv {cv:g} at least 0")
    generator, lengths = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1])
    gaps = generator.gamma(1 / cv**2, cv**2, count) if cv else np.ones(count)
    arrivals: Floats = np.cumsum(gaps) / rate_per_s
    inputs, outputs = _drawn(input_count, output_count, count, lengths)
    return Requests(arrival_s=arrivals, input_count=inputs, output_count=outputs)


def closed_load(
    concurrency_count: int, count: int, *, input_count: Lengths, output_count: Lengths, seed: int
) -> Requests:
    """Return a closed loop: `concurrency_count` requests arrive at once, and each that finishes is followed by one."""
    if not 1 <= concurrency_count <= count:
        raise SpecError(f"load: {concurrency_count} requests in flight of {count}; must be at least 1, at most all")
    inputs, outputs = _drawn(input_count, output_count, count, np.random.default_rng([seed, 1]))
    return Requests(
        arrival_s=np.zeros(count), input_count=inputs, output_count=outputs, concurrency_count=concurrency_count
    )


def _drawn(inputs: Lengths, outputs: Lengths, count: int, generator: np.random.Generator) -> tuple[Ints, Ints]:
    first, second = np.atleast_1d(np.asarray(inputs, np.int64)), np.atleast_1d(np.asarray(outputs, np.int64))
    rows = generator.integers(0, len(first), count)
    other = rows if len(first) == len(second) else generator.integers(0, len(second), count)
    return first[rows], second[other]


def gap_variation(requests: Requests) -> float:
    """Return the coefficient of variation of the gaps between arrivals: 1 for Poisson, more for bursts.

    >>> gap_variation(open_load(1.0, 100, input_count=1, output_count=1, cv=0.0, seed=0))
    0.0
    """
    gaps = np.diff(requests.arrival_s)
    if not len(gaps) or gaps.mean() == 0:
        raise SpecError("load: gaps of requests that arrive at once have no variation")
    return float(round(gaps.std() / gaps.mean(), 12))
