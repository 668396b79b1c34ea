"""Part of a captured step that one rank of a stage runs: its calls and the parameters that they need."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from nearpeak.base.identity_key import Same
from nearpeak.core.systems.rank_program import RankCall
from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.work.workload import Call, Workload
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.systems.training.programs.block_checkpoints import checkpointed_step
from nearpeak.systems.training.programs.captured_step import CapturedStep, captured_step, rank_call
from nearpeak.systems.training.programs.gradient_calls import Unit
from nearpeak.systems.training.programs.spatial_calls import TiledStep
from nearpeak.systems.training.programs.step_branches import StepBranches
from nearpeak.systems.training.programs.step_stages import StepStages, step_stages

FEW_BLOCKS = 12
"""Numbered blocks below which stages may begin inside them."""
_DEEPEST = 3
"""Numbers in the path of a module at which stages may begin, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCalls:
    """What one rank of a stage holds of a captured step."""

    step: CapturedStep
    """Whole step of one device."""
    places: StepStages
    """Stage of each of its calls."""
    stage: int
    """This stage of the model."""
    forward: tuple[Call, ...]
    """Calls of the forward pass."""
    backward: tuple[Call, ...]
    """Calls of the backward pass."""
    units: tuple[Unit, ...]
    """Its root unit, then its blocks."""
    tiled: TiledStep | None = None
    """The step on one tile, where images are split over ranks."""

    def ranked(self, call: Call, *, is_backward: bool = False) -> tuple[RankCall, ...]:
        """Return what the rank runs for a call."""
        return (rank_call(call),) if self.tiled is None else self.tiled.calls(call, is_backward=is_backward)

    def share(self, buffer: int) -> float:
        """Return the part of a tensor that the rank holds."""
        return 1.0 if self.tiled is None else self.tiled.share(buffer)


def stage_calls(
    workload: Workload, plan: TrainingPlan, stage: int = 0, *, starts: Sequence[str] = (), blocks: Sequence[str] = (),
    branches: StepBranches | None = None,
) -> StageCalls:  # fmt: skip
    """Return what one rank of a stage runs of a captured step.

    Args:
        stage: stage of the model, which chunks of a rank count as: chunk c of rank r is c · pp + r.
        starts: module paths at which the second and further stages begin; those of the plan unless given.
        blocks: module paths of units; blocks with a number unless given.
        branches: where the branches of the graph run; the rank is then the one that runs most of them.

    Raises:
        SpecError: a stage, a start or a tile that the step does not have.
        NotModelledError: a call that no operator matches, or that cannot be split over tiles.
    """
    step, count = read_step(workload, blocks), plan.pp * plan.chunk_count
    places = _places(Same(workload), Same(step), tuple(starts or block_starts(step, plan)))
    if len(starts) not in (0, count - 1):
        raise SpecError(f"{step.name}: {count} stages begin at {count - 1} modules; got {len(starts)}")
    if not 0 <= stage < count:
        raise SpecError(f"stage {stage}: the plan has stages 0 to {count - 1}")
    parts = (plan.tile_row_count, plan.tile_column_count)
    tiled = _tiled(Same(workload), Same(step), parts, plan.micro_batch) if parts != (1, 1) else None
    forward, backward = (
        _chosen(calls, stages, stage)
        for calls, stages in ((step.forward, places.forward), (step.backward, places.backward))
    )
    if branches is not None:
        forward, backward = branches.own(forward), branches.own(backward)
    return StageCalls(
        step=step, places=places, stage=stage, forward=forward, backward=backward, tiled=tiled,
        units=_held(_units(step, places, stage, count), backward, step) if branches else
        _units(step, places, stage, count),
    )  # fmt: skip


def stage_blocks(workload: Workload) -> tuple[str, ...]:
    """Return the modules between which stages may begin: numbered blocks, and blocks inside them where those are few.

    They are the paths up to the first number of the parameters' names (`encoder.layer.3`), or, below FEW_BLOCKS of
    those, up to the second or a later one (`stages.0.layers.2`).
    """
    names = [tensor.name for unit in read_step(workload).units for tensor in unit.tensors]
    blocks: list[str] = []
    for depth in range(1, _DEEPEST + 1):
        matches = (re.match(rf"(?:(?:[^.]+\.)*?\d+(?=\.)\.?){{1,{depth}}}", f"{name}.") for name in names)
        blocks = list(dict.fromkeys(match[0].rstrip(".") for match in matches if match))
        if len(blocks) >= FEW_BLOCKS:
            break
    order = read_step(workload, blocks)
    return tuple(unit.name for unit in order.units[1:])


def planned_step(workload: Workload, plan: TrainingPlan, blocks: Sequence[str] = ()) -> Workload:
    """Return a step as a plan runs it: as captured, or with its blocks checkpointed; the same object for equal ones.

    Args:
        blocks: module paths of what is checkpointed as a whole; those between which stages may begin unless given.

    Raises:
        NotModelledError: selective recomputation, which names no calls of a captured step.
    """
    if plan.recompute == "none":
        return workload
    if plan.recompute == "selective":
        raise NotModelledError(
            f"{workload.name}: a captured step does not state which calls selective recomputation repeats; none or "
            "full would work"
        )
    return _checkpointed(Same(workload), tuple(blocks or stage_blocks(workload)))


@lru_cache(maxsize=8)
def _checkpointed(workload: "Same[Workload]", blocks: tuple[str, ...]) -> Workload:
    return checkpointed_step(workload.held, blocks)


def read_step(workload: Workload, blocks: Sequence[str] = ()) -> CapturedStep:
    """Return a captured step by pass and unit, the same object for the same workload: plans of it share what is read.

    Raises:
        SpecError: no training step, or a block that it does not have.
        NotModelledError: a call that no operator matches.
    """
    return _read(Same(workload), tuple(blocks))


@lru_cache(maxsize=8)
def _read(workload: "Same[Workload]", blocks: tuple[str, ...]) -> CapturedStep:
    return captured_step(workload.held, blocks)


@lru_cache(maxsize=64)
def _places(workload: "Same[Workload]", step: "Same[CapturedStep]", starts: tuple[str, ...]) -> StepStages:
    return step_stages(step.held, workload.held, starts)


@lru_cache(maxsize=32)
def _tiled(
    workload: "Same[Workload]", step: "Same[CapturedStep]", parts: tuple[int, int], image_count: int
) -> TiledStep:
    return TiledStep(workload.held, step.held, parts, image_count)


def block_starts(step: CapturedStep, plan: TrainingPlan) -> list[str]:
    """Return the blocks at which the second and further stages begin: those that the plan states, or equal numbers.

    Raises:
        SpecError: fewer blocks than stages, or stages that do not add up to the blocks.
    """
    blocks, count = [unit.name for unit in step.units[1:]], plan.pp * plan.chunk_count
    if count == 1:
        return []
    if len(blocks) < count:
        chunks = f" of {plan.chunk_count} chunks each" if plan.chunk_count > 1 else ""
        raise SpecError(
            f"{step.name}: pp={plan.pp} stages{chunks}, but only {len(blocks)} numbered blocks; "
            f"pp={max(len(blocks) // plan.chunk_count, 1)} would work, or state where stages begin (starts=…)"
        )
    share, rest = divmod(len(blocks), count)
    counts = plan.stage_layer_count or tuple(share + (stage < rest) for stage in range(count))
    if sum(counts) != len(blocks):
        raise SpecError(
            f"{step.name}: stages={':'.join(map(str, counts))} add up to {sum(counts)}, but the step has {len(blocks)} "
            f"numbered blocks, {blocks[0]} to {blocks[-1]}"
        )
    return [blocks[first] for first in list(accumulate(counts))[:-1]]


def _chosen(calls: Iterable[Call], places: Iterable[int], stage: int) -> tuple[Call, ...]:
    return tuple(call for call, place in zip(calls, places, strict=True) if place == stage)


def _units(step: CapturedStep, places: StepStages, stage: int, stage_count: int) -> tuple[Unit, ...]:
    """Return the units of a stage; what lies in no block belongs to the stage whose calls form its gradient.

    A parameter that calls of several stages read, a tied embedding, belongs to each of them.
    """
    writers: dict[str, int] = {}
    for call, place in zip(step.backward, places.backward, strict=True):
        for use in call.writes:
            if use.buffer in step.gradients:
                writers[step.gradients[use.buffer][1].name] = place
    root, *blocks = step.units
    tensors = tuple(
        tensor for tensor in root.tensors
        if stage in places.tied.get(tensor.name, {writers.get(tensor.name, stage_count - 1)})
    )  # fmt: skip
    return (Unit(name="root", tensors=tensors), *(unit for unit in blocks if places.units.get(unit.name, 0) == stage))


def _held(units: Sequence[Unit], backward: Iterable[Call], step: CapturedStep) -> tuple[Unit, ...]:
    """Return the units with the parameters alone whose gradients the calls form."""
    formed = {
        step.gradients[use.buffer][1].name for call in backward for use in call.writes if use.buffer in step.gradients
    }
    return tuple(
        Unit(name=unit.name, tensors=tuple(tensor for tensor in unit.tensors if tensor.name in formed))
        for unit in units
    )
