"""Partitions of multiprocessors: slices, masks and time slices."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What runs under one address space.

    Contexts on disjoint multiprocessors run at the same time; those that share some take turns.
    """

    name: str = "0"
    """How work names it."""
    sms: tuple[int, ...] | None = None
    """Multiprocessors it may use, by place in the order of a first wave; none for all."""
    pool_bytes_per_s: Mapping[str, float] = field(default_factory=dict)
    """Private pools, per second, in place of the device's: an exclusive slice of memory."""
    slice_ps: int = 2_000_000_000
    """How long it keeps shared multiprocessors while another waits.
    Source: a few hundred µs to 2 ms, LithOS (SOSP'25)."""
    priority: int = 0
    """A context of a higher priority takes over at once."""
    drains: bool = False
    """Whether it gives way when its thread blocks have ended (CTA level), not in the middle of them."""


def green(sm_count: int, asked_count: int, *, least_count: int = 8, multiple_count: int = 8) -> int:
    """Return the multiprocessors that a green context gets for a requested number.

    Source: CUDA driver API, cuDevSmResourceSplitByCount: at least 8 and multiples of 8 on compute capability 9.0.

    >>> green(132, 20)
    24
    """
    granted = max(least_count, multiple_count * -(-asked_count // multiple_count))
    return min(granted, sm_count)
