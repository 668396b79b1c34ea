"""Split of a captured step into pipeline stages by module, and the tensors that cross from stage to stage."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from nearpeak.core.work.workload import Call, Workload
from nearpeak.errors import SpecError
from nearpeak.systems.training.programs.captured_step import CapturedStep


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStages:
    """Stage of each call of a captured step."""

    forward: tuple[int, ...]
    """Stage of each call of the forward pass."""
    backward: tuple[int, ...]
    """Stage of each call of the backward pass."""
    units: Mapping[str, int]
    """Stage of each unit of parameters but the root."""
    activation_bytes: tuple[int, ...]
    """Bytes that each stage sends to the next one in the forward pass."""
    gradient_bytes: tuple[int, ...]
    """Bytes that each stage sends to the one before it in the backward pass; 0 for the first."""
    tied: Mapping[str, frozenset[int]]
    """Stages that read each parameter of several stages, whose gradients they add up."""


def step_stages(step: CapturedStep, workload: Workload, starts: Sequence[str]) -> StepStages:
    """Return the stages of a step whose later stages begin at given modules.

    A call of the forward pass belongs to the stage that has begun last; one of the backward pass to that of its
    module, or of what runs after it where its module names none. What one stage writes and a later one reads crosses
    every border between, but for parts of the gradient of a parameter that several stages read: each keeps a copy.

    Args:
        starts: module paths at which the second and further stages begin, in the order of the forward pass.

    Raises:
        SpecError: a module is none of the step's, or they are not in the order of the forward pass.
    """
    firsts = [_first_call(step, start) for start in starts]
    for (first, start), (second, later) in pairwise(zip(firsts, starts, strict=True)):
        if second <= first:
            raise SpecError(f"{step.name}: module {later!r} does not run after {start!r}; stages need that order")
    forward = tuple(sum(place >= first for first in firsts) for place in range(len(step.forward)))
    of_unit: dict[str, int] = {}
    for call, stage in zip(step.forward, forward, strict=True):
        if unit := step.unit_of(call.module):
            of_unit.setdefault(unit, stage)
    of_module: dict[str, int] = {}
    for call, stage in zip(step.forward, forward, strict=True):
        of_module.setdefault(call.module, stage)
    backward = _backward_stages(step, of_module, of_unit, len(starts))
    return StepStages(
        forward=forward, backward=backward, units=of_unit,
        activation_bytes=_crossing(workload, step, step.forward, forward, len(starts) + 1, upward=True),
        gradient_bytes=_crossing(workload, step, step.backward, backward, len(starts) + 1, upward=False),
        tied=_tied(workload, step, forward),
    )  # fmt: skip


def _first_call(step: CapturedStep, start: str) -> int:
    for place, call in enumerate(step.forward):
        if call.module == start or call.module.startswith(f"{start}."):
            return place
    known = [unit.name for unit in step.units[1:]]
    hint = f"; {known[len(known) // 2]!r} is one" if known else ""
    raise SpecError(f"{step.name}: no call of module {start!r}{hint}")


def _backward_stages(
    step: CapturedStep, of_module: Mapping[str, int], of_unit: Mapping[str, int], last: int
) -> tuple[int, ...]:
    stages: list[int] = []
    stage = last
    for call in step.backward:
        home = of_module.get(call.module, of_unit.get(step.unit_of(call.module), stage))
        stage = min(stage, home)
        stages.append(stage)
    return tuple(stages)


def _tied(workload: Workload, step: CapturedStep, stages: Sequence[int]) -> dict[str, frozenset[int]]:
    """Return the parameters that calls of several stages read."""
    trained = {tensor.name for _, tensor in step.gradients.values()}
    readers: dict[str, set[int]] = {}
    for call, stage in zip(step.forward, stages, strict=True):
        for use in call.reads:
            if workload.buffers[use.buffer].name in trained and workload.buffers[use.buffer].kind == "weight":
                readers.setdefault(workload.buffers[use.buffer].name, set()).add(stage)
    return {name: frozenset(reader_stages) for name, reader_stages in readers.items() if len(reader_stages) > 1}


def _crossing(
    workload: Workload, step: CapturedStep, calls: Sequence[Call], stages: Sequence[int], count: int, *, upward: bool
) -> tuple[int, ...]:
    """Return the bytes that cross each border: the last reader of a tensor lies beyond it, its writer before."""
    written: dict[int, int] = {}
    reach: dict[int, int] = {}
    further = max if upward else min
    for call, stage in zip(calls, stages, strict=True):
        sums_up = bool(call.writes) and all(use.buffer in step.gradients for use in call.writes)
        sizes_of = {workload.buffers[use.buffer].bytes for use in call.writes}
        for use in call.reads:
            is_part = sums_up and workload.buffers[use.buffer].bytes in sizes_of
            if use.buffer in written and not is_part:
                reach[use.buffer] = further(reach.get(use.buffer, stage), stage)
        for use in call.writes:
            if workload.buffers[use.buffer].kind in ("activation", "output"):
                written.setdefault(use.buffer, stage)
    sizes = [0] * count
    for buffer, end in reach.items():
        for stage in range(written[buffer], end) if upward else range(written[buffer], end, -1):
            sizes[stage] += workload.buffers[buffer].bytes
    return tuple(sizes)
