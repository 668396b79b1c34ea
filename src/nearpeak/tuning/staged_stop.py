"""Early end of sampling: a configuration is timed until more calls would not change its rank."""

import statistics
from collections.abc import Sequence

FULL_COUNT = 32
"""Calls of a configuration that is about as fast as the best."""
STAGES = ((1, 1.2, 0.0), (4, 1.1, 0.9), (8, 1.05, 0.95))
"""Calls after which sampling may stop, and the ratios to the best time above and below which it does. One call proves a
slow configuration slow. A fast one needs four: a clock that is wrong once must not end the measurement."""


def stop_reason(samples_s: Sequence[float], best_s: float) -> str | None:
    """Return why no more calls are needed; empty after a full measurement, none while sampling goes on.

    Args:
        best_s: median time of the best configuration until now, infinite where there is none.

    >>> stop_reason([1.3], 1.0), stop_reason([1.1], 1.0), stop_reason([0.5] * 4, 1.0)
    ('1.30 × the best after 1 call', None, '0.50 × the best after 4 calls')
    """
    count = len(samples_s)
    if count >= FULL_COUNT:
        return ""
    for calls, above, below in STAGES:
        if count == calls:
            ratio = statistics.median(samples_s) / best_s
            if ratio == 0:
                return "" if calls == STAGES[-1][0] else None  # the first has nothing to be compared with
            if ratio > above or ratio < below:
                return f"{ratio:.2f} × the best after {calls} call{'s' * (calls > 1)}"
    return None


def is_slow(samples_s: Sequence[float], best_s: float) -> bool:
    """Return whether a configuration whose sampling stopped early is slower than the best."""
    return len(samples_s) < FULL_COUNT and statistics.median(samples_s) > best_s
