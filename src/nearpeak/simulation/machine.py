"""A simulated GPU: groups of multiprocessors, their capacity for blocks, and shared resources."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from nearpeak.errors import SpecError
from nearpeak.simulation.power_governor import Power


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one multiprocessor holds at a time; the same fields say what one thread block needs of it."""

    ctas_count: int
    """Thread blocks."""
    threads_count: int
    """Threads."""
    registers_count: int
    """Registers of 32 bits."""
    shared_bytes: int
    """Shared memory, with what the system keeps for each block."""

    def vector(self) -> tuple[int, int, int, int]:
        """Return the four numbers in the order of the fields."""
        return (self.ctas_count, self.threads_count, self.registers_count, self.shared_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Times that no work explains, in picoseconds."""

    dependency_ps: int = 0
    """From the end of a kernel to the start of one that waits for it."""
    floor_ps: int = 0
    """Least time between the start of a kernel and its completion."""
    switch_ps: int = 0
    """Switch between two contexts with work, besides saving and restoring state."""
    state_bytes_per_s: float | None = None
    """Rate at which registers and shared memory of resident blocks are saved and restored when contexts change; none
    for at once."""
    launch_ps: int = 0
    """What a host thread spends on submitting one kernel or copy."""
    submit_ps: int = 0
    """From the end of submitting to the earliest start on the device."""
    graph_ps: int = 0
    """Host time of submitting a graph, independent of its size."""
    graph_node_ps: int = 0
    """Additional host time for each node of a graph."""

    def __post_init__(self) -> None:
        """Refuse times that go backwards."""
        for each in fields(self):
            value = getattr(self, each.name)
            if value is not None and (not value >= 0):
                raise SpecError(f"costs: {each.name} is {value:g}; it cannot be negative")
        if self.state_bytes_per_s == 0:
            raise SpecError("costs: state_bytes_per_s is 0; state that is never saved cannot be switched")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One device, real or not.

    >>> Machine(name="toy", gpc_sm_count=(4, 4), limits=LIMITS["hopper"], pool_bytes_per_s={"dram": 1e12}).sm_count
    8
    """

    name: str
    """How reports call it."""
    gpc_sm_count: tuple[int, ...]
    """Multiprocessors of each cluster of them; a cluster of thread blocks stays inside one."""
    limits: Limits
    """What one multiprocessor holds."""
    pool_bytes_per_s: Mapping[str, float] = field(default_factory=dict)
    """What all share, per second: bytes of `l2`, `dram`, `link`, `host_in`, `host_out`."""
    costs: Costs = Costs()
    """Times that no work explains."""
    power: Power | None = None
    """What it draws and may draw; without it the clock stays where it is."""
    grid_count: int = 128
    """Kernels whose blocks are resident at the same time. Source: CUDA C++ programming guide, technical
    specifications, compute capability 7.0 and later."""
    queue_count: int | None = None
    """Hardware queues of a context: streams beyond as many share one and wait for each other. None for as many as there
    are streams; CUDA's `CUDA_DEVICE_MAX_CONNECTIONS` is 8 unless it is set."""
    pending_count: int = 1024
    """Launches of a host thread that may wait on the device; beyond, the thread waits."""

    def __post_init__(self) -> None:
        """Refuse a machine that cannot be."""
        if not self.gpc_sm_count or min(self.gpc_sm_count) < 1:
            raise SpecError(f"{self.name}: a cluster of multiprocessors has at least one, not {self.gpc_sm_count}")
        for key, value in self.pool_bytes_per_s.items():
            if not 0 < value < float("inf"):
                raise SpecError(f"{self.name}: pools.{key} is {value:g} per second; it must be positive and finite")
        if min(self.limits.vector()) < 1:
            raise SpecError(f"{self.name}: a multiprocessor that holds nothing: {self.limits}")
        for field_name in ("grid_count", "pending_count"):
            if getattr(self, field_name) < 1:
                raise SpecError(f"{self.name}: {field_name} is {getattr(self, field_name)}; at least 1 is right")
        if self.queue_count is not None and self.queue_count < 1:
            raise SpecError(f"{self.name}: queue_count is {self.queue_count}; at least 1 is right")

    @property
    def sm_count(self) -> int:
        """Multiprocessors of the device."""
        return sum(self.gpc_sm_count)

    def spread(self) -> tuple[int, ...]:
        """Return the cluster of each multiprocessor, in the order in which a first wave reaches them.

        One of each cluster in turn, so that a small grid meets as many caches and ports as there are.

        >>> Machine(name="toy", gpc_sm_count=(2, 1), limits=LIMITS["hopper"]).spread()
        (0, 1, 0)
        """
        left, order = list(self.gpc_sm_count), []
        while any(left):
            for gpc, count in enumerate(left):
                if count:
                    order.append(gpc)
                    left[gpc] -= 1
        return tuple(order)


def _limits(threads: int, ctas: int, shared_kib: int) -> Limits:
    return Limits(ctas_count=ctas, threads_count=threads, registers_count=65536, shared_bytes=shared_kib * 1024)


LIMITS = {
    "maxwell": _limits(2048, 32, 96),
    "pascal": _limits(2048, 32, 64),
    "volta": _limits(2048, 32, 96),
    "turing": _limits(1024, 16, 64),
    "ampere": _limits(2048, 32, 164),
    "ada": _limits(1536, 24, 100),
    "hopper": _limits(2048, 32, 228),
    "blackwell": _limits(2048, 32, 228),
}
"""What a multiprocessor of each architecture holds. Source: CUDA C++ programming guide, technical specifications per
compute capability (5.2, 6.0, 7.0, 7.5, 8.0, 8.9, 9.0, 10.0)."""
