"""A power mode of a board, and times and powers that were measured in it."""

from dataclasses import dataclass

from nearpeak.core.edge.scoped_power import ScopedPower


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardMode:
    """What a power mode leaves on, and at which clocks."""

    name: str
    """Name of the mode, `25W`, `15W@5`; `full` for the whole board."""
    target: str
    """Name of its target."""
    clock_hz: float
    """Clock of the multiprocessors."""
    sm_count: int
    """Multiprocessors that stay on."""
    bandwidth_bytes_per_s: float | None
    """Memory rate; none where no document states it."""
    budget_w: float | None
    """Power budget; none where the mode is uncapped or no document states it."""
    host_count: int | None = None
    """Cores of the host that stay on; none where no document states it."""
    host_clock_hz: float | None = None
    """Their clock."""
    source: str = ""
    """Document of the mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeSample:
    """A measurement in a power mode."""

    mode: str
    """Name of the mode."""
    time_s: float
    """Time of one run of the model."""
    power: ScopedPower | None = None
    """Mean power while it runs; none where it was not measured."""
    model: str = ""
    """Model that ran; empty for the one that is planned."""
