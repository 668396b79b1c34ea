"""Expected energy of a case or a step, by component of the board, with its interval and provenance."""

from collections.abc import Mapping
from dataclasses import dataclass

PARTS = {
    "idle": "the board at full clocks with nothing to do",
    "busy": "clocks, schedulers and caches of a kernel that runs, whatever it does",
    "filled": "multiprocessors that hold a tile of a product, whatever it waits for",
    "products": "matrix units",
    "vector": "vector and special-function units",
    "cache": "bytes that the last cache feeds",
    "memory": "bytes to and from device memory",
}
"""Power consumers of a board, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedEnergy:
    """Expected energy of one case or step in a steady state, as the board's own meter would show it."""

    energy_j: float
    """Expected energy, the board's idle power included."""
    low_j: float
    """Low end of the 90 % interval."""
    high_j: float
    """High end of the 90 % interval."""
    power_w: float
    """Expected average power."""
    parts_j: Mapping[str, float]
    """Energy by part, which adds up to `energy_j`."""
    source: str
    """Coefficient file and group, and the measurements behind it."""
    distance_count: int = 0
    """0 where power of this device was measured; 1 where ratios of another device are used."""
