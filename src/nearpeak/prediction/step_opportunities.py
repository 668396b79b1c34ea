"""Opportunities of a step: expected time before and after each change, and how to try it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nearpeak.bounds.step.step_constants import constant_calls
from nearpeak.core.answers.analysis import Analysis, CaseRow, CaseTime, Opportunity, TargetAnalysis
from nearpeak.core.answers.execution_time import COMPILED, EAGER, GRAPH, ExecutionTime
from nearpeak.core.work.workload import Call, Workload
from nearpeak.prediction.fused_calls import FUSIBLE
from nearpeak.prediction.host_costs import eager_cost
from nearpeak.units import counted, show

SMALLEST_GAIN_RATIO = 0.01
"""Opportunities below this part of the expected time are left out."""
MOST = 8
"""Opportunities kept per target."""
BATCH_RATIO = 8
"""Largest batch, in batches of the step, whose time per item is shown."""
CODE = {
    GRAPH: 'torch.compile(model, backend="cudagraphs")',
    COMPILED: 'torch.compile(model, mode="reduce-overhead")',
}
"""Lines that run a PyTorch model in each mode."""
_REORDERING = ("aten.clone.default", "aten.contiguous.default", "Transpose", "transpose")
"""Names of calls that change nothing but where elements lie."""
_SHOWN = 3
"""Lines of source that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A step on one target in the execution mode that changes are measured against."""

    workload: Workload
    """What was captured."""
    analysis: Analysis
    """Its rows."""
    answer: TargetAnalysis
    """Their times on the target."""
    execution: ExecutionTime
    """The mode."""
    graph: str
    """What the maker of the device calls a graph of kernels."""

    @property
    def rows(self) -> Iterator[tuple[CaseRow, CaseTime]]:
        """Rows with their times."""
        return zip(self.analysis.rows, self.answer.times, strict=True)

    def mode(self, name: str) -> ExecutionTime:
        """Return the step in another mode."""
        return next(execution for execution in self.answer.executions if execution.mode == name)

    def after_s(self, saved_s: float, host_saved_s: float = 0.0) -> float:
        """Return the expected time where device and host do less: that of the slower, and never above what it is."""
        return max(self.execution.device_s - max(saved_s, 0.0), self.execution.host_s - host_saved_s)

    def without_s(self, calls: Sequence[Call]) -> float:
        """Return the expected time without some calls, never below the bound of the step.

        Compiled code has fused what is no library kernel: leaving such calls out gains nothing there.
        """
        times = {
            row.case: time.prediction.time_s for row, time in self.rows
            if time.prediction and not (self.execution.mode == COMPILED and row.family in FUSIBLE)
        }  # fmt: skip
        saved_s = sum(times.get(call.case, 0.0) * call.call_count for call in calls if call.case is not None)
        count = sum(call.call_count for call in calls)
        host_s = eager_cost(count, count, 0).usual_s if self.execution.mode == EAGER else 0.0
        return max(self.after_s(saved_s, host_s), self.answer.bound_s)


def opportunity(
    step: Step, kind: str, title: str, after_s: float, evidence: str, action: str, where: str = "",
    item_ratio: float = 1.0,
) -> list[Opportunity]:  # fmt: skip
    """Return a change as a list of one, or of none where it gains nothing.

    Args:
        after_s: expected time of the step's items with the change.
        item_ratio: items of the changed step over those of the step.
    """
    before_s = step.execution.time_s
    if not after_s < before_s:
        return []
    return [
        Opportunity(
            kind=kind, title=title, where=where, gain_s=before_s - after_s, evidence=evidence, before_s=before_s,
            after_s=after_s, action=action, item_ratio=item_ratio,
        )
    ]  # fmt: skip


def ordered(candidates: Sequence[Opportunity]) -> tuple[Opportunity, ...]:
    """Return the changes that gain enough, largest first; larger batches last, as the step itself gets no shorter."""
    worth = [
        candidate
        for candidate in candidates
        if candidate.before_s and candidate.gain_s >= SMALLEST_GAIN_RATIO * candidate.before_s
    ]
    return tuple(sorted(worth, key=lambda change: (change.kind == "batch", -change.gain_s, change.title))[:MOST])


def submission(step: Step) -> list[Opportunity]:
    """Return what recording one graph gains, and fusing what stands between library kernels."""
    here, graph, compiled = step.execution, step.mode(GRAPH), step.mode(COMPILED)
    options = []
    if here.mode == EAGER:
        waiting = f"the host needs {show(here.host_s, 's')} to submit {counted(here.kernel_count, 'kernel')}"
        options += opportunity(
            step, "graph", f"Submit the step as one {step.graph}", graph.time_s,
            f"{waiting}, the device {show(here.device_s, 's')} to run them", CODE[GRAPH],
        )  # fmt: skip
    if here.mode != COMPILED:
        title = "Fuse the calls between library kernels" + (f", in one {step.graph}" if here.mode == EAGER else "")
        count = f"{counted(compiled.kernel_count, 'kernel')} instead of {here.kernel_count:,}"
        options += opportunity(step, "fusion", title, compiled.time_s, count, CODE[COMPILED])
    return options


def batching(step: Step) -> list[Opportunity]:
    """Return what a larger batch gains: weights are read, kernels started and submitted once for more items.

    All else, arithmetic hidden behind the weights too, is taken to grow with the batch.
    """
    memory, count = step.analysis.memory, step.analysis.batch_count
    largest = step.answer.fit.largest_batch_count
    if memory is None or count is None or not step.answer.dram_bytes_per_s or largest is None:
        return []
    factor = min(BATCH_RATIO, largest // count)
    if factor < 2:
        return []
    limited = [
        (row, time) for row, time in step.rows
        if row.matrix_flop and time.limiter == "dram" and row.family == "product"
    ]  # fmt: skip
    read_s = sum(time.bound_s * row.call_count for row, time in limited)
    weights_s = min(read_s, memory.weight_bytes / step.answer.dram_bytes_per_s)
    products_s = sum(time.terms_s.get("matrix", 0.0) * row.call_count for row, time in limited)
    once_s = weights_s + max(step.execution.gap_s.get("launch", 0.0), 0.0)
    grows_s = max(step.execution.device_s - once_s, 0.0) + products_s
    after_s = max(once_s + factor * grows_s, step.execution.host_s)
    evidence = f"reading the weights takes {show(weights_s, 's')} whatever the batch"
    action = f"the same command with --batch {factor * count}"
    return opportunity(
        step, "batch", f"Run {factor * count:,} at once", after_s / factor, evidence, action, item_ratio=factor
    )


def constants(step: Step) -> list[Opportunity]:
    """Return what making tensors once gains that are the same in every step."""
    calls = [call for call in constant_calls(step.workload) if call.source and call.case is not None]
    if not calls:
        return []
    count = sum(call.call_count for call in calls)
    sources = list(dict.fromkeys(call.source for call in calls))
    more = f" and {len(sources) - _SHOWN} more lines" if len(sources) > _SHOWN else ""
    names = sorted({call.operator.removeprefix("aten.").removesuffix(".default") for call in calls})[:6]
    return opportunity(
        step, "constants", "Make tensors that are the same in every step once and keep them",
        step.without_s(calls),
        f"{counted(count, 'call')} depend on no weight and no input, only on shapes: {', '.join(names)}",
        "self.register_buffer(name, tensor, persistent=False)", ", ".join(sources[:_SHOWN]) + more,
    )  # fmt: skip


def layout(step: Step) -> list[Opportunity]:
    """Return what one layout through a convolutional step gains: calls that only reorder elements fall away."""
    calls = [call for call in step.workload.calls if call.operator in _REORDERING and call.case is not None]
    if not calls or not any(row.family == "convolution" for row in step.analysis.rows):
        return []
    return opportunity(
        step, "layout", "Keep one memory layout, so that nothing is reordered", step.without_s(calls),
        f"{counted(sum(call.call_count for call in calls), 'call')} only move elements",
        "model.to(memory_format=torch.channels_last)",
    )  # fmt: skip
