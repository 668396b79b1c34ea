"""Traces whose operators ran on the CPU itself: detection, and the evidence that such traces lack."""

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from nearpeak.core.traces.executed_run import NOTHING, Executed
from nearpeak.core.traces.trace import EventKind
from nearpeak.traces import Trace
from nearpeak.traces.executed.case_join import can_be_joined
from nearpeak.traces.timeline.host_operators import with_host_work

_DEVICE_CALL = re.compile(r"^(cuda|cu|hip|ze|cl)[A-Z]\w+")
_DEVICE_OPERATOR = re.compile(r"cudnn|cuda|miopen|hip_|rocm|\bmps\b|xpu|nccl")
_CPU_PROVIDERS = ("CPUExecutionProvider", "DnnlExecutionProvider", "XnnpackExecutionProvider", "ACLExecutionProvider",
                  "ArmNNExecutionProvider")  # fmt: skip
"""Execution providers of onnxruntime that run on the CPU, as its documentation lists them."""
_COMPILED = re.compile(r"Torch-Compiled Region|CompiledFxGraph|CompiledFunction")
_RECORDED_KERNEL = re.compile(r"cpp_fused|kernel_cpp")
NOTE = "no other device ran anything: the CPU is treated as the device, busy while an operator computes"
MISSING = {
    "host": "the CPU runs its operators itself: there is no queue between host and device",
    "links": "operators on a CPU are not enqueued",
    "grid": "operators on a CPU have no grids",
}  # fmt: skip
"""What such a trace cannot say, by kind of evidence."""
UNRECORDED = (
    "compiled code ran, and the profiler does not record its kernels on a CPU: their time counts as idle"
    " (torch._inductor.config.cpp.enable_kernel_profile = True records them)"
)


def with_cpu_work(trace: Trace, *, certain: bool = False) -> Trace | None:
    """Return the trace with its operators as work of the CPU; none where they may have run somewhere else.

    No field of a trace states that a model ran on the CPU. Evidence against it: devices that the file describes, calls
    of a device's runtime, operators made for one, and a node that onnxruntime gave to a provider for one.

    Args:
        certain: somebody says that the CPU did the work; devices that merely stood by speak no more against it.
    """
    other_device = _names(trace, EventKind.HOST_API, _DEVICE_CALL) or _names(trace, EventKind.HOST_OP, _DEVICE_OPERATOR)
    if not _on_cpu(trace) or (not certain and (trace.header.devices or other_device)):
        return None
    extended = with_host_work(trace, can_be_joined)
    return extended if len(extended) > len(trace) else None


def with_cpu_limits(executed: Executed, trace: Trace) -> Executed:
    """Return the steps of a trace whose work ran on the CPU, with the evidence that such a trace lacks.

    Evidence names events of the file: each piece of work is named by the operator that it stands for.
    """
    kernels = trace.rows(EventKind.KERNEL)

    def row_before(row: int) -> int:
        """Return the row that an event had before kernels were added."""
        return row - int(np.searchsorted(kernels, row))

    items = tuple(
        item if item.event == NOTHING else item._replace(event=row_before(int(trace.launch[item.event])))
        for item in executed.items
    )
    other_missing = {name: text for name, text in executed.missing.items() if name not in MISSING}
    compiled = any(_names(trace, kind, _COMPILED) for kind in (EventKind.HOST_OP, EventKind.HOST_RANGE))
    hidden = {"kernels": UNRECORDED} if compiled and not _names(trace, EventKind.HOST_OP, _RECORDED_KERNEL) else {}
    unknown = [loss.line() for loss in trace.header.losses if loss.what == "unknown"]
    if unknown:  # of work of another device nothing is known, and the CPU may have waited for it
        hidden["kernels"] = f"what no rule knows may be work of another device: {'; '.join(unknown)}"
    return replace(
        executed, items=items, missing={**MISSING, **hidden, **other_missing}, cpu_alone=True, path_ns={},
        notes=(NOTE, *hidden.values(), *_limits(executed), *executed.notes),
    )  # fmt: skip


def _limits(executed: Executed) -> Iterator[str]:
    """Yield what bounds need, and where they are passed."""
    if not executed.target:
        yield "bounds need a target: --target cpu measures this machine, if the trace was recorded on it"
    below_bound = [row for row in executed.operators if row.bound_s is not None and row.measured_s < row.bound_s]
    if below_bound:
        yield (
            f"{len(below_bound)} of {len(executed.operators)} operators were faster than their bound, which reads"
            " operands from memory: the operands were cached, or another CPU ran them"
        )


def _names(trace: Trace, kind: EventKind, pattern: re.Pattern[str]) -> bool:
    return any(pattern.search(trace.texts[int(number)]) for number in np.unique(trace.name[trace.rows(kind)]))


def _on_cpu(trace: Trace) -> bool:
    """Say whether every node ran on the CPU, where the file is of onnxruntime; other files know no providers."""
    column = trace.sparse.get("provider")
    if column is None or not column.text:
        return trace.header.format != "onnxruntime_profile"
    return {trace.texts[int(number)] for number in np.unique(column.values)} <= {*_CPU_PROVIDERS}
