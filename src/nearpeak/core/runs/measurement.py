"""Measurement of one case: samples, outcome, environment and runner; and the sampling plan that a runner follows."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Any

from nearpeak.base.canonical_json import digest
from nearpeak.core.answers.notebook_display import html_of
from nearpeak.core.answers.suite import Why
from nearpeak.core.records.record_codec import Codec
from nearpeak.core.runs.estimate import Estimate, estimate_of, quantile
from nearpeak.core.runs.telemetry import Span, Telemetry
from nearpeak.core.runs.validation import Validation
from nearpeak.core.work.case import Case
from nearpeak.errors import MeasureError


class Outcome(StrEnum):
    """Outcome of the measurement of one case; every requested case gets one."""

    CONVERGED = "converged"
    """The interval of the median is as narrow as requested."""
    BUDGET = "budget"
    """Time was up first; the interval says how well the median is known."""
    THROTTLED = "throttled"
    """The clock fell, or was not the requested one."""
    SUSPECT_FAST = "suspect_fast"
    """The timers contradict each other: work may have run where they do not look."""
    BELOW_BOUND = "below_bound"
    """Faster than its bound: kept out of rankings until the cause is known."""
    INCORRECT = "incorrect"
    """The result is wrong, so that it has no time."""
    UNSUPPORTED = "unsupported"
    """The runner says that it cannot run the case, and why."""
    FAILED = "failed"
    """Running the case raised an error."""
    CRASH = "crash"
    """Running the case ended its process."""
    TIMEOUT = "timeout"
    """Running the case did not end within its limit."""
    OOM = "oom"
    """Running the case took more memory than it may."""
    INFRA = "infra"
    """The device was not to be had or was lost: not the fault of the case."""


FAILURES = {
    "crash": "crashed", "timeout": "did not end within its limit", "oom": "ran out of memory",
    "failed": "ended with an error",
}  # fmt: skip
"""Outcomes in which a case did not run to its end, and what reports call them."""
LOW_SHARE = 0.05
"""Share of the samples below the centre of CPU times."""
TIMED = frozenset({Outcome.CONVERGED, Outcome.BUDGET})
"""Outcomes whose samples may be compared and ranked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Sampling plan of one case: durations and counts."""

    budget_s: float = 0.3
    """Time for samples, warm-up and the emptying of caches: CPU time on a host, wall time on a device."""
    limit_s: float = 120.0
    """Wall time after which the case is given up, everything included."""
    least_count: int = 5
    """Samples taken even when the budget is spent before."""
    precision_ratio: float = 0.005
    """Half-width of the median's 95 % interval over the median at which sampling stops."""
    cache: str = "cold"
    """`cold`: inputs come from memory at every call; `hot`: as the call before left them."""
    thread_count: int = 1
    """Threads that the case may use."""
    memory_bytes: int = 8 << 30
    """Memory that the process of the case may add; ignored where a device driver maps more addresses than that."""
    flush_bytes: int = 96 * 2**20
    """Bytes read between cold calls on a CPU."""
    validate: bool = True
    """Whether results are checked before they are timed, where a contract for them is at hand."""
    recorded: bool = True
    """Whether a device is asked for its own records of one call, which costs a second or so in each process."""

    @property
    def swept_bytes(self) -> int:
        """Bytes that a host's timer reads before each call: none where caches stay as the call before left them."""
        return self.flush_bytes if self.cache == "cold" else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """Sampling method: measurements that differ here are never compared silently."""

    timer: str
    """Timer: `perf_counter`, `cuda_events`, …."""
    mode: str
    """Timed object: `host`, `device` or `graph`."""
    cache: str
    """`cold` or `hot`."""
    flush: str
    """Cache flush method: `read_sweep`, `rotate` or `none`."""
    process: str
    """Whose child ran it: `forked` from a warmed parent, `fresh`, or `caller` where nothing was isolated."""
    thread_count: int
    """Threads that the case could use."""
    clock_policy: str
    """`free`, `locked@…`, or `unknown` where the machine does not say."""


@dataclass(frozen=True, kw_only=True)
class Environment:
    """State of machine and software."""

    device: str
    """Device as its driver names it."""
    device_uuid: str = ""
    """Identity of the unit; empty where it has none."""
    driver: str = ""
    """Version of the device's driver."""
    runtime: str = ""
    """Version of the device's runtime, e.g. CUDA 12.8."""
    system: str = ""
    """Operating system and its version."""
    python: str = ""
    """Version of the interpreter."""
    packages: tuple[tuple[str, str], ...] = ()
    """Versions of the packages that took part."""
    settings: tuple[tuple[str, str], ...] = ()
    """Governor, power limit, persistence and the like, as found."""

    def __post_init__(self) -> None:
        """Order packages and settings by name: what is read again from an object of JSON is equal."""
        for name in ("packages", "settings"):
            object.__setattr__(self, name, tuple(sorted(getattr(self, name))))

    @cached_property
    def digest(self) -> str:
        """Identity of all of it, 16 hexadecimal characters.

        >>> Environment(device="a").digest == Environment(device="b").digest
        False
        """
        return digest(self.record())[:16]

    def record(self) -> dict[str, Any]:
        """Return it as plain data."""
        record: dict[str, Any] = ENVIRONMENTS.plain(self)
        return record


ENVIRONMENTS = Codec(pairs_as_objects=True)
"""Codec of environments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """A part of the case or model that did not run where it was meant to: one line of the ledger."""

    node: str
    """Node, operator or function."""
    ran_on: str
    """Replacement."""
    reason: str
    """Why."""
    flop: int = 0
    """Its arithmetic."""
    flop_ratio: float | None = None
    """Its share of all arithmetic; none where that is unknown."""
    time_ratio: float | None = None
    """Its share of the measured time; none where that is unknown."""
    chosen: bool = False
    """Whether the runner preferred it to its own: a library's kernel is no fallback, and still not its code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """All samples of one case; centres and ratios are derived from them."""

    case: Case
    """The case that ran."""
    target: str
    """Device."""
    runner: str
    """Runner, with its argument."""
    samples_s: tuple[float, ...]
    """Time of one call, sample by sample in order: on the device where it has a clock, else wall time."""
    cpu_samples_s: tuple[float, ...] = ()
    """Thread-CPU time of one call for each sample, or that of the process where there are several threads."""
    host_samples_s: tuple[float, ...] = ()
    """Wall time of each sample where `samples_s` is the device's."""
    warmup_s: tuple[float, ...] = ()
    """Samples before the times settled."""
    call_count: int = 1
    """Calls per sample, over which its time is divided."""
    timer_s: float = 0.0
    """Resolution of the timer."""
    outcome: Outcome = Outcome.BUDGET
    """Outcome."""
    note: str = ""
    """Reason for missing samples, or a remark on them."""
    details: str = ""
    """Last lines of the exception or of the process output, where there are no samples."""
    method: Method | None = None
    """Sampling method; none for recorded samples without one."""
    environment: Environment | None = None
    """Machine and software."""
    phases_s: Mapping[str, float] = field(default_factory=dict)
    """Time of `build` and `plan`, once each, apart from the runs."""
    clock_probes_s: tuple[float, ...] = ()
    """Time of one fixed piece of work on the same core or device before and after the samples."""
    activity_s: float | None = None
    """Time that the device was busy during one call by its own records (CUPTI); none where there are none."""
    launch: int = 1
    """Number of the child process among repetitions."""
    algorithm: str = ""
    """Algorithm chosen by the runner, in its own words."""
    ledger: tuple[Fallback, ...] = ()
    """Parts that ran elsewhere than intended."""
    validation: Validation | None = None
    """Result of the numerics validation; none unless requested."""
    why: tuple[Why, ...] = ()
    """Reasons for the case with their counts, where it was run for a suite."""
    spans_ns: tuple[Span, ...] = ()
    """When it was prepared, checked, warmed up and sampled, on the monotonic clock of the machine."""
    telemetry: Telemetry | None = None
    """Sensor readings during the measurement; none unless requested."""

    @property
    def has_times(self) -> bool:
        """Return whether there are samples and each is a valid time: files may hold times of a faulty clock."""
        return bool(self.samples_s) and all(0 < sample_s < math.inf for sample_s in self.samples_s)

    @property
    def best_s(self) -> float:
        """Shortest sample: how near the machine came to its peak, which other load on it can only lengthen.

        Raises:
            MeasureError: there are none.
        """
        return min(self._some(self.samples_s))

    @property
    def cpu_low_s(self) -> float:
        """CPU time of one call below which a twentieth of the samples lie: the centre that other load changes least.

        Load lengthens most samples, by caches that another process has filled and by a core that is shared; a few are
        far too short where the host of a virtual machine accounts time late. Beside two busy loops the least sample of
        a product scattered by 10 % between launches, this by 2 % (figures: cpu_timing).

        Raises:
            MeasureError: there are none.
        """
        return quantile(sorted(self._some(self.cpu_samples_s)), LOW_SHARE)

    def estimate(self) -> Estimate:
        """Return median and interval of the time of one call.

        Raises:
            MeasureError: there are no samples.
        """
        return estimate_of(self._some(self.samples_s))

    def _repr_html_(self) -> str | None:
        """Return what a notebook shows."""
        return html_of(self)

    def _some(self, samples_s: tuple[float, ...]) -> tuple[float, ...]:
        if not samples_s:
            raise MeasureError(f"{self.case.label()} on {self.target}: no samples: {self.note or self.outcome}")
        return samples_s
