"""Work submitted to a simulated device: kernels of phases, copies, and their dependencies."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from nearpeak.errors import SpecError
from nearpeak.simulation.machine import Limits

LARGEST_GRID = 2**31 - 1
"""Blocks that a grid may have along x. Source: CUDA C++ programming guide, technical specifications."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """A part of a thread block whose demands go on together; the slowest of them sets the pace."""

    fixed_ps: int = 0
    """Least time with all resources free: latency, instructions."""
    pipe_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds of a multiprocessor's whole unit, by name of the unit."""
    pool_bytes: Mapping[str, float] = field(default_factory=dict)
    """Bytes moved through what all share, by name of the pool."""
    waits: bool = False
    """Whether it starts only when the kernels before have ended: what lies before it may overlap their tail."""
    sags: bool = False
    """Whether it is the measured cost of a falling clock: omitted where a governor sets the clock."""

    def works(self) -> bool:
        """Return whether it uses a unit or moves bytes, rather than waiting only."""
        return any(self.pipe_s.values()) or any(self.pool_bytes.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """A grid of equal thread blocks."""

    name: str
    """How records and pictures call it; unique in a run."""
    cta_count: int
    """Thread blocks."""
    phases: tuple[Phase, ...]
    """Phases of each block in sequence."""
    needs: Limits
    """What one block takes of a multiprocessor."""
    queue: str = "0"
    """Stream, whose work runs in order."""
    priority: int = 0
    """Larger goes first."""
    after: tuple[str, ...] = ()
    """Names that must have ended before."""
    not_before_ps: int = 0
    """When the host has submitted it, or its data arrive."""
    cluster_count: int = 1
    """Blocks that start together in one cluster of multiprocessors."""
    early: bool = False
    """Whether its blocks may take free multiprocessors while the kernels before end (programmatic dependent launch)."""
    context: str = "0"
    """Which context submits it."""
    thread: str = ""
    """Host thread that submits it, in the order given; none where it is on the device from the start."""
    host_ps: int | None = None
    """What submitting it takes that thread; none for what the machine says."""
    host_after: tuple[str, ...] = ()
    """Names that the thread waits for before it submits: a synchronisation."""
    graph: str = ""
    """Graph that it is a node of: one launch submits all nodes."""
    sms: tuple[int, ...] | None = None
    """Multiprocessors that its stream or client may use, by place in the order of a first wave; none for all."""

    def __post_init__(self) -> None:
        """Refuse a grid that no device accepts."""
        if not 0 < self.cta_count <= LARGEST_GRID:
            raise SpecError(f"kernel {self.name}: {self.cta_count} thread blocks; a grid has 1 to {LARGEST_GRID}")
        if self.cluster_count < 1 or self.cta_count % self.cluster_count:
            raise SpecError(
                f"kernel {self.name}: clusters of {self.cluster_count} do not divide {self.cta_count} blocks"
            )
        if not self.phases:
            raise SpecError(f"kernel {self.name}: no phase; every thread block takes some time")


@dataclass(frozen=True, slots=True, kw_only=True)
class Copy:
    """A transfer by a copy engine: no multiprocessor takes part."""

    name: str
    """How records call it; unique in a run."""
    engine: str
    """Engine that runs it, one transfer at a time."""
    pool_bytes: Mapping[str, float]
    """Bytes through links and memories."""
    fixed_ps: int = 0
    """Time to start."""
    queue: str = "0"
    """Stream."""
    after: tuple[str, ...] = ()
    """Names that must have ended before."""
    not_before_ps: int = 0
    """When it is submitted."""
    context: str = "0"
    """Which context submits it."""
    priority: int = 0
    """Larger goes first."""
    thread: str = ""
    """Host thread that submits it, in the order given; none where it is on the device from the start."""
    host_ps: int | None = None
    """What submitting it takes that thread; none for what the machine says."""
    host_after: tuple[str, ...] = ()
    """Names that the thread waits for before it submits: a synchronisation."""
    graph: str = ""
    """Graph that it is a node of: one launch submits all nodes."""


Node = Kernel | Copy
