"""Expected time of a step in each execution mode: eager, as one graph, and compiled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from nearpeak.core.answers.execution_time import COMPILED, EAGER, GRAPH, HOST, TRAFFIC, ExecutionTime
from nearpeak.core.answers.step_prediction import CallPrediction, StepPrediction
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.core.work.workload import Workload
from nearpeak.ops import work_of
from nearpeak.prediction.fused_calls import FusedCalls, fused_calls
from nearpeak.prediction.host_costs import GRAPH_LAUNCH, HostCost, eager_cost

LAUNCH = "launch"
Calls = Mapping[Case, tuple[float, CallPrediction]]
"""Bound and prediction of a call of each case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTime:
    """Time of a step's kernels one after the other."""

    time_s: float
    """Expected time."""
    low_s: float
    """Low end of its 90 % interval."""
    high_s: float
    """High end of its 90 % interval."""
    kernel_count: int
    """Kernels."""
    gap_s: Mapping[str, float]
    """Time beyond the bound of the step by cause."""


def usual_mode(workload: Workload) -> str:
    """Return the mode in which a step runs where nobody asks for another: eager, unless its source is compiled.

    >>> usual_mode(Workload(name="m", step="forward", calls=(), origin={"kind": "onnx"}))
    'graph'
    """
    if workload.groups:
        return COMPILED
    is_built = workload.origin.get("kind") in ("onnx", "jax") or "engine" in workload.origin
    return GRAPH if is_built else EAGER


def executions_of(
    workload: Workload, rows: Calls, step: StepPrediction | None, bound_s: float, target: Target
) -> tuple[ExecutionTime, ...]:
    """Return the expected time of the predicted calls in each mode, never below the bound of the step.

    None for lists of unrelated cases, and on processors without a host of their own.

    Args:
        rows: bound and prediction of a call by case.
        step: their sum.
        bound_s: bound of the step.
    """
    if step is None or workload.step == "sweep" or target.kind != "gpu":
        return ()
    calls = [call for call in workload.calls if call.case in rows]
    launches = {case: work_of(case).launch_count for case in {call.case for call in calls} if case is not None}
    kernels = sum(max(1, launches[call.case]) * call.call_count for call in calls if call.case is not None)
    call_count = sum(call.call_count for call in calls)
    gap = {**step.gap_s, TRAFFIC: step.bound_s - bound_s}
    plain = DeviceTime(
        time_s=step.time_s, low_s=step.low_s, high_s=step.high_s, kernel_count=kernels, gap_s=gap
    )  # fmt: skip
    fused = _fused(plain, workload, rows, bound_s)
    eager = eager_cost(call_count, kernels, sum(workload.skipped.values()), target)
    ways = ((EAGER, plain, eager), (GRAPH, plain, GRAPH_LAUNCH), (COMPILED, fused, GRAPH_LAUNCH))
    return tuple(_submitted(mode, device, host, step) for mode, device, host in ways)


def _submitted(mode: str, device: DeviceTime, host: HostCost, step: StepPrediction) -> ExecutionTime:
    """Return the time of kernels that a host submits ahead of the device: that of the slower of the two."""
    time_s = max(device.time_s, host.usual_s)
    waiting = {HOST: time_s - device.time_s} if time_s > device.time_s else {}
    return ExecutionTime(
        mode=mode, time_s=time_s, low_s=max(device.low_s, host.low_s), high_s=max(device.high_s, host.high_s),
        host_s=host.usual_s, kernel_count=device.kernel_count, gap_s={**waiting, **device.gap_s},
        energy_j=_energy_j(step, device.time_s, time_s - device.time_s),
    )  # fmt: skip


def _energy_j(step: StepPrediction, device_s: float, waiting_s: float) -> float | None:
    """Return the energy of kernels at the step's mean power, and of waiting at its idle power."""
    if step.energy is None:
        return None
    idle_w = step.energy.parts_j.get("idle", 0.0) / step.time_s
    return step.energy.energy_j * device_s / step.time_s + idle_w * waiting_s


def _fused(plain: DeviceTime, workload: Workload, rows: Calls, bound_s: float) -> DeviceTime:
    """Return the kernels with neighbours fused: one start for all, and the share of their time that traffic leaves."""
    saved: dict[str, float] = {}
    ends_s, removed = [0.0, 0.0], 0
    for group in fused_calls(workload):
        members = [rows[case] for place in group.positions if (case := workload.calls[place].case) in rows and case]
        if len(members) < 2:
            continue
        removed += len(members) - 1
        for cause, time_s in saved_s(group, members).items():
            saved[cause] = saved.get(cause, 0.0) + time_s
        share = sum(saved_s(group, members).values()) / sum(call.time_s for _, call in members)
        for end, times in enumerate(([call.low_s for _, call in members], [call.high_s for _, call in members])):
            ends_s[end] += share * sum(times)
    time_s = max(plain.time_s - sum(saved.values()), min(bound_s, plain.time_s))
    gap = {cause: gap_s - saved.get(cause, 0.0) for cause, gap_s in plain.gap_s.items()}
    gap[TRAFFIC] += time_s - (plain.time_s - sum(saved.values()))
    return DeviceTime(
        time_s=time_s, low_s=min(time_s, max(plain.low_s - ends_s[0], bound_s)),
        high_s=max(time_s, plain.high_s - ends_s[1]), kernel_count=plain.kernel_count - removed, gap_s=gap,
    )  # fmt: skip


def saved_s(group: FusedCalls, members: Sequence[tuple[float, CallPrediction]]) -> Mapping[str, float]:
    """Return by cause what one kernel saves against its calls: starts but the longest, and traffic.

    Args:
        members: bound and prediction of each call of the group.
    """
    starts = [min(max(call.gap_s.get(LAUNCH, 0.0), 0.0), call.time_s - bound_s) for bound_s, call in members]
    less = 1.0 - group.traffic_ratio
    saved = {LAUNCH: sum(starts) - max(starts), TRAFFIC: less * sum(bound_s for bound_s, _ in members)}
    for (_, call), start_s in zip(members, starts, strict=True):
        saved[LAUNCH] -= less * start_s
        for cause, time_s in call.gap_s.items():
            saved[cause] = saved.get(cause, 0.0) + less * time_s
    return saved
