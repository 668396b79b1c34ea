"""Protocols of runners, backends and timers, and what they exchange: abilities, prepared cases, readings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from nearpeak.core.runs.measurement import Environment, Fallback, Measurement
from nearpeak.core.work.case import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerAbilities:
    """Capabilities of a runner, declared so that they are known before anything runs."""

    devices: tuple[str, ...]
    """Kinds of device: `cpu`, `cuda`, `recorded`."""
    phases: tuple[str, ...] = ("forward", "backward")
    """Phases of an operator."""
    dtypes: frozenset[str] | None = None
    """Number formats; none means all of its framework."""
    ops: frozenset[str] | None = None
    """Operators; none means all."""
    needs: tuple[str, ...] = ()
    """Packages without which it is refused."""
    preload: tuple[str, ...] = ()
    """Modules that take long to import: a warmed process imports them before it forks."""
    argument: str = ""
    """Meaning of the argument in `name:argument`; empty if it takes none."""
    converts: bool = False
    """Whether cases are converted for it, so that parts may stay behind: it keeps a ledger of them."""
    modes: tuple[str, ...] = ("cold", "hot")
    """Cache states that it can time."""
    places: bool = False
    """Whether inputs may lie otherwise than dense from an aligned address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A case that is ready to run."""

    runs: tuple[Callable[[], object], ...]
    """One call of the case for each independent set of inputs; it neither allocates nor waits."""
    outputs: Callable[[object], Mapping[str, Any]]
    """From what a run returned: outputs by name as NumPy arrays; formats that NumPy lacks are widened to float32."""
    algorithm: str = ""
    """Chosen algorithm, in the runner's words."""
    ledger: tuple[Fallback, ...] = ()
    """Parts that run elsewhere than intended."""
    upstream: tuple[Mapping[str, Any], ...] = ()
    """Of gradients: what came from above, by set of inputs, as arrays called `grad_<output>`."""
    phases_s: Mapping[str, float] = field(default_factory=dict)
    """Time of `build` and `plan`."""
    refresh: Callable[[int, str, int], None] | None = None
    """Takes over one element of the inputs that has changed in its array: set, input, position in the flat array; none
    where what runs has copies that stay as they were."""
    close: Callable[[], None] | None = None
    """Frees what it holds."""


class Runner(Protocol):
    """Something that can time a case."""

    name: str
    target: str
    abilities: RunnerAbilities

    def measure(self, case: Case) -> Measurement:
        """Return the measurement of `case`; a case that cannot run becomes one without samples."""
        ...


class Backend(Protocol):
    """Something that can run a case and leaves the timing to nearpeak; most runners are one, and inherit it."""

    name: str
    target: str
    abilities: RunnerAbilities
    is_reference: bool = False
    """Whether others are compared with what it computes, so that nothing checks it."""

    def refusal(self, case: Case) -> str:
        """Return the reason for which `case` cannot run here; empty when it can."""
        ...

    def prepare(self, case: Case, inputs: tuple[Mapping[str, Any], ...]) -> Prepared:
        """Return `case` ready to run on each of the sets of `inputs`, NumPy arrays by name."""
        ...

    def implementation(self, case: Case) -> Callable[..., Mapping[str, Any]] | None:
        """Return a function that computes `case`: (inputs by name, **arguments) → outputs by name; none if unavailable.

        Unless a backend says so itself, on tensors, it is what it prepares, on arrays, so that what is checked is what
        is timed; of gradients it is none then.
        """
        if case.phase != "forward":
            return None

        def call(arrays: Mapping[str, Any], **_: Any) -> Mapping[str, Any]:
            prepared = self.prepare(case, (arrays,))
            try:
                return prepared.outputs(prepared.runs[0]())
            finally:
                if prepared.close is not None:
                    prepared.close()

        call.arrays = "numpy"  # type: ignore[attr-defined]  # read by validation to give it what it takes
        call.__qualname__ = self.name
        return call

    def timer(self) -> "Timer":
        """Return the clock of the device."""
        ...

    def environment(self) -> Environment:
        """Return machine and software."""
        ...


class Timer(Protocol):
    """A clock that times calls; `measurement.timing.clocks.HostDefaults` has all but how to read it and to flush."""

    name: str
    mode: str
    resolution_s: float
    flush_policy: str
    """Cache flush method before cold calls: `read_sweep`, `program`."""
    late_floor_s: float
    """Time of a synchronisation with an idle device."""
    records_activity: bool
    """Whether the device can provide its own records of a call."""

    def read(self, run: Callable[[], object], call_count: int) -> "Reading":
        """Return the times of `call_count` calls in a row."""
        ...

    def flush(self) -> None:
        """Empty the caches, outside what is timed."""
        ...

    def set_count(self, case: Case) -> int:
        """Return the number of independent input sets in rotation."""
        ...

    def most_calls(self) -> int:
        """Return the number of calls that can be queued before host launches would be timed."""
        ...

    def clock_probe_s(self) -> float:
        """Return the time of one fixed piece of work: it is long when the clock is low."""
        ...

    def clock_policy(self) -> str:
        """Return `free`, `locked@…`, or `unknown` where nothing says it."""
        ...

    def activity(self, run: Callable[[], object]) -> "Activity | None":
        """Return the device's own records of one call; none where they are not permitted."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Times of some calls in a row, all of them together."""

    time_s: float
    """The device's time, or wall time where it has no clock."""
    cpu_s: float
    """CPU time of the calling thread, or of the process."""
    host_s: float
    """Wall time from the first call until the last is done."""
    result: Any = None
    """Outputs of the last call."""
    late_s: float = 0.0
    """Time for which the device went on after the end was recorded: on streams that the timer does not look at."""
    cycles_s: float = 0.0
    """Time that a fixed number of the device's clock cycles took just before; 0 where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """Activity of a device during one call, by its own records instead of events."""

    busy_s: float
    """Time in which at least one kernel, copy or fill ran, on any stream."""
    kernels: tuple[str, ...]
    """Their names, in order of first appearance."""
