"""A profiled run as values: host and device queues, kernels, operators and their timeline."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from nearpeak.core.traces.timeline import Skew, Timeline
from nearpeak.core.traces.trace import NO_TIMES
from nearpeak.core.work.case import Case

NOTHING = -1
"""No event, no lane, no operator."""
OWN, DEVICE = -2, -3
"""Wait of a call: for its own work, or for all work on the device."""
CUT = "cut"
"""Kind of an item between steps that do not follow each other: all work before it has ended."""


class QueueItem(NamedTuple):
    """One call of the host in order, with the work that it gives to the device; times in nanoseconds."""

    call: int
    """Event of the call."""
    event: int
    """Event of the device work; NOTHING where there is none."""
    kind: str
    """`kernel`, `comm`, `copy`, `set`, `sync`, `alloc`, `graph` (work of a graph's launch), `host`, `backlog` (work of
    earlier steps that still runs) or `cut`."""
    before_ns: int
    """Host time between the call before and this one."""
    call_ns: int
    """Host time in the call, without what it waits for the device."""
    device_ns: int
    """Length of the device work."""
    lag_ns: int
    """Delay of its start beyond stream, call and waits."""
    lane: int
    """Stream, numbered from 0; NOTHING for calls without device work."""
    waits: int
    """Wait of the host: NOTHING, OWN, DEVICE, or the item whose end it needs."""
    after: tuple[int, ...]
    """Items of other streams that must have ended."""
    step: int
    """Step, numbered from 0."""
    kernel: int
    """Index of the kernel; NOTHING for copies and calls."""
    operator: int
    """Index of the operator; NOTHING if unknown."""
    parts: tuple[tuple[str, int], ...] = ()
    """Parts of `before_ns` whose cause is known: `loading`, `creation`, `between graphs`."""
    size: int = NOTHING
    """Bytes of a copy; NOTHING where they are not known."""
    copy: str = ""
    """Direction of a copy and the memory that it reads from or writes to on the host, as in `h2d pageable`."""
    exclusive_ns: int = 0
    """Part of its length within the window that belongs to it alone: computing before communication before copies."""
    block_count: int = NOTHING
    """Blocks of its grid; NOTHING where the trace does not say."""
    phase: str = ""
    """`optimizer` where a range of the host says so."""


class KernelRule(NamedTuple):
    """The profiler's own rule about one kernel, with its estimate."""

    item: int
    """Item of the kernel."""
    name: str
    """Name of the profiler's rule."""
    kind: str
    """`OPT`, `INF` or `WRN`."""
    text: str
    """Statement."""
    scope: str
    """`global` of the whole kernel, `local` of a part of it, or empty."""
    saved_ratio: float | None
    """Part of the kernel's time, or of that part of it, that it would save; none where it does not say."""


HOST_KINDS_OF_TIME = {
    "runtime": "calls of the runtime",
    "operators": "operators of the framework",
    "autograd": "autograd",
    "creation": "making tensors",
    "memory": "empty tensors and device memory",
    "loading": "loading data",
    "outside": "Python, and what no event covers",
}
"""Host activities, by name, in words."""


class HostCost(NamedTuple):
    """Host time of one kind, or before and in the calls of one operator or module; nanoseconds of all steps."""

    by: str
    """`kind`, `operator` or `module`."""
    name: str
    """One of HOST_KINDS_OF_TIME, or the name of the operator, or the kind of module."""
    time_ns: int
    """Host time, waits for the device left out."""
    call_count: int
    """Calls that it lies before or in."""
    gain_ns: int
    """What the steps would take less without it, by replay: nothing where the device is what they wait for."""


class Slice(NamedTuple):
    """A stretch of a lane of the picture, in nanoseconds from the begin of the window."""

    row: int
    """Lane: threads of the host first, then streams."""
    start_ns: int
    """Begin."""
    end_ns: int
    """End."""
    name: str
    """The case that ran."""
    kind: str
    """Family of a kernel, `comm`, `copy`, `set`, `call`, `operator` or `range`."""
    event: int = NOTHING
    """Row of the event in the trace, by which findings name it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelUse:
    """All launches of one kernel."""

    name: str
    """Name as the profiler has it."""
    family: str
    """Computation, in lower case."""
    unit: str
    """`tensor`, `tf32`, `vector` or empty where the name does not tell: units on which its products run."""
    launch_count: int
    """Launches in the steps looked at."""
    device_ns: int
    """Their time together."""
    block_count: int | None
    """Blocks of its largest grid; none where the trace does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """What theory says of one call of an operator."""

    label: str = ""
    """Its case in one line; empty where it has none."""
    cases: tuple[Case, ...] = ()
    """What one call computes; empty where no operator of the catalogue matches."""
    bound_s: float | None = None
    """Least time of one call."""
    predicted_s: float | None = None
    """Expected time of one call."""
    padded_s: float | None = None
    """Expected time of one call with axes padded to whole tiles; none where they are already."""
    tensor_s: float | None = None
    """Expected time of an fp32 product in TF32; none for everything else."""
    reason: str = ""
    """Why there is no case, bound or expected time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutedOperator(Times):
    """One operator with its shapes beside its bound and its expected time; times per call."""

    name: str
    """Name in the framework."""
    shapes: tuple[tuple[int, ...], ...]
    """Shapes of its tensors; empty where they were not recorded."""
    dtypes: tuple[str, ...]
    """Formats of its tensors."""
    call_count: int
    """Calls in the steps looked at."""
    device_ns: int
    """Device time of all calls together."""
    kernel_count: int
    """Kernels of all calls together."""
    kernels: tuple[str, ...]
    """Names of its kernels."""
    family: str
    """What most of its kernels compute."""

    @property
    def measured_s(self) -> float:
        """Return the device time of one call."""
        return self.device_ns * 1e-9 / self.call_count


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSample:
    """What a sensor said beside the steps."""

    time_ns: int
    """When."""
    item: int
    """First item whose work began after it."""
    clock_hz: float | None = None
    """Clock of the multiprocessors."""
    power_w: float | None = None
    """Power of the board."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Executed:
    """The steps of a trace that findings are looked for in."""

    name: str
    """Trace."""
    format: str
    """Importer that read it."""
    device: str
    """Device as the trace calls it."""
    device_number: int | None = None
    """Number of the device in the trace; none where it is made up."""
    target: str
    """Device file that bounds are taken from; empty where none is known."""
    step_count: int
    """Steps looked into: all, or a sample of them."""
    steps_found: str
    """How they were found, in words; empty where the whole window stands for one step."""
    left_out_count: int
    """Steps left out as warm-up."""
    step_ns: tuple[int, ...]
    """Length on the host of each recorded step that is no warm-up, looked into or not."""
    items: tuple[QueueItem, ...]
    """Calls in order with their work."""
    latency_ns: int
    """Least time from the begin of a call to the begin of its work."""
    kernels: tuple[KernelUse, ...]
    """Kernels."""
    operators: tuple[ExecutedOperator, ...]
    """Operators."""
    timeline: Timeline
    """Where the time went."""
    unmatched_ns: int
    """Device time that no operator with a case stands behind."""
    missing: Mapping[str, str]
    """What the trace does not say, by kind of evidence, and how to record it."""
    sm_count: int | None = None
    """Multiprocessors, where known."""
    power_limit_w: float | None = None
    """Power limit of the device."""
    clocks: tuple[ClockSample, ...] = ()
    """Clock and power beside the steps."""
    skew: Skew | None = None
    """How the ranks arrive at their collectives, where several are there."""
    rank_count: int | None = None
    """Ranks of the job; none where the trace does not say."""
    losses: tuple[str, ...] = ()
    """What reading the trace lost."""
    notes: tuple[str, ...] = ()
    """What else a reader must know."""
    called: tuple[str, ...] = ()
    """Operators of the first step that no other calls, with their shapes, in order."""
    rows: tuple[str, ...] = ()
    """Lanes of the picture."""
    slices: tuple[Slice, ...] = ()
    """The picture of the first steps."""
    path_ns: Mapping[str, int] = field(default_factory=dict)
    """Time of the critical path of all devices, by what decided: `kernel`, `host`, `sync`, `queue` and others."""
    module_ns: Mapping[str, int] = field(default_factory=dict)
    """Device time by module, longest first, that of none under ''; empty where the trace names no modules."""
    host: tuple[HostCost, ...] = ()
    """Where the host's time goes and what that costs; empty where no calls were recorded."""
    rules: tuple[KernelRule, ...] = ()
    """What the profiler's own rules say, where it has any."""
    counters: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    """Counters of the kernels of items, by name, in base units, where the trace has any."""
    unprofiled_step_s: float | None = None
    """What a step takes without the profiler, where somebody measured that."""
    cpu_alone: bool = False
    """Whether the CPU is the device: it ran the operators itself."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """Settings of the framework that the trace states, such as whether TF32 is allowed."""

    @property
    def window_ns(self) -> int:
        """Return the time of all steps looked at."""
        return self.timeline.span_ns

    @property
    def states_times(self) -> bool:
        """Say whether the file states when work ran; else it is placed end to end, and no idle time is known."""
        return not any(note.startswith(NO_TIMES) for note in self.notes)

    @property
    def mean_step_s(self) -> float:
        """Return the mean length of a step, of those too that were not looked into."""
        if len(self.step_ns) > self.step_count:
            return sum(self.step_ns) * 1e-9 / len(self.step_ns)
        return self.window_ns * 1e-9 / self.step_count
