"""Median and confidence interval of samples by order statistics."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from nearpeak.errors import SpecError

INTERVAL_Z = 1.96
"""Standard normal quantile of a 95 % interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Estimate of the time of one call from samples."""

    centre_s: float
    """Median."""
    low_s: float
    """Lower end of the median's 95 % interval."""
    high_s: float
    """Upper end."""
    least_s: float
    """Shortest sample."""
    quartiles_s: tuple[float, float]
    """First and third."""
    p99_s: float
    """99th percentile."""
    sample_count: int
    """Samples."""

    @property
    def half_width_ratio(self) -> float:
        """Half the interval over the median: how well the median is known."""
        return (self.high_s - self.low_s) / 2 / self.centre_s if self.centre_s else math.inf

    @property
    def is_known(self) -> bool:
        """Whether the interval says anything: not of one sample, nor where it is wider than twice the median.

        >>> estimate_of([1.0, 1.1, 0.9]).is_known, estimate_of([1.0, 1.1, 60.0]).is_known, estimate_of([1.0]).is_known
        (True, False, False)
        """
        return self.sample_count > 1 and self.half_width_ratio <= 1


def estimate_of(samples_s: Sequence[float]) -> Estimate:
    """Return the estimate of `samples_s`.

    The interval is [x(⌊n/2 − 0.98 √n⌋), x(⌈n/2 + 1 + 0.98 √n⌉)] of the sorted samples, cut to the first and last: the
    ranks between which the median lies in 95 of 100 cases, whatever the distribution (binomial ranks, normal
    approximation).

    Raises:
        SpecError: there are no samples, or one is not a positive finite time.

    >>> found = estimate_of([3.0, 1.0, 2.0])
    >>> found.centre_s, found.low_s, found.high_s
    (2.0, 1.0, 3.0)
    """
    ordered = sorted(samples_s)
    if not ordered:
        raise SpecError("estimate: there are no samples; give at least one")
    if not all(math.isfinite(sample) and sample > 0 for sample in ordered):
        wrong = next(sample for sample in ordered if not (math.isfinite(sample) and sample > 0))
        raise SpecError(f"estimate: {wrong!r} s is no time; samples must be positive and finite")
    low, high = median_ranks(len(ordered))
    return Estimate(
        centre_s=quantile(ordered, 0.5), low_s=ordered[low], high_s=ordered[high], least_s=ordered[0],
        quartiles_s=(quantile(ordered, 0.25), quantile(ordered, 0.75)), p99_s=quantile(ordered, 0.99),
        sample_count=len(ordered),
    )  # fmt: skip


def median_ranks(count: int) -> tuple[int, int]:
    """Return the positions, from 0, of the ends of the median's 95 % interval among `count` sorted samples.

    >>> median_ranks(100)
    (39, 60)
    """
    reach = INTERVAL_Z / 2 * math.sqrt(count)
    low, high = math.floor(count / 2 - reach), math.ceil(count / 2 + 1 + reach)
    return max(1, low) - 1, min(count, high) - 1


def quantile(ordered: Sequence[float], share_ratio: float) -> float:
    """Return the quantile of sorted numbers, between neighbours by proportion.

    >>> quantile([1.0, 2.0, 3.0, 4.0], 0.5)
    2.5
    """
    place = share_ratio * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])
