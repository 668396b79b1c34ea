"""Simulated time of cases and of steps, call by call, and calls that are not modelled."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from nearpeak.core.answers.simulation import Run
from nearpeak.core.work.case import Case
from nearpeak.core.work.target import Target
from nearpeak.core.work.workload import Workload
from nearpeak.errors import NotModelledError
from nearpeak.simulation.engine.event_loop import simulate
from nearpeak.simulation.lowering import kernels_of
from nearpeak.simulation.machine import Machine
from nearpeak.simulation.machine_from_target import machine_of
from nearpeak.simulation.machine_units import PS_PER_S
from nearpeak.simulation.power_governor import Power
from nearpeak.simulation.run_energy import power_of, run_j


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRun:
    """A step whose kernels follow one another in one stream."""

    time_s: float
    """Time of all modelled calls."""
    call_s: tuple[float | None, ...]
    """Time of each call of the workload; none where it is not modelled or does no work."""
    kernel_count: int
    """Kernels that ran."""
    cta_count: int
    """Thread blocks that ran."""
    energy_j: float | None = None
    """Energy of all modelled calls; none where no document states what the device may draw."""
    unmodelled_count: Mapping[str, int] = field(default_factory=dict)
    """Calls without a time, by reason."""


def simulate_case(case: Case, target: Target, *, records: bool = False, governed: bool = False) -> Run:
    """Return the run of one case, alone on the device, with its energy where the device's power is documented.

    Args:
        governed: whether the clock follows from power and heat, instead of from what was measured of kernels alone.

    >>> from nearpeak.ops import case
    >>> from nearpeak.targets import target_of
    >>> run = simulate_case(case("gemm", m=4096, n=4096, k=4096, dtype="bf16"), target_of("h100_sxm"))
    >>> run.cta_count
    132
    """
    kernels = [replace(kernel, name=f"{place} {kernel.name}") for place, kernel in enumerate(kernels_of(case, target))]
    power = power_of(target, dict(case.dtypes).get("dtype", "bf16"), governs=governed)
    run = simulate(machine_of(target, power=power), kernels, records=records)
    return run if power is None or governed else replace(run, energy_j=run_j(kernels, run, power))


def simulate_step(workload: Workload, target: Target) -> StepRun:
    """Return the time of a step whose kernels wait for one another, as one stream or one chain of graph nodes does.

    In such a chain every kernel meets an empty machine, so that equal calls take equal times and are run once.
    """
    machine, known = machine_of(target), dict[Case, Alone | str]()
    times: list[float | None] = []
    kernels = blocks = 0
    energy_j = 0.0
    unmodelled_count: dict[str, int] = {}
    for call in workload.calls:
        result = "operator is not in the catalogue" if call.case is None else alone(call.case, target, machine, known)
        if isinstance(result, str):
            unmodelled_count[result] = unmodelled_count.get(result, 0) + call.call_count
            times.append(None)
            continue
        times.append(result.time_s * call.call_count)
        kernels, blocks = kernels + result.kernel_count * call.call_count, blocks + result.cta_count * call.call_count
        energy_j += result.energy_j * call.call_count
    return StepRun(
        time_s=sum(time for time in times if time is not None), call_s=tuple(times), kernel_count=kernels,
        cta_count=blocks, unmodelled_count=unmodelled_count,
        energy_j=energy_j if power_of(target) is not None else None,
    )  # fmt: skip


class Alone(NamedTuple):
    """A case on an empty device."""

    time_s: float
    kernel_count: int
    cta_count: int
    energy_j: float


def alone(
    case: Case, target: Target, machine: Machine, known: dict[Case, Alone | str], power: Power | None = None
) -> Alone | str:
    """Return time and energy of a case on an empty device, or the reason for which it is not modelled.

    Args:
        known: what was found before.
        power: what the device draws; none for what the target states.
    """
    if case not in known:
        try:
            kernels = kernels_of(case, target)
        except NotModelledError as error:
            known[case] = str(error)
        else:
            power = power or power_of(target, dict(case.dtypes).get("dtype", "bf16"))
            runs = [simulate(machine, [kernel]) for kernel in kernels]
            known[case] = Alone(
                sum(run.end_ps for run in runs) / PS_PER_S, len(kernels), sum(run.cta_count for run in runs),
                0.0 if power is None else sum(run_j([k], run, power) for k, run in zip(kernels, runs, strict=True)),
            )  # fmt: skip
    return known[case]
