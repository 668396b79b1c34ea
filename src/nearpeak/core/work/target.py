"""A target device: its documented capabilities, with a source for every figure."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nearpeak.errors import NotModelledError


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Dense rate of one execution unit."""

    flop_per_s: float
    """Rate as the document states it."""
    flop_per_clock: float
    """FLOP per multiprocessor and clock."""
    clock_hz: float
    """Clock at which the rate is stated."""
    source: str
    """Document of the figure."""
    verified: bool = True
    """False when the figure was derived or read second-hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """One level of memory."""

    capacity_bytes: int | None
    """Size; none when no document states it."""
    bandwidth_bytes_per_s: float | None
    """Peak rate; none when no document states it."""
    source: str
    """Document of the figures."""
    verified: bool = True
    """False when a figure was derived or read second-hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One link off the device."""

    bandwidth_bytes_per_s: float
    """Rate in one direction."""
    source: str
    """Document of the figure."""
    verified: bool = True
    """False when the figure was derived or read second-hand."""
    device_count: int | None = None
    """Devices that such links join; none where no document says it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One device specification; partitions, power modes and what-if edits are derived targets."""

    name: str
    """File stem, with partition or edits after a colon."""
    title: str
    """Name for people."""
    vendor: str
    """Maker."""
    kind: str
    """`gpu`, `npu` (matrix engines beside other processors) or `cpu`."""
    architecture: str
    """Architecture name."""
    sm_count: int
    """Multiprocessors: SM, CU, Xe core, matrix engines of an NPU, or cores of a CPU."""
    clock_hz: float
    """Highest permitted clock of the multiprocessors."""
    clock_source: str
    """Document of the clock, or the reason for using the clock of the stated rates."""
    peaks: Mapping[str, Peak]
    """Dense peak by unit, e.g. `tensor.bf16`, `vector.fp32`."""
    dram: Memory
    """Device memory."""
    l2: Memory
    """Last cache that all multiprocessors share."""
    on_chip_bytes: int | None = None
    """Registers, shared memory and tensor memory of all multiprocessors together."""
    on_chip_source: str = ""
    """Document of those sizes."""
    special_per_clock: float | None = None
    """Special-function evaluations per multiprocessor and clock."""
    special_source: str = ""
    """Document of that rate."""
    links: Mapping[str, Link] = field(default_factory=dict)
    """Links off the device by name."""
    launch_floor_s: float | None = None
    """Least time of one kernel."""
    launch_source: str = ""
    """Document of the launch floor."""
    power_w: float | None = None
    """Board or module power limit."""
    unstated: tuple[str, ...] = ()
    """Units that the device has, as `peaks` names them, and whose rate no document states."""
    partitions: tuple[str, ...] = ()
    """Names of the partitions and power modes that can follow the name after a colon."""
    unverified: tuple[str, ...] = ()
    """Entries whose figures were derived or read second-hand."""
    measured: bool = False
    """True when the roofs were measured on the machine instead of read in a document."""

    def flop_per_s(self, unit: str) -> float:
        """Return the documented dense rate of `unit`.

        Raises:
            NotModelledError: the device file states no such peak.
        """
        return self._peak(unit).flop_per_s

    def highest_flop_per_s(self, unit: str) -> float:
        """Return the rate of `unit` at the highest permitted clock, or as documented where that is more."""
        peak = self._peak(unit)
        return max(peak.flop_per_s, peak.flop_per_clock * self.sm_count * self.clock_hz)

    def _peak(self, unit: str) -> Peak:
        if unit not in self.peaks:
            raise NotModelledError(f"{self.name}: no peak for {unit!r}; it states {', '.join(sorted(self.peaks))}")
        return self.peaks[unit]
