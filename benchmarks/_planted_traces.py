"""Traces of a small host and a small device with one planted cause or none: all causes, and what tests ask of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import _planted_counters as counters
from benchmarks import _planted_cpu as cpu
from benchmarks import _planted_files as files
from benchmarks import _planted_queues as queues
from benchmarks._planted_device_causes import (
    bad_alignment,
    below_prediction,
    cast_storm,
    exposed_comm,
    layout_transpose,
    overlap_missed,
    small_kernels,
    tensor_core_unused,
    tf32_baseline,
    throttle,
)
from benchmarks._planted_host_causes import (
    allocation,
    data_loading,
    exposed_copy,
    graph_breaks,
    healthy,
    host_sync,
    launch_bound,
    pageable_copy,
    tensor_creation,
)
from benchmarks._planted_launch_causes import (
    dependency,
    optimizer_unfused,
    profiler_inflated,
    slow_graph_launch,
    tail_wave,
    tiny_kernels,
)

__all__ = [
    "CAUSES",
    "HEALTHY",
    "Planted",
    "cast_storm",
    "cured",
    "data_loading",
    "healthy",
    "host_sync",
    "step_ns",
    "target",
    "tensor_creation",
    "write",
]


Planted = queues.Program | counters.Kernels | cpu.CpuSteps
"""A program of calls, kernels with counters, or steps of a CPU alone."""


def _module(program: Planted) -> Any:
    return {counters.Kernels: counters, cpu.CpuSteps: cpu}.get(type(program), queues)


def write(program: Planted, path: Path, without: tuple[str, ...] = ()) -> Path:
    """Write what a profiler would have recorded, with some kinds of evidence left out."""
    module = files if isinstance(program, queues.Program) else _module(program)
    written: Path = module.write(program, path, without)
    return written


def step_ns(program: Planted) -> float:
    """Return how long a step takes."""
    length: float = _module(program).step_ns(program)
    return length


def cured(program: Planted) -> Planted:
    """Return it without its cause."""
    found: Planted = _module(program).cured(program)
    return found


def target(program: Planted) -> str:
    """Return the device that the program ran on; empty where it is a CPU that nobody described."""
    return "" if isinstance(program, cpu.CpuSteps) else "h100_sxm"


HEALTHY = (healthy, counters.healthy, cpu.healthy)
"""Programs without a cause."""
CAUSES: dict[str, tuple[Callable[[int], Planted], str, tuple[str, ...]]] = {
    "launch_bound": (launch_bound, "idle.launch_bound", ("calls",)),
    "host_sync": (host_sync, "idle.sync_bound", ("calls",)),
    "data_loading": (data_loading, "idle.input_bound", ("ranges",)),
    "pageable_copy": (pageable_copy, "copy.pageable_h2d", ("memory",)),
    "exposed_copy": (exposed_copy, "copy.exposed", ("bytes",)),
    "tensor_core_unused": (tensor_core_unused, "gemm.no_tensor_core", ("names",)),
    "tf32_baseline": (tf32_baseline, "amp.tf32_baseline", ("shapes",)),
    "bad_alignment": (bad_alignment, "gemm.bad_alignment", ("shapes",)),
    "layout_transpose": (layout_transpose, "layout.transpose", ("names",)),
    "small_kernels": (small_kernels, "elementwise.unfused", ("shapes",)),
    "exposed_comm": (exposed_comm, "comm.exposed", ("correlations",)),
    "overlap_missed": (overlap_missed, "overlap.missed", ("grids",)),
    "throttle": (throttle, "power.throttle", ("clocks",)),
    "below_prediction": (below_prediction, "kernel.below_roofline", ("shapes",)),
    "cast_storm": (cast_storm, "amp.casts", ("names",)),
    "tensor_creation": (tensor_creation, "host.constant_rebuild", ("calls",)),
    "graph_breaks": (graph_breaks, "graph.breaks", ("ranges",)),
    "allocation": (allocation, "idle.alloc", ("calls",)),
    "dependency": (dependency, "idle.dependency", ("calls",)),
    "slow_graph_launch": (slow_graph_launch, "graph.slow_launch", ("calls",)),
    "tail_wave": (tail_wave, "gemm.tail", ("grids",)),
    "tiny_kernels": (tiny_kernels, "kernel.tiny", ("names",)),
    "optimizer_unfused": (optimizer_unfused, "optimizer.unfused", ("phase",)),
    "uncoalesced": (counters.uncoalesced, "ncu.UncoalescedGlobalAccess", ("sectors",)),
    "bank_conflicts": (counters.bank_conflicts, "ncu.SharedMemoryConflicts", ("banks",)),
    "small_grid": (counters.small_grid, "ncu.LaunchConfiguration", ("grids",)),
    "framework_bound": (cpu.framework_bound, "idle.framework", ("kernels",)),
    "profiler_inflated": (profiler_inflated, "profiler.inflated", ("unprofiled",)),
}
"""Each cause: its program, the finding expected first, and the evidence whose absence makes it abstain."""
