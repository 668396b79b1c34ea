"""Step time when the host issues operators ahead of a device that executes them in order."""

from collections.abc import Iterable
from typing import NamedTuple


class Issued(NamedTuple):
    """A run of equal operators."""

    device_s: float
    """Time of one on the device."""
    call_count: int
    """How many."""
    waits: bool = False
    """Whether the host waits for the last of them before it goes on."""


def ahead_s(issued: Iterable[Issued], host_s: float) -> float:
    """Return the time from the first operator's issue to the end of the last one's work.

    Without a wait that is, but for the first and the last operator, the larger of the two sums; a wait makes it the sum
    of the larger ones on either side, and what the device still has to do.

    Args:
        host_s: time of the host for each operator.

    Source: the recurrences H(i) = H(i-1) + h, S(i) = max(E(i-1), H(i)), E(i) = S(i) + d(i).

    >>> work = [Issued(3e-6, 10), Issued(1e-6, 10)]
    >>> [round(ahead_s(work, host_s) * 1e6, 6) for host_s in (0.0, 2e-6, 4e-6)]
    [40.0, 42.0, 81.0]
    """
    host = device = 0.0
    for group in issued:
        count, first = group.call_count, host + host_s
        host += count * host_s
        # What is alike is issued and worked off evenly: the first or the last of them waits longest.
        device = max(device + count * group.device_s, first + count * group.device_s, host + group.device_s)
        host = max(host, device) if group.waits else host
    return max(host, device)
