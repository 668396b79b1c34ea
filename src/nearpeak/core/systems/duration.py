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


class TransferDuration(NamedTuple):
    """Time of one collective."""

    time_s: float
    """Expected time."""
    low_s: float
    """Low end of the 90 % interval."""
    high_s: float
    """High end of the 90 % interval."""
    sm_count: int = 0
    """Multiprocessors that it takes from kernels beside it."""
    distance_count: int = 3
    """As of kernels."""
