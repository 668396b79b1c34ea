"""An analysis of a workload: bounds of its calls and of the step on each target, ready to be reported."""

from collections.abc import Mapping
from dataclasses import dataclass

from nearpeak.core.answers.bound import Policy, Rewritten
from nearpeak.core.answers.execution_time import ExecutionTime
from nearpeak.core.answers.notebook_display import html_of
from nearpeak.core.answers.proof import Proof
from nearpeak.core.answers.step_prediction import CallPrediction, StepPrediction
from nearpeak.core.runs.below_bound_finding import BelowBound
from nearpeak.core.work.case import Case

SCHEMA_VERSION = 5
# 1: first version; documented in docs/reference/report_json.md.
# 2: proofs, bounds at the worst values, measurements below their bound.
# 3: the family of each case's operator, expected times.
# 5: expected times by execution mode; opportunities as expected times before and after.


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRow:
    """One distinct case of the workload."""

    case: Case
    """The computation."""
    label: str
    """The case in one line."""
    family: str
    """Family of its operator, one of core.family.FAMILIES."""
    phase: str
    """Step phase in which it runs: forward, backward or optimizer."""
    module: str
    """Pattern of the modules that call it, layer numbers as `*`."""
    source: str
    """File and line of the first call."""
    call_count: int
    """Calls per step."""
    matrix_flop: int
    """FLOP of one call that matrix units can do."""
    total_flop: int
    """All FLOP of one call."""
    read_bytes: int
    """Distinct bytes one call reads."""
    write_bytes: int
    """Distinct bytes one call writes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseTime:
    """One case on one target; times are of one call."""

    bound_s: float
    """Time nothing can beat, inputs cold."""
    limiter: str
    """Term that sets the bound."""
    terms_s: Mapping[str, float]
    """Time by term."""
    measured_s: float | None = None
    """Shortest run on this machine; none when not measured."""
    unmeasured: str = ""
    """Reason for a requested run without a time, its outcome first; else empty."""
    high_s: float | None = None
    """Bound for the values (indices, masks, routers) that cost most; none where values do not matter."""
    prediction: CallPrediction | None = None
    """Achievable time; none where no kernel model applies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A part of the step on one target: an operator, a phase or a module."""

    name: str
    """Operator, phase or module pattern."""
    call_count: int
    """Calls in it."""
    time_s: float
    """Sum of its calls' bounds."""
    share_ratio: float
    """Its time over the sum over all calls."""
    limiter_s: Mapping[str, float]
    """Its time by the term that limits each call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opportunity:
    """Something worth trying, with what it is expected to gain."""

    kind: str
    """Name of the rule: `graph`, `fusion`, `kv_cache`, `weights`, `precision`, `batch`, `layout`, `constants`, …."""
    title: str
    """Action, in one sentence."""
    where: str
    """Modules or operators concerned."""
    gain_s: float
    """Time that it takes off: `before_s` less `after_s` where these are stated."""
    evidence: str
    """The figures behind it, in one sentence."""
    before_s: float | None = None
    """Expected time of the step as it is, for as many items as `after_s` is for; none where a measurement stands."""
    after_s: float | None = None
    """Expected time with it; never above `before_s`."""
    action: str = ""
    """Command or line of code that tries it."""
    item_ratio: float = 1.0
    """Items of the changed step over those of the step as it is; above 1 for a larger batch, whose step is longer."""

    @property
    def step_s(self) -> float:
        """Return the expected time of the changed step, which each of its users waits for."""
        return (self.after_s or 0.0) * self.item_ratio


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """Whether the step fits into the memory of a target."""

    fits: bool | None
    """None when the capacity is not documented."""
    capacity_bytes: int | None
    """Memory of the target."""
    largest_batch_count: int | None
    """Largest batch whose step fits, activations taken as proportional; none when unknown, 0 when not even one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """Least device memory of the step, storage by storage, as captured."""

    weight_bytes: int
    """Parameters and buffers."""
    gradient_bytes: int
    """Gradients of parameters."""
    state_bytes: int
    """Optimizer state."""
    kv_cache_bytes: int
    """Keys and values kept from earlier tokens."""
    input_bytes: int
    """Inputs of the step."""
    activation_peak_bytes: int
    """Most that intermediate results hold at one time."""
    peak_bytes: int
    """Most that everything holds at one time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAnalysis:
    """The workload on one target."""

    target: str
    """Target name."""
    title: str
    """Target for people."""
    measured_roofs: bool
    """True when the roofs were measured on this machine."""
    matrix_unit: str
    """Fastest permitted unit for the workload's main format."""
    matrix_flop_per_s: float
    """Its rate at the highest permitted clock."""
    dram_bytes_per_s: float
    """Memory bandwidth."""
    bound_s: float
    """Least time of the whole step in any number of kernels, fused or not (proved)."""
    limiter: str
    """Term that sets it."""
    terms_s: Mapping[str, float]
    """Terms of the whole step."""
    chained_s: float
    """Least time with one kernel per operator, caches warm from the kernel before (proved for that class)."""
    unfused_s: float
    """Sum over operators of each one's own bound, inputs cold (model: a warm cache can beat it)."""
    launch_floor_s: float | None
    """Launches times the least time of a kernel; never part of the bounds."""
    times: tuple[CaseTime, ...]
    """One entry per row of the analysis."""
    by_phase: tuple[Share, ...]
    """Parts by phase of the step."""
    by_operator: tuple[Share, ...]
    """Parts by operator, largest first."""
    by_module: tuple[Share, ...]
    """Parts by module pattern, largest first."""
    opportunities: tuple[Opportunity, ...]
    """Largest gain first; gains overlap and must not be added. Of the execution mode of the analysis."""
    fit: Fit
    """Whether the step fits."""
    assumptions: tuple[str, ...]
    """Identifiers of what the proved terms rest on."""
    unverified: tuple[str, ...] = ()
    """Entries of the device file that were derived or read second-hand."""
    proof: Proof | None = None
    """The bound of the whole step with every figure that it follows from."""
    below_bound: tuple[BelowBound, ...] = ()
    """Cases measured below their bound, each with its evidence; none is ever clamped."""
    as_written_s: float | None = None
    """Bound of the step as written, where rewriting it algebraically lowers the bound; none elsewhere."""
    rewrites: tuple[Rewritten, ...] = ()
    """Rewrites, largest gain first."""
    prediction: StepPrediction | None = None
    """Achievable time, kernel after kernel; none where no call can be predicted."""
    executions: tuple[ExecutionTime, ...] = ()
    """Expected time in each execution mode; none for a list of cases, without a prediction, and on a CPU."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis:
    """A workload on one or more targets."""

    name: str
    """Workload."""
    step: str
    """`forward`, `decode`, `train` or `sweep`."""
    batch_count: int | None
    """Batch size of the step; none when the source does not say, as for problem files."""
    dtype: str
    """Format of most of the matrix work."""
    origin: Mapping[str, str]
    """Origin of the workload and of its dimensions."""
    capture_assumptions: tuple[str, ...]
    """Assumptions of the capture, in sentences."""
    policy: Policy
    """Freedoms that the bounds allow a program."""
    rows: tuple[CaseRow, ...]
    """Distinct cases, largest work first."""
    call_count: int
    """Calls of the step that launch a kernel."""
    covered_count: int
    """Calls that a rule covers."""
    uncovered: Mapping[str, int]
    """Calls without a rule, by name."""
    skipped_count: int
    """Views and metadata, which launch no kernel."""
    matrix_flop: int
    """FLOP of the step that matrix units can do; what is dead or only repeated is left out."""
    total_flop: int
    """All FLOP of the step, without what is dead or only repeated."""
    fused_bytes: int
    """Bytes that any program of the step must read or write, before the cache credit."""
    unfused_bytes: int
    """Sum over operators of bytes read and written."""
    parameter_count: int | None
    """Parameters of the model, tied ones once; none when the source does not say."""
    memory: MemoryUse | None
    """Memory use; none for a list of unrelated cases."""
    targets: tuple[TargetAnalysis, ...]
    """One entry per target."""
    created: str = ""
    """Versions of nearpeak and of the packages that captured it."""
    execution: str = ""
    """Execution mode that headline and opportunities are of, see core.execution_time.MODES; empty where modes make no
    difference."""

    @property
    def complete(self) -> bool:
        """True when a rule covers every call; if not, every total is a lower estimate (≥)."""
        return self.covered_count == self.call_count

    def _repr_html_(self) -> str | None:
        """Return what a notebook shows."""
        return html_of(self)
