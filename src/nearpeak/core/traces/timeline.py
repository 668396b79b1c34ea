"""Timeline of a device: parts of a time span, idle time by cause, steps, critical path and ranks."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Idle(StrEnum):
    """Why a device had nothing to do. The first seven are parts of the wait for the host."""

    SYNC = "blocking synchronisation"
    ALLOC = "allocation of device memory"
    COPY_CALL = "call that copies or fills"
    INPUT = "loading of data"
    LAUNCH = "call of the runtime"
    FRAMEWORK = "operators of the framework"
    HOST_OTHER = "host code that was not recorded"
    QUEUE = "queue: dependency, scheduling, start of the work"
    UNKNOWN = "no recorded call"


HOST_CAUSES = (Idle.SYNC, Idle.ALLOC, Idle.COPY_CALL, Idle.INPUT, Idle.LAUNCH, Idle.FRAMEWORK, Idle.HOST_OTHER)
"""Causes whose sum is the time that the device waited for its host."""
ORDER = "compute > communication > copies > fills"
"""Which kind of work counts where several overlap: what is exposed is what nothing before it covers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """Parts of the span of one device, in nanoseconds.

    Exact: compute + exposed_comm + exposed_memcpy + exposed_memset + idle = span, and the causes of idle sum to idle.
    """

    device: int | None
    """Number of the device; none where the file does not say."""
    start_ns: int
    """Start of the span."""
    end_ns: int
    """End of the span."""
    compute_ns: int
    """Time in which at least one kernel ran that is no communication."""
    exposed_comm_ns: int
    """Time of communication that no compute covers."""
    exposed_memcpy_ns: int
    """Time of copies that neither compute nor communication cover."""
    exposed_memset_ns: int
    """Time of fills that nothing else covers."""
    comm_ns: int
    """Time in which at least one communication kernel ran, covered or not."""
    memcpy_ns: int
    """Time in which at least one copy ran."""
    memset_ns: int
    """Time in which at least one fill ran."""
    kernel_count: int
    """Kernels that are no communication."""
    comm_count: int
    """Communication kernels."""
    memcpy_count: int
    """Copies."""
    memset_count: int
    """Fills."""
    kernel_sum_ns: int
    """Sum of the lengths of kernels that are no communication; above compute where they overlap."""
    comm_sum_ns: int
    """Sum of the lengths of communication kernels."""
    memcpy_bytes: int
    """Bytes of the copies whose size the file states."""
    unlinked_count: int
    """Events without a recorded call."""
    gap_count: int
    """Maximal stretches without work."""
    idle_by_cause_ns: Mapping[Idle, int]
    """Idle time by cause; causes that did not occur are left out."""
    queue_delay_ns: int | None
    """Median from the start of a call to the start of its work; none where no call was recorded."""
    stream_busy_ns: Mapping[str, int]
    """Busy time of each stream by its label; streams of several processes or contexts are apart."""
    graph_launch_count: int
    """Launches of captured graphs."""
    graph_kernel_count: int
    """Kernels that such launches started."""
    order: str = ORDER
    """Order in which overlapping work counts."""

    @property
    def span_ns(self) -> int:
        """Return the length of the span."""
        return self.end_ns - self.start_ns

    @property
    def busy_ns(self) -> int:
        """Return the time in which the device did anything."""
        return self.compute_ns + self.exposed_comm_ns + self.exposed_memcpy_ns + self.exposed_memset_ns

    @property
    def idle_ns(self) -> int:
        """Return the time in which the device did nothing."""
        return self.span_ns - self.busy_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One iteration of what the program repeats."""

    index: int
    """Number as the marker has it, or its place."""
    name: str
    """Marker, or the operator or kernel that begins each step."""
    start_ns: int
    """Start on the host, or on the device where kernels mark the steps."""
    end_ns: int
    """End."""
    warm_up: bool
    """Whether it is left out of figures: it came first and took longer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Steps:
    """The iterations of a trace and how they were found."""

    how: str
    """`marker`, `range`, `operator`, `kernel`, or `none` with the reason in `note`."""
    steps: tuple[Step, ...]
    """Iterations in order of time."""
    note: str = ""
    """Why none were found, or what is uncertain."""

    @property
    def steady(self) -> tuple[Step, ...]:
        """Return the steps that are no warm-up."""
        return tuple(step for step in self.steps if not step.warm_up)


@dataclass(frozen=True, slots=True, kw_only=True)
class PathPart:
    """A stretch of the critical path."""

    row: int | None
    """Row of the event; none between events."""
    what: str
    """`kernel`, `communication`, `copy`, `fill`, `host`, `sync`, `queue` or `not recorded`."""
    start_ns: int
    """Start."""
    end_ns: int
    """End."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CriticalPath:
    """What decided when the last work ended: stretches without a hole from the start of the window to its end."""

    parts: tuple[PathPart, ...]
    """Stretches in order of time."""
    time_by_what_ns: Mapping[str, int]
    """Sum of the lengths by what they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSkew:
    """How one rank arrives at the collectives of its group, against the others."""

    rank: int
    """Number of the rank."""
    offset_ns: int
    """What was added to its clock so that common collectives end together."""
    residual_ns: int
    """Median distance of the ends of common collectives after that."""
    wait_ns: int
    """Sum over collectives of the time from its arrival to that of the last rank."""
    transfer_ns: int
    """Sum over collectives of the time from the arrival of the last rank to its own end."""
    last_count: int
    """Collectives at which it was the last to arrive."""
    busy_ns: int
    """Busy time of its devices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skew:
    """Several ranks laid side by side."""

    ranks: tuple[RankSkew, ...]
    """Each rank."""
    collective_count: int
    """Collectives that all ranks have."""
    straggler: int | None
    """Rank that is last at most collectives and makes the others wait; none where no rank stands out."""
    spread_ns: int
    """Median over collectives of the time between first and last arrival."""
    note: str = ""
    """What is uncertain."""
