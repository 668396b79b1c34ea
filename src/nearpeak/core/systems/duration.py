"""Durations that systems are composed of: kernels and collectives with interval, proved bound and provenance."""

from typing import NamedTuple


class KernelDuration(NamedTuple):
    """Time of one launch of a kernel."""

    time_s: float
    """Expected time."""
    low_s: float
    """Low end of the 90 % interval."""
    high_s: float
    """High end of the 90 % interval."""
    bound_s: float
    """Time that nothing can beat."""
    family: str = ""
    """Kernels whose errors go together: those of one operator."""
    distance_count: int = 0
    """Steps from the measurements behind it: 0 this device, 1 its architecture, 2 its maker's, 3 another maker's."""
    flop: float = 0.0
    """Products of matrices, FLOP."""


class Taken(NamedTuple):
    """What a collective takes from kernels beside it."""

    sm_count: int = 0
    """Multiprocessors."""
    memory_ratio: float = 0.0
    """Share of the rate of device memory."""

    @property
    def is_any(self) -> bool:
        """Whether anything is taken.

        >>> Taken().is_any, Taken(memory_ratio=0.1).is_any
        (False, True)
        """
        return self.sm_count > 0 or self.memory_ratio > 0


WHOLE = Taken()
"""Nothing is taken: a kernel has the device to itself."""


class TransferDuration(NamedTuple):
    """Time of one collective."""

    time_s: float
    """Expected time."""
    low_s: float
    """Low end of the 90 % interval."""
    high_s: float
    """High end of the 90 % interval."""
    taken: Taken = WHOLE
    """What it takes from kernels beside it."""
    distance_count: int = 3
    """As of kernels."""
    tier: str = ""
    """Outermost tier that it crosses: collectives on one tier share it."""
