"""Layers of a pipeline stage, and the activations that its schedule keeps in flight."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from nearpeak.core.systems.training_plan import TrainingPlan
from nearpeak.core.systems.transformer import TransformerShape
from nearpeak.errors import NotModelledError, SpecError
from nearpeak.ops.shared.definition.array_arithmetic import maximum, minimum
from nearpeak.systems.training.pipeline_order import ordered, rank_stages
from nearpeak.systems.training.schedules import is_schedule_file, plan_schedule, schedule_name, schedule_of

InFlight = Callable[[Any, int], int]
"""Model chunks whose activations a stage holds at once, of a plan and a stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageLayers:
    """What a stage holds; numbers may be NumPy columns."""

    first_layer: int
    """Number of its first layer."""
    dense_count: int
    """Layers with a dense feed-forward part."""
    expert_count: int
    """Layers with experts."""
    is_first: int
    """1 where it holds the embedding."""
    is_last: int
    """1 where it holds the output head."""

    @property
    def layer_count(self) -> int:
        """Layers of both kinds."""
        return self.dense_count + self.expert_count


def stage_layers(
    shape: TransformerShape, plan: TrainingPlan, stage: int, layers: Sequence[int] | None = None
) -> StageLayers:
    """Return the layers of a stage: those that `layers` states, or equal shares with the rest on the first stages.

    Args:
        layers: layers of each stage, in order.

    Raises:
        SpecError: `layers` does not add up to the model's.
    """
    if layers is not None:
        if len(layers) != plan.pp or sum(layers) != shape.layer_count:
            raise SpecError(
                f"{shape.name}: {len(layers)} stages of {sum(layers)} layers; pp={plan.pp} stages of "
                f"{shape.layer_count} layers would be right"
            )
        count, start = layers[stage], sum(layers[:stage])
    else:
        share, rest = shape.layer_count // plan.pp, shape.layer_count % plan.pp
        count, start = share + (stage < rest), stage * share + minimum(stage, rest)
    experts = _experts_before(shape, start + count) - _experts_before(shape, start)
    is_first, is_last = 1 * (stage == 0), 1 * (stage == plan.pp - 1)
    name = schedule_name(plan.schedule)
    if name == "dualpipe":
        is_first = is_last = maximum(is_first, is_last)  # both directions begin on one end and finish on the other
    if name == "dualpipev":
        is_last = is_first  # the model's second half runs back to the first rank
    return StageLayers(
        first_layer=start, dense_count=count - experts, expert_count=experts, is_first=is_first, is_last=is_last
    )


def _experts_before(shape: TransformerShape, layer: int) -> int:
    """Return the layers with experts among the first ones."""
    if not shape.experts:
        return 0 * layer
    return maximum(layer - shape.experts.dense_layer_count, 0) // shape.experts.layer_step


def chunks_in_flight(plan: TrainingPlan, stage: int) -> int:
    """Return the model chunks whose activations a stage holds at its peak, by the formula of the plan's schedule.

    Source: Narayanan et al. 2021, arXiv:2104.04473, section 2.2 (GPipe, 1F1B, interleaved); Qi et al. 2023,
    arXiv:2401.10241, table 2 (zero bubble); DeepSeek-V3, arXiv:2412.19437, table 2 (DualPipe). Those of a file of ops
    are counted.

    Raises:
        NotModelledError: no formula for the schedule.

    >>> from nearpeak.core.systems.training_plan import TrainingPlan
    >>> plan = TrainingPlan(pp=4, chunk_count=2, micro_batch=1, global_batch=8, sequence=8, schedule="interleaved")
    >>> [chunks_in_flight(plan, stage) for stage in range(4)]
    [11, 9, 7, 5]
    """
    pp, chunks, batches = plan.pp, plan.chunk_count, plan.micro_batch_count
    if is_schedule_file(plan.schedule) and plan.pp > 1:
        return ordered(schedule_of(plan.schedule, pp, batches, chunks)).in_flight_count[stage]
    name = schedule_name(plan.schedule)
    if name in ("one_f_one_b", "interleaved"):
        deep = 2 * (pp - 1 - stage) + (chunks - 1) * pp + 1
        plain = pp - stage
        return minimum(batches * chunks, plain + (deep - plain) * (chunks > 1))
    depths = {
        "gpipe": batches,
        "zb_h1": pp,
        "zb_h2": 2 * pp - 1,
        "dualpipe": pp + 1,
    }
    if name == "dualpipev":
        return minimum(2 * batches, 2 * pp + 1)
    if name not in depths:
        raise NotModelledError(
            f"no formula for the activations in flight of schedule {name!r}; known: one_f_one_b, "
            f"interleaved, {', '.join(depths)}, dualpipev; pass in_flight for others"
        )
    return minimum(batches, depths[name]) * chunks


def rank_layers(plan: TrainingPlan) -> tuple[int, ...]:
    """Return the layers that a plan states for each rank, its chunks together; nothing where it states none.

    >>> plan = TrainingPlan(pp=2, chunk_count=2, micro_batch=1, global_batch=8, sequence=8, schedule="interleaved",
    ...                     stage_layer_count=(3, 2, 2, 1))
    >>> rank_layers(plan)
    (5, 3)
    """
    counts = plan.stage_layer_count
    if plan.chunk_count == 1 or not counts:
        return counts
    return tuple(sum(counts[stage] for stage in stages) for stages in rank_stages(plan_schedule(plan)))


def held_copies(plan: TrainingPlan) -> int:
    """Return how many stages' weights a rank holds: two under DualPipe, whose ranks run both directions."""
    return 2 if schedule_name(plan.schedule) == "dualpipe" else 1


def rank_chunks(plan: TrainingPlan) -> int:
    """Return the model chunks of a rank: two under DualPipeV, otherwise what the plan says."""
    return 2 if schedule_name(plan.schedule) == "dualpipev" else plan.chunk_count
