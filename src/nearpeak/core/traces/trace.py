"""Profiler events: their kinds, one event, the header of a trace, and losses while reading it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any


class EventKind(IntEnum):
    """Kind of an event; columns hold the integers."""

    HOST_OP = 0
    """An operator of a framework on the host."""
    HOST_RANGE = 1
    """A range that somebody marked: user annotation, NVTX."""
    HOST_FRAME = 2
    """A function of Python."""
    HOST_API = 3
    """A call of the runtime or the driver."""
    KERNEL = 4
    """A kernel on a device."""
    MEMCPY = 5
    """A copy by or to a device."""
    MEMSET = 6
    """A fill of device memory."""
    SYNC = 7
    """Waiting for a device: of a stream, an event or a context."""
    DEVICE_RANGE = 8
    """A marked range as the device saw it; it overlaps the work inside it."""
    COUNTER = 9
    """A sampled value."""
    INSTANT = 10
    """A moment without length."""
    OVERHEAD = 11
    """Work of the profiler itself."""


DEVICE_KINDS = (EventKind.KERNEL, EventKind.MEMCPY, EventKind.MEMSET)
"""Kinds that keep a device busy."""
HOST_KINDS = (EventKind.HOST_OP, EventKind.HOST_RANGE, EventKind.HOST_FRAME, EventKind.HOST_API)
"""Kinds that nest on a thread."""


class Family(IntEnum):
    """Computation of a kernel, copy or operator, derived from its name; `UNKNOWN` if no rule matches."""

    UNKNOWN = 0
    GEMM = 1
    CONV = 2
    ATTENTION = 3
    NORM = 4
    ELEMENTWISE = 5
    REDUCTION = 6
    CAST = 7
    LAYOUT = 8
    COMM = 9
    OPTIMIZER = 10
    COPY = 11
    OTHER = 12


class CopyKind(IntEnum):
    """Direction of a copy."""

    UNKNOWN = 0
    H2D = 1
    D2H = 2
    D2D = 3
    P2P = 4
    H2H = 5
    UVM = 6


class Memory(IntEnum):
    """Memory of one end of a copy."""

    UNKNOWN = 0
    PAGEABLE = 1
    PINNED = 2
    DEVICE = 3
    MANAGED = 4


class SyncKind(IntEnum):
    """Object of a wait."""

    UNKNOWN = 0
    EVENT = 1
    """The host waits for an event."""
    STREAM_WAIT = 2
    """A stream waits for an event; the host goes on."""
    STREAM = 3
    """The host waits for a stream."""
    CONTEXT = 4
    """The host waits for the device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceDevice:
    """A device as the file describes it; none where it does not say."""

    index: int
    """Number on its host; -1 where the file does not say."""
    name: str = ""
    """Name, empty where the file has none."""
    sm_count: int | None = None
    """Multiprocessors or compute units."""
    memory_bytes: int | None = None
    """Size of its memory."""
    bandwidth_bytes_per_s: float | None = None
    """Bandwidth of its memory."""
    clock_hz: float | None = None
    """Clock of its multiprocessors."""
    l2_bytes: int | None = None
    """Size of its last cache."""
    compute_capability: str = ""
    """Version of its architecture, as in 9.0 or gfx942."""


NO_TIMES = "no times:"
"""Begin of what a file lacks where it states how long work took and not when it ran."""
END = "end of"
"""Prefix of loss kinds where the file ends early."""
READ_AS_WORK = "read as device work: no rule knows it, and it names a device and a stream"
"""End of loss kinds where records of an unknown kind count as work of a device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Something of the file that is not in the trace, or not as it stood there."""

    what: str
    """`dropped`, `repaired`, `skipped` (known and left out), `unknown` (no rule knows it) or `unlinked` (kept)."""
    kind: str
    """Kind of record or damage."""
    record_count: int
    """Count."""
    example: str = ""
    """Position and fault of the first one."""

    def line(self) -> str:
        """Return the loss for people.

        >>> Loss(what="dropped", kind="end before start", record_count=2, example="traceEvents[7].dur").line()
        'dropped 2: end before start (first: traceEvents[7].dur)'
        """
        return f"{self.what} {self.record_count}: {self.kind}" + (f" (first: {self.example})" if self.example else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceHeader:
    """Header of a trace file, and its missing statements."""

    format: str
    """Name of the importer."""
    version: str = ""
    """Version of the format, empty where the file has none."""
    source: str = ""
    """Name of the file."""
    base_ns: int = 0
    """Nanoseconds since the epoch at which the trace's clock reads 0; 0 where times are absolute or it is unknown."""
    resolution_ns: int = 1
    """Least step of the clock as the file prints it."""
    clock: str = "unknown"
    """`wall`, `monotonic` or `unknown`."""
    method: str = ""
    """Timing method; differences need equal methods."""
    devices: tuple[TraceDevice, ...] = ()
    """Devices that the file describes."""
    flags: Mapping[str, bool] = field(default_factory=dict)
    """Recorded features, as the file states them: shapes, stacks, memory, flops, modules."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of tool, driver and runtime."""
    host: str = ""
    """Name of the machine."""
    rank: int | None = None
    """Rank of the process in its job."""
    world_size: int | None = None
    """Number of ranks of the job."""
    record_count: int = 0
    """Records of the file, kept or not."""
    trimmed: bool = False
    """Whether the file ends early."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Everything else that the file says once, unchanged."""
    lacks: tuple[str, ...] = ()
    """Missing statements of the file, one sentence each; none was guessed."""
    losses: tuple[Loss, ...] = ()
    """Dropped, repaired, omitted or unknown records."""

    def device(self, number: int) -> TraceDevice | None:
        """Return what the file says of the device that its events call `number`; none where it does not tell.

        Events may count visible devices, and descriptions all of a host: where no description has the number, all of
        one kind describe it too.

        >>> header = TraceHeader(format="kineto", devices=(TraceDevice(index=3, name="NVIDIA H100"),))
        >>> header.device(0).name
        'NVIDIA H100'
        """
        exact = next((device for device in self.devices if device.index == number), None)
        kinds = {(device.name, device.sm_count, device.memory_bytes) for device in self.devices}
        return exact or (self.devices[0] if len(kinds) == 1 else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collective:
    """Data moved by a communication kernel or call; none if the file does not state it."""

    operation: str
    """Name of the collective."""
    dtype: str = ""
    """Type of its elements."""
    in_element_count: int | None = None
    """Elements that go in."""
    out_element_count: int | None = None
    """Output elements."""
    group_size_count: int | None = None
    """Members of its group."""
    group: str = ""
    """Name of its group."""
    ranks: str = ""
    """Members as the file prints them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event; times are nanoseconds of the trace's clock, what the file does not say is none."""

    id: int
    """Row in the trace; rows are in order of (start, longer first, place in the file)."""
    kind: EventKind
    """Kind."""
    name: str
    """Name as the file has it."""
    family: Family
    """Computation, derived from the name."""
    start_ns: int
    """Start."""
    end_ns: int
    """End, never before the start."""
    process: int | None = None
    """Process, of host events."""
    thread: int | None = None
    """Thread, of host events; may be negative."""
    device: int | None = None
    """Number of the device on its host."""
    context: int | None = None
    """Context of the device."""
    stream: int | None = None
    """Stream or queue, unique inside process, device and context."""
    correlation: int | None = None
    """Correlation id of a call and its device work, unique within one process of one file."""
    launch: int | None = None
    """Id of the host call that enqueued it."""
    parent: int | None = None
    """Id of the innermost host event on the same thread that encloses it."""
    grid: tuple[int, int, int] | None = None
    """Grid in blocks."""
    block: tuple[int, int, int] | None = None
    """Block in threads."""
    bytes: int | None = None
    """Bytes copied or filled."""
    copy_kind: CopyKind | None = None
    """Direction, of copies."""
    source_memory: Memory | None = None
    """Source of a copy."""
    target_memory: Memory | None = None
    """Destination of a copy."""
    sync: SyncKind | None = None
    """Object waited for, of synchronisations."""
    shapes: tuple[Any, ...] | None = None
    """Shapes of the inputs, of operators."""
    dtypes: tuple[Any, ...] | None = None
    """Types of the inputs as the framework calls them."""
    strides: tuple[Any, ...] | None = None
    """Strides of the inputs."""
    concrete: tuple[Any, ...] | None = None
    """Values of inputs that are no tensors, as text."""
    collective: Collective | None = None
    """Data moved among ranks."""
    args: Mapping[str, Any] = field(default_factory=dict)
    """Everything else that the file says of it, under the file's names."""

    @property
    def duration_ns(self) -> int:
        """Return its length in nanoseconds."""
        return self.end_ns - self.start_ns
